"""Pages of hits: while others write and remove, to the end of an order, and bound to what was asked for."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select

from index.catalogue.collections import Generation, next_sequence
from index.catalogue.tables import ImageRow, RemovalRow
from index.engine import SearchEngine
from index.errors import CursorError, QueryError
from index.filters.grammar import parse_filter
from index.search.cursors import PagePosition
from index.search.orders import Ranked, VectorRanking
from index.search.request import SearchRequest
from index.search.results import Hit, SearchPage
from tests.index.homes import open_home
from tests.index.orders import (
    COUNT,
    DIM,
    PA,
    PAGE,
    Filled,
    all_pages,
    combinations,
    fill,
    make_grouped,
    name_of,
    query_of,
)
from tests.index.samples import put_vectors, unit_vectors

pytestmark = pytest.mark.usefixtures("few_places")


@pytest.mark.slow
def test_what_is_written_between_pages_changes_no_page_behind_it(tmp_path: Path) -> None:
    filled, generations = fill(open_home(tmp_path / "home"))
    numbers = itertools.count(COUNT)
    new = make_grouped(200, first=COUNT)
    for values in combinations():
        request = SearchRequest(k=PAGE, **{**values, **({"words": "effusion"} if "words" in values else {})})
        before = filled.search("signed", replace(request, k=COUNT * 3)).hits

        def search_and_write(request: SearchRequest) -> SearchPage:
            page = filled.search("signed", request)
            # Nearest of all, of a group that has hits already, with a word that is asked for.
            record = replace(
                new[next(numbers) % 200], group="patient-3", report="effusion", texts=("effusion",)
            )
            record = replace(record, id=f"new-{next(numbers)}")
            put_vectors(filled.engine, generations["signed"], [record], query_of()[None])
            return page

        names = [name_of(hit) for hit in all_pages(search_and_write, request)]
        assert names == [name_of(hit) for hit in before], values


@pytest.mark.parametrize(
    "values",
    [{}, {"filter": parse_filter(PA)}, {"group_by": "id"}, {"diversity": 0.3}, {"words": "effusion"}],
)
def test_an_image_that_is_replaced_between_pages_comes_on_none_behind(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    """One that was shown goes far down, and of those to come one goes up, one down and one stays."""
    filled, generations = fill(open_home(tmp_path / "home"))
    request = SearchRequest(k=10, **values)
    order = [hit.id for hit in filled.search("signed", replace(request, k=COUNT)).hits]
    records = {record.id: record for record in filled.records}
    replaced = [order[3], order[12], order[14], order[20]]
    query = query_of()
    vectors = np.stack([-query, query, -query, unit_vectors(1, DIM, seed=4)[0]])

    def search_and_replace(request: SearchRequest) -> SearchPage:
        page = filled.search("signed", request)
        if request.cursor is None:
            put_vectors(filled.engine, generations["signed"], [records[name] for name in replaced], vectors)
        return page

    found = [hit.id for hit in all_pages(search_and_replace, request)]
    expected = [*order[:10], *(name for name in order[10:] if name not in replaced)]
    assert found[:10] == order[:10]
    if {"diversity", "words"} & set(values):
        # What is gone from before them moves the others.
        found, expected = sorted(found), sorted(expected)
    assert found == expected


def test_an_image_that_is_replaced_during_a_search_comes_on_no_page_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second page has begun when another thread brings the view up to date."""
    filled, generations = fill(open_home(tmp_path / "home"))
    first = filled.search("signed", SearchRequest(k=10))
    order = [hit.id for hit in filled.search("signed", SearchRequest(k=COUNT)).hits]
    records = {record.id: record for record in filled.records}
    page = VectorRanking.page

    def overtaken(self: VectorRanking, count: int, place: PagePosition | None = None) -> Ranked:
        monkeypatch.setattr(VectorRanking, "page", page)
        put_vectors(filled.engine, generations["signed"], [records[order[3]]], -query_of()[None])
        filled.engine.warm(filled.engine.active("signed").generation)
        return page(self, count, place)

    monkeypatch.setattr(VectorRanking, "page", overtaken)
    second = filled.search("signed", SearchRequest(k=COUNT, cursor=first.next_cursor))
    assert [hit.id for hit in second.hits] == order[10:]


def remove(engine: SearchEngine, generation: Generation, name: str) -> None:
    with engine.home.catalogue.write() as session:
        sequence = next_sequence(session, generation.collection_id)
        row = session.execute(
            select(ImageRow).where(
                ImageRow.collection_id == generation.collection_id, ImageRow.external_id == name
            )
        ).scalar_one()
        session.add(
            RemovalRow(collection_id=generation.collection_id, target="images", key=row.id, sequence=sequence)
        )
        session.execute(delete(ImageRow).where(ImageRow.id == row.id))


@pytest.mark.parametrize("values", [{}, {"group_by": "group"}, {"diversity": 0.3}])
def test_a_page_goes_on_behind_a_hit_that_was_removed(tmp_path: Path, values: dict[str, Any]) -> None:
    filled, generations = fill(open_home(tmp_path / "home"))
    request = SearchRequest(k=10, **values)
    expected = [hit.id for hit in filled.search("signed", replace(request, k=15)).hits]
    first = filled.search("signed", request)
    remove(filled.engine, generations["signed"], first.hits[-1].id)
    second = filled.search("signed", replace(request, k=5, cursor=first.next_cursor))
    found = [hit.id for hit in second.hits]
    assert not set(found) & set(expected[:10])
    # What is gone no longer stands for its group, nor beside others: only the order behind it may move.
    assert found[:1] == expected[10:11]
    assert [hit.rank for hit in second.hits] == [11, 12, 13, 14, 15]


def test_orders_that_are_made_again_end_at_their_depth(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("index.search.orders.MAX_RANKED", "index.engine.MAX_RANKED"):
        monkeypatch.setattr(name, 25)
    request = SearchRequest(k=10, diversity=0.2)
    hits: list[Hit] = []
    cursor = None
    for expected in (10, 10, 5):
        page = filled.search("signed", replace(request, cursor=cursor))
        assert len(page.hits) == expected
        hits += page.hits
        cursor = page.next_cursor
    assert [hit.rank for hit in hits] == list(range(1, 26))
    with pytest.raises(QueryError, match="25 hits deep") as failed:
        filled.search("signed", replace(request, cursor=cursor))
    assert failed.value.field == "cursor"
    # The plain order has no such end.
    plain = SearchRequest(k=10)
    assert len(all_pages(lambda request: filled.search("signed", request), plain)) == COUNT


@pytest.mark.parametrize("differences", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_cursor_is_bound_to_everything_but_k(filled: Filled, differences: int) -> None:
    """Changes of a request: each alone, and in the slow tests every pair."""
    chosen = combinations()
    for place, values in enumerate(chosen):
        request = SearchRequest(k=2, **values)
        cursor = filled.search("signed", request).next_cursor
        assert cursor is not None
        assert filled.search("signed", replace(request, k=3, cursor=cursor)).hits
        for another, other in enumerate(chosen):
            # The bits of a place say which of two values each of the six settings has.
            if 0 < (place ^ another).bit_count() <= differences:
                with pytest.raises(CursorError, match="another request"):
                    filled.search("signed", SearchRequest(k=2, cursor=cursor, **other))
        with pytest.raises(CursorError, match="another query"):
            filled.search("signed", replace(request, cursor=cursor), seed=2)
