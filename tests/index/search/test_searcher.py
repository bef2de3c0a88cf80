"""Every order of hits against a slow reference, and what a hit tells."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from index.catalogue.collections import TARGETS, Target
from index.errors import CursorError, FilterError, QueryError
from index.filters.grammar import parse_filter
from index.search.request import BatchEntry, Part, Parts, SearchRequest, unit_query
from index.search.results import Hit, SearchPage
from index.vectors.view import CosineView
from tests.index.orders import (
    COUNT,
    KINDS,
    PA,
    PAGE,
    PLACES,
    Filled,
    all_pages,
    combinations,
    groups_of,
    name_of,
    query_of,
    reference,
)

pytestmark = pytest.mark.usefixtures("few_places")


def check_others(filled: Filled, kind: str, request: SearchRequest, hits: Sequence[Hit]) -> None:
    """Make sure that hits of groups count the others that could be found."""
    groups = groups_of(filled, request.group_by or "")
    single = reference(filled, kind, replace(request, group_by=None, diversity=None))
    sizes = Counter(groups[item.record.id] for item, _ in single)
    assert [hit.others for hit in hits] == [sizes[groups[hit.id]] - 1 for hit in hits]


@pytest.mark.parametrize("kind", ["signed", "unsigned", pytest.param("blades", marks=pytest.mark.slow)])
def test_every_combination_equals_the_reference_on_one_page_and_over_all(filled: Filled, kind: str) -> None:
    records = {record.id: record for record in filled.records}
    for values in combinations():
        request = SearchRequest(k=PAGE, **values)
        expected = reference(filled, kind, request)
        whole = filled.search(kind, replace(request, k=COUNT * 2))
        assert [name_of(hit) for hit in whole.hits] == [item.name for item, _ in expected], values
        np.testing.assert_allclose([hit.score for hit in whole.hits], [s for _, s in expected], atol=2e-6)
        assert (whole.next_cursor, whole.exact) == (None, True)
        for hit in whole.hits:
            assert (hit.image.texts, hit.image.group) == (records[hit.id].texts, records[hit.id].group)
            assert hit.image.text is None or hit.image.text.text == hit.image.texts[hit.image.text.position]
        if request.group_by is not None:
            check_others(filled, kind, request, whole.hits)
        paged = all_pages(lambda request: filled.search(kind, request), request)
        assert [hit.rank for hit in paged] == list(range(1, len(expected) + 1))
        assert paged == list(whole.hits), values


@pytest.mark.parametrize("kind", KINDS)
def test_searches_of_a_batch_answer_as_each_alone(filled: Filled, kind: str) -> None:
    active = filled.engine.active(kind)
    requests = [
        SearchRequest(**{"k": 3 + place % 7, "kind": "image", **values})
        for place, values in enumerate(combinations())
    ]
    entries = [BatchEntry(query_of(seed % 5), request, None) for seed, request in enumerate(requests)]
    pages = filled.engine.search_batch(active, entries)
    for (query, request, _), page in zip(entries, pages, strict=True):
        alone = filled.engine.search(active, query, request)
        assert isinstance(page, SearchPage), request
        assert replace(page, search_ms=0.0) == replace(alone, search_ms=0.0), request
        assert page.next_cursor == alone.next_cursor, request
    assert filled.engine.search_batch(active, []) == []


def test_a_wrong_search_of_a_batch_fails_alone(filled: Filled) -> None:
    active = filled.engine.active("signed")
    wrong = [
        SearchRequest(filter=parse_filter({"field": "unknown", "eq": 1})),
        SearchRequest(cursor="damaged"),
        SearchRequest(group_by="unknown"),
        SearchRequest(k=0),
    ]
    requests = [SearchRequest(k=4), *wrong, SearchRequest(k=6)]
    pages = filled.engine.search_batch(active, [BatchEntry(query_of(1), one, None) for one in requests])
    found = [page if isinstance(page, SearchPage) else type(page) for page in pages]
    assert found[1:-1] == [FilterError, CursorError, QueryError, QueryError]
    for request, page in ((requests[0], pages[0]), (requests[-1], pages[-1])):
        assert isinstance(page, SearchPage)
        assert page.hits == filled.engine.search(active, query_of(1), request).hits


@pytest.mark.parametrize("field", ["group", "split", "id", "labels", "view", "age", "urgent"])
@pytest.mark.parametrize("target", TARGETS)
def test_groups_are_of_any_field_and_count_the_others(filled: Filled, field: str, target: Target) -> None:
    for filter in (None, parse_filter(PA)):
        for words in (None, "effusion heart"):
            request = SearchRequest(
                k=7,
                group_by=field,
                target=target,
                filter=filter,
                words=words,
                exclude_groups_of=("image-006", "image-040"),
                exclude_groups_by="age" if field == "view" else "urgent",
            )
            expected = reference(filled, "signed", request)
            hits = all_pages(lambda request: filled.search("signed", request), request)
            assert [name_of(hit) for hit in hits] == [item.name for item, _ in expected]
            check_others(filled, "signed", request, hits)
    assert filled.search("signed", SearchRequest(k=1)).hits[0].others is None


def test_hits_tell_their_lists_and_keep_their_cosine(filled: Filled) -> None:
    page = filled.search("signed", SearchRequest(k=COUNT, words="effusion"))
    plain = {hit.id: hit for hit in filled.search("signed", SearchRequest(k=COUNT)).hits}
    nearest = {hit.id for hit in plain.values() if hit.rank <= PLACES}
    has = {
        record.id for record in filled.records if "effusion" in f"{record.report} {' '.join(record.texts)}"
    }
    assert page.fused
    for hit in page.hits:
        assert hit.cosine == pytest.approx(plain[hit.id].cosine, abs=1e-6)
        assert ("vector" in hit.found_by) == (hit.id in nearest or hit.score == 0)
        assert ("keywords" in hit.found_by) <= (hit.id in has)
    assert sum("keywords" in hit.found_by for hit in page.hits) == min(PLACES, len(has))


def test_what_is_no_request_is_refused_and_named(filled: Filled) -> None:
    no_field = r"no field 'veiw' to group by\. Did you mean 'view'"
    for request, field, said in (
        (SearchRequest(k=0), "limit", None),
        (SearchRequest(diversity=1.5), "diversity", None),
        (SearchRequest(diversity=float("nan")), "diversity", None),
        (SearchRequest(words=" -- "), "keywords", None),
        (SearchRequest(group_by="veiw"), "group_by", no_field),
        (
            SearchRequest(exclude_groups_of=("image-001",), exclude_groups_by="veiw"),
            "exclude_same_group",
            no_field,
        ),
    ):
        with pytest.raises(QueryError, match=said) as failed:
            filled.search("signed", request)
        assert failed.value.field == field


def test_a_page_is_exact_where_its_view_says_so(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    search = CosineView.search
    inexact = lambda *given, **asked: search(*given, **asked)._replace(exact=False)  # noqa: E731
    monkeypatch.setattr(CosineView, "search", inexact)
    for values in combinations():
        assert not filled.search("signed", SearchRequest(k=PAGE, **values)).exact, values


@pytest.mark.parametrize("number", [3e38, 1e-38, 1.0])
def test_a_query_of_large_or_small_numbers_keeps_its_direction(number: float) -> None:
    query = unit_query(np.full(8, -number, dtype=np.float32), 8)
    np.testing.assert_allclose(query, np.full(8, -(8**-0.5)), rtol=1e-6)


def test_several_parts_make_one_query_but_not_for_blades_and_vectors_without_a_sign(filled: Filled) -> None:
    engine = filled.engine
    for kind in KINDS:
        active = engine.active(kind)
        single = Part(engine.vector_of(active, "image-007"), "image")
        vector = engine.compose(active, Parts(liked=[single]))
        assert engine.search(active, vector, SearchRequest(k=1)).hits[0].id == "image-007"
        both = Parts(liked=[single, Part(query_of(), None)])
        if kind == "signed":
            found = engine.search(active, engine.compose(active, both), SearchRequest(k=COUNT))
            assert {hit.id for hit in found.hits[:20]} > {"image-007"}
        else:
            with pytest.raises(QueryError, match="one text, image, id or vector only"):
                engine.compose(active, both)


def test_z_scores_are_those_of_the_sample(filled: Filled) -> None:
    active = filled.engine.active("signed")
    near = filled.engine.vector_of(active, "image-040")
    unusual = filled.engine.search(active, near, SearchRequest(k=COUNT)).z_scores
    assert unusual is not None
    assert len(unusual) == COUNT
    # Over the whole collection, which is its own sample, they are standard scores.
    assert np.mean(unusual) == pytest.approx(0, abs=1e-3)
    assert np.std(unusual) == pytest.approx(1, abs=1e-3)
