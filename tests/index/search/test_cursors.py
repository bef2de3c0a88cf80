"""Pages of hits: while others write and remove, to the end of an order, and bound to what was asked for."""

import base64
import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index.catalogue.collections import Generation
from index.errors import CursorError, QueryError
from index.filters.grammar import parse_filter
from index.search.cursors import MAX_RANKED, Binding, PageEnd, PagePosition, decode_cursor, encode_cursor
from index.search.orders import VectorRanking
from index.search.request import SearchRequest
from index.search.results import Hit, SearchPage
from index.vectors.protocol import After, Vectors
from index.writes.deletion import delete_images
from tests.index import orders
from tests.index.homes import in_write, open_home
from tests.index.meanwhile import at_first
from tests.index.orders import Filled
from tests.index.samples import begin_generation, put_vectors, unit_vectors

pytestmark = pytest.mark.usefixtures("few_places")


ORDERS: list[dict[str, Any]] = [
    {"words": "heart"},
    {"diversity": 0.5},
    {"group_by": "group"},
    {"words": "heart", "diversity": 0.5, "group_by": "group"},
]
IN_PAIRS: list[dict[str, Any]] = [
    {"words": "heart", "group_by": "group"},
    {"diversity": 0.5, "group_by": "group"},
]


def shown_while_changed(
    filled: Filled, generation: Generation, request: SearchRequest, seed: int
) -> tuple[list[str], set[str]]:
    """Go through all pages with changes between them; what they show, and what was removed."""
    draw = random.Random(seed)
    removed, shown, cursor = set[str](), list[str](), None
    there = [record.id for record in filled.records]
    for step in range(orders.COUNT):
        page = filled.search("signed", replace(request, k=draw.randint(1, 4), cursor=cursor), seed)
        assert [hit.rank for hit in page.hits] == list(range(len(shown) + 1, len(shown) + 1 + len(page.hits)))
        shown += [hit.id for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            return shown, removed
        # Mostly among the first hits, which moves most of the others.
        gone = {draw.choice(there), draw.choice(shown[-9:])} & set(there)
        in_write(filled.engine, delete_images, "signed", sorted(gone))
        removed |= gone
        there = [name for name in there if name not in gone]
        new = orders.make_grouped(1, first=orders.COUNT + step), unit_vectors(1, orders.DIM, seed=1000 + step)
        put_vectors(filled.engine, generation, *new)
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize(
    "values",
    [
        # One alone, and all together.
        pytest.param(values, marks=() if "diversity" in values and values in ORDERS else pytest.mark.slow)
        for values in (*ORDERS, *IN_PAIRS)
    ],
    ids=lambda values: "+".join(values),
)
def test_no_hit_comes_twice_and_none_is_passed_over(tmp_path: Path, values: dict[str, Any]) -> None:
    """Lists end within the collection, so that what is removed moves others into them."""
    for seed in range(2):
        filled, generations = orders.fill(open_home(tmp_path / str(seed)))
        groups = orders.groups_of(filled, "group")
        shown, removed = shown_while_changed(filled, generations["signed"], SearchRequest(**values), seed)
        filled.engine.close()
        assert len(removed) > 10
        assert max(Counter(shown).values()) == 1
        stayed = groups.keys() - removed
        if "group_by" not in values:
            assert stayed <= set(shown)
            continue
        # A group may come again only when what was shown of it is gone.
        assert {groups[name] for name in stayed} <= {groups[name] for name in shown}
        assert max(Counter(groups[name] for name in shown if name not in removed).values()) == 1


@pytest.mark.slow
def test_what_is_written_between_pages_changes_no_page_behind_it(tmp_path: Path) -> None:
    filled, generations = orders.fill(open_home(tmp_path / "home"))
    numbers = itertools.count(orders.COUNT)
    new = orders.make_grouped(200, first=orders.COUNT)
    for values in orders.combinations():
        request = SearchRequest(
            k=orders.PAGE, **{**values, **({"words": "effusion"} if "words" in values else {})}
        )
        before = filled.search("signed", replace(request, k=orders.COUNT * 3)).hits

        def search_and_write(request: SearchRequest) -> SearchPage:
            page = filled.search("signed", request)
            # Nearest of all, of a group that has hits already, with a word that is asked for.
            record = replace(
                new[next(numbers) % 200], group="patient-3", report="effusion", texts=("effusion",)
            )
            record = replace(record, id=f"new-{next(numbers)}")
            put_vectors(filled.engine, generations["signed"], [record], orders.query_of()[None])
            return page

        names = [orders.name_of(hit) for hit in orders.all_pages(search_and_write, request)]
        assert names == [orders.name_of(hit) for hit in before], values


@pytest.mark.parametrize(
    "values",
    [{}, {"filter": parse_filter(orders.PA)}, {"group_by": "id"}, {"diversity": 0.3}, {"words": "effusion"}],
)
def test_an_image_that_is_replaced_between_pages_comes_on_none_behind(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    """One that was shown goes far down, and of those to come one goes up, one down and one stays."""
    filled, generations = orders.fill(open_home(tmp_path / "home"))
    request = SearchRequest(k=10, **values)
    order = [hit.id for hit in filled.search("signed", replace(request, k=orders.COUNT)).hits]
    records = {record.id: record for record in filled.records}
    replaced = [order[3], order[12], order[14], order[20]]
    query = orders.query_of()
    vectors = np.stack([-query, query, -query, unit_vectors(1, orders.DIM, seed=4)[0]])

    def search_and_replace(request: SearchRequest) -> SearchPage:
        page = filled.search("signed", request)
        if request.cursor is None:
            put_vectors(filled.engine, generations["signed"], [records[name] for name in replaced], vectors)
        return page

    results = [hit.id for hit in orders.all_pages(search_and_replace, request)]
    expected = [*order[:10], *(name for name in order[10:] if name not in replaced)]
    assert results[:10] == order[:10]
    if {"diversity", "words"} & set(values):
        # What is gone from before them moves the others.
        results, expected = sorted(results), sorted(expected)
    assert results == expected


def test_an_image_that_is_replaced_during_a_search_comes_on_no_page_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second page has begun when another thread brings the view up to date."""
    filled, generations = orders.fill(open_home(tmp_path / "home"))
    first = filled.search("signed", SearchRequest(k=10))
    order = [hit.id for hit in filled.search("signed", SearchRequest(k=orders.COUNT)).hits]
    records = {record.id: record for record in filled.records}

    def replace_it() -> None:
        put_vectors(filled.engine, generations["signed"], [records[order[3]]], -orders.query_of()[None])
        filled.engine.warm(filled.engine.active("signed").generation)

    at_first(monkeypatch, VectorRanking, "page", replace_it)
    second = filled.search("signed", SearchRequest(k=orders.COUNT, cursor=first.next_cursor))
    assert [hit.id for hit in second.hits] == order[10:]


@pytest.mark.parametrize("values", [{}, {"group_by": "group"}, {"diversity": 0.3}])
def test_a_page_goes_on_behind_a_hit_that_was_removed(tmp_path: Path, values: dict[str, Any]) -> None:
    filled, _ = orders.fill(open_home(tmp_path / "home"))
    request = SearchRequest(k=10, **values)
    expected = [hit.id for hit in filled.search("signed", replace(request, k=15)).hits]
    first = filled.search("signed", request)
    in_write(filled.engine, delete_images, "signed", [first.hits[-1].id])
    second = filled.search("signed", replace(request, k=5, cursor=first.next_cursor))
    results = [hit.id for hit in second.hits]
    assert not set(results) & set(expected[:10])
    # A removed image no longer represents its group: only the order behind it may change.
    assert results[:1] == expected[10:11]
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
    assert len(orders.all_pages(lambda request: filled.search("signed", request), plain)) == orders.COUNT


@pytest.mark.parametrize("differences", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_cursor_is_bound_to_everything_but_k(filled: Filled, differences: int) -> None:
    """Changes of a request: each alone, and in the slow tests every pair."""
    chosen = orders.combinations()
    for index, values in enumerate(chosen):
        request = SearchRequest(k=2, **values)
        cursor = filled.search("signed", request).next_cursor
        assert cursor is not None
        assert filled.search("signed", replace(request, k=3, cursor=cursor)).hits
        for another, other in enumerate(chosen):
            # The bits of a place say which of two values each of the six settings has.
            if 0 < (index ^ another).bit_count() <= differences:
                with pytest.raises(CursorError, match="another request"):
                    filled.search("signed", SearchRequest(k=2, cursor=cursor, **other))
        with pytest.raises(CursorError, match="another query"):
            filled.search("signed", replace(request, cursor=cursor), seed=2)


def test_a_cursor_outlives_a_restart_and_the_last_bits_of_its_query_and_no_other_generation(
    tmp_path: Path,
) -> None:
    filled, _ = orders.fill(open_home(tmp_path / "home"))
    first, request = filled.search("signed", SearchRequest(k=20)), SearchRequest(k=20)
    request = replace(request, cursor=first.next_cursor)
    second = filled.search("signed", request)
    again = open_home(tmp_path / "home")
    active = again.active("signed")
    assert again.search(active, orders.query_of() + np.float32(1e-6), request).hits == second.hits
    assert second.hits[0].rank == 21
    other = begin_generation(again, "signed", orders.DIM, digest="9" * 64)
    put_vectors(again, other, filled.records, unit_vectors(orders.COUNT, orders.DIM))
    with pytest.raises(CursorError, match="replaced"):
        again.search(again.active("signed"), orders.query_of(), request)
    again.close()


QUERY, BINDING = unit_vectors(1, 32)[0], Binding("g" * 32, "r")


def cursor_behind(
    score: float = 0.25, rank: int = 1, sequence: int = 4, seen: Sequence[int] = (), query: Vectors = QUERY
) -> str:
    position = PagePosition(After(score, 9, rank), sequence, None, np.array(seen, dtype=np.int64))
    return encode_cursor(PageEnd(BINDING, query, position))


@pytest.mark.parametrize("seen", [[], [5], [7, 3, 2**62, 2**40], list(range(1, 20_000, 2))])
def test_a_cursor_keeps_the_keys_of_all_hits_before(seen: list[int]) -> None:
    cursor = cursor_behind(rank=len(seen), seen=seen)
    result, back = decode_cursor(cursor, BINDING, QUERY)
    assert np.array_equal(result, QUERY)
    assert back.seen.tolist() == sorted(seen)
    assert (back.after, back.sequence, back.confident) == (After(0.25, 9, len(seen)), 4, None)
    # Little grows with the number of pages.
    assert len(cursor) < 400 + 3 * len(seen)


@pytest.mark.parametrize(("composed", "near", "far"), [(False, 0.0099, 0.0101), (True, 0.099, 0.101)])
def test_a_query_may_differ_by_so_much_and_no_more(composed: bool, near: float, far: float) -> None:
    for confident in (None, False, True):
        position = PagePosition(After(0.5, 9, 2**31 - 1), 0, confident, np.arange(0))
        cursor = encode_cursor(PageEnd(BINDING, QUERY, position))
        binding = replace(BINDING, composed=composed)
        result, back = decode_cursor(cursor, binding, QUERY + near * unit_vectors(1, 32, seed=5)[0])
        assert np.array_equal(result, QUERY)
        assert back[:3] == position[:3]
        with pytest.raises(CursorError, match="another query"):
            decode_cursor(cursor, binding, QUERY + far * unit_vectors(1, 32, seed=5)[0])


def without_its_end(missing: int) -> str:
    """A cursor that ends within its query, with the right digest."""
    content = base64.urlsafe_b64decode(cursor_behind() + "==")[: -8 - missing]
    content += hashlib.blake2b(content, digest_size=8).digest()
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def with_number(number: float) -> Vectors:
    forged: Vectors = QUERY.copy()
    forged[2] = number
    return forged


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "x", "ä", "B" + cursor_behind()[1:], cursor_behind()[::-1]),
        *(cursor_behind()[:end] for end in (-1, -20, 50)),
        # Forged, without sensible numbers.
        *(cursor_behind(score) for score in (np.nan, np.inf)),
        *(cursor_behind(query=with_number(number)) for number in (np.nan, -np.inf)),
        cursor_behind(rank=2**31),
        cursor_behind(sequence=-1),
        *(without_its_end(missing) for missing in (1, 4)),
        # No order has so many; they are not unpacked.
        cursor_behind(seen=range(MAX_RANKED + 1)),
    ],
    ids=range(17),
)
def test_a_damaged_or_forged_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(CursorError, match="damaged"):
        decode_cursor(cursor, BINDING, QUERY)
