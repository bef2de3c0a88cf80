"""Every order of hits against a slow reference, over a view and by the engine, and what a hit tells."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from index.catalogue.collections import TARGETS, Target
from index.catalogue.words import MAX_WORDS
from index.errors import CursorError, FilterError, QueryError
from index.filters.grammar import parse_filter
from index.search.grouping import GroupColumn, Groups
from index.search.orders import FusedRanking, GroupedRanking, VectorRanking, diversify, fuse
from index.search.request import BatchEntry, Part, Parts, SearchRequest, unit_query
from index.search.results import Hit, SearchPage
from index.vectors.protocol import NOTHING, After, Keys, Neighbours, Vectors
from index.vectors.view import CosineView
from tests.index import orders
from tests.index.orders import Filled
from tests.index.samples import unit_vectors

pytestmark = pytest.mark.usefixtures("few_places")

DIM = 16
_COUNT = 50


class _Noting(CosineView):
    """A view that notes what its searches were limited to."""

    def __init__(self) -> None:
        super().__init__(DIM)
        self.add(np.arange(_COUNT), unit_vectors(_COUNT, DIM))
        self.limits: list[Keys | None] = []

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Search and note."""
        self.limits.append(allowed)
        return super().search(query, k, allowed=allowed, after=after)


def test_matches_of_words_take_no_filter_s_place_in_the_view() -> None:
    view = _Noting()
    allowed = np.arange(0, _COUNT, 2)
    nearest = VectorRanking(view, unit_vectors(1, DIM, seed=1)[0], allowed, np.empty(0, dtype=np.int64))
    # The last one is not in the view.
    result = FusedRanking(nearest, np.array([4, 2, 8, _COUNT + 6]), NOTHING).page(5)
    assert {4, 2, 8} <= set(result.keys.tolist())
    assert view.limits
    assert all(limit is allowed for limit in view.limits)


def test_many_hidden_keys_are_left_out_as_by_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    view = _Noting()

    def pages() -> list[Keys]:
        rankings = (
            VectorRanking(view, orders.query_of(), allowed, np.arange(0, _COUNT, 2))
            for allowed in (None, np.arange(7, 40))
        )
        return [ranking.with_few_hidden().page(9).keys for ranking in rankings]

    few = pages()
    assert [limit is None for limit in view.limits] == [True, False]
    monkeypatch.setattr("index.search.orders._MANY_HIDDEN", 10)
    for one, other in zip(few, pages(), strict=True):
        assert one.tolist() == other.tolist()
    assert [len(limit) for limit in view.limits[2:] if limit is not None] == [25, 17]


def test_groups_end_when_each_that_can_be_found_has_a_hit() -> None:
    """All of a group may be left out; then nothing is gained by looking deeper."""
    view = _Noting()
    query = unit_vectors(1, DIM, seed=1)[0]
    column = GroupColumn(np.arange(_COUNT), np.arange(_COUNT) % 4)
    hidden = np.arange(0, _COUNT, 4)
    nearest = VectorRanking(view, query, None, hidden).with_few_hidden()
    result = GroupedRanking(nearest, Groups(lambda: column), nearest.findable).page(5)
    best = [key for key in view.search(query, _COUNT).keys.tolist() if key % 4]
    firsts = [next(key for key in best if key % 4 == group) for group in (1, 2, 3)]
    assert result.keys.tolist() == sorted(firsts, key=best.index)
    # One search beyond the view's own, or a second where the first has no hit of one of the groups.
    assert len(view.limits) <= 3


def _keys(*keys: int) -> Keys:
    return np.array(keys, dtype=np.int64)


def test_fused_ranks_golden() -> None:
    keys, sums = fuse([_keys(7, 3, 9), _keys(3, 8)])
    assert keys.tolist() == [3, 7, 8, 9]
    np.testing.assert_allclose(sums, [1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63], rtol=1e-12)


def test_equal_sums_are_in_order_of_key_and_nothing_fuses_to_nothing() -> None:
    assert fuse([_keys(2, 1), _keys(1, 2)])[0].tolist() == [1, 2]
    assert [part.tolist() for part in fuse([])] == [[], []]
    assert fuse([_keys(), _keys(5)])[0].tolist() == [5]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), unique=True, max_size=12), max_size=4))
def test_fused_ranks_equal_the_sum_by_definition(rankings: list[list[int]]) -> None:
    keys, sums = fuse([np.array(ranking, dtype=np.int64) for ranking in rankings], k0=10)
    expected = {
        key: sum(1 / (11 + ranking.index(key)) for ranking in rankings if key in ranking)
        for ranking in rankings
        for key in ranking
    }
    assert dict(zip(keys.tolist(), sums.tolist(), strict=True)) == pytest.approx(expected)
    assert (np.diff(sums) <= 1e-15).all()


def _reference(
    keys: Keys, scores: NDArray[np.float32], vectors: Vectors, diversity: float, count: int
) -> list[int]:
    """The definition, candidate by candidate."""
    chosen: list[int] = []
    while len(chosen) < min(count, len(keys)):
        worth = []
        for position in range(len(keys)):
            if position in chosen:
                continue
            alike = max((float(vectors[position] @ vectors[other]) for other in chosen), default=0.0)
            gain = scores[position] if not chosen else (1 - diversity) * scores[position] - diversity * alike
            worth.append((-float(gain), int(keys[position]), position))
        chosen.append(min(worth)[2])
    return chosen


def _candidates(count: int, seed: int) -> tuple[Keys, NDArray[np.float32], Vectors]:
    vectors = unit_vectors(count, DIM, seed)
    keys = np.random.default_rng(seed).permutation(10 * count)[:count].astype(np.int64)
    return keys, (vectors @ unit_vectors(1, DIM, seed + 1)[0]).astype(np.float32), vectors


@pytest.mark.parametrize("diversity", [0.0, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_choice_equals_the_reference(diversity: float, seed: int) -> None:
    keys, scores, vectors = _candidates(40, seed)
    result = diversify(keys, scores, vectors, diversity=diversity, count=25)
    assert result.tolist() == _reference(keys, scores, vectors, diversity, 25)


def test_a_copy_of_the_best_waits_behind_what_is_different() -> None:
    vectors = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    scores = np.array([0.9, 0.9, 0.5], dtype=np.float32)
    keys = np.array([5, 4, 6], dtype=np.int64)
    assert diversify(keys, scores, vectors, diversity=0.5, count=3).tolist() == [1, 2, 0]


def test_more_than_there_is_gives_all_and_nothing_gives_nothing() -> None:
    keys, scores, vectors = _candidates(5, 1)
    assert sorted(diversify(keys, scores, vectors, diversity=0.3, count=9).tolist()) == list(range(5))
    assert len(diversify(keys[:0], scores[:0], vectors[:0], diversity=0.3, count=9)) == 0


def check_others(filled: Filled, kind: str, request: SearchRequest, hits: Sequence[Hit]) -> None:
    """Make sure that hits of groups count the others that could be found."""
    groups = orders.groups_of(filled, request.group_by or "")
    single = orders.reference(filled, kind, replace(request, group_by=None, diversity=None))
    sizes = Counter(groups[item.record.id] for item, _ in single)
    assert [hit.others for hit in hits] == [sizes[groups[hit.id]] - 1 for hit in hits]


@pytest.mark.parametrize("kind", ["signed", "unsigned", pytest.param("blades", marks=pytest.mark.slow)])
def test_every_combination_equals_the_reference_on_one_page_and_over_all(filled: Filled, kind: str) -> None:
    records = {record.id: record for record in filled.records}
    for values in orders.combinations():
        request = SearchRequest(k=orders.PAGE, **values)
        expected = orders.reference(filled, kind, request)
        whole = filled.search(kind, replace(request, k=orders.COUNT * 2))
        assert [orders.name_of(hit) for hit in whole.hits] == [item.name for item, _ in expected], values
        np.testing.assert_allclose([hit.score for hit in whole.hits], [s for _, s in expected], atol=2e-6)
        assert (whole.next_cursor, whole.exact) == (None, True)
        for hit in whole.hits:
            assert (hit.image.texts, hit.image.group) == (records[hit.id].texts, records[hit.id].group)
            assert hit.image.text is None or hit.image.text.text == hit.image.texts[hit.image.text.position]
        if request.group_by is not None:
            check_others(filled, kind, request, whole.hits)
        paged = orders.all_pages(lambda request: filled.search(kind, request), request)
        assert [hit.rank for hit in paged] == list(range(1, len(expected) + 1))
        assert paged == list(whole.hits), values


@pytest.mark.parametrize("kind", orders.KINDS)
def test_searches_of_a_batch_answer_as_each_alone(filled: Filled, kind: str) -> None:
    active = filled.engine.active(kind)
    requests = [
        SearchRequest(**{"k": 3 + index % 7, "kind": "image", **values})
        for index, values in enumerate(orders.combinations())
    ]
    entries = [BatchEntry(orders.query_of(seed % 5), request, None) for seed, request in enumerate(requests)]
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
    pages = filled.engine.search_batch(
        active, [BatchEntry(orders.query_of(1), one, None) for one in requests]
    )
    results = [page if isinstance(page, SearchPage) else type(page) for page in pages]
    assert results[1:-1] == [FilterError, CursorError, QueryError, QueryError]
    for request, page in ((requests[0], pages[0]), (requests[-1], pages[-1])):
        assert isinstance(page, SearchPage)
        assert page.hits == filled.engine.search(active, orders.query_of(1), request).hits


@pytest.mark.parametrize("field", ["group", "split", "id", "labels", "view", "age", "urgent"])
@pytest.mark.parametrize("target", TARGETS)
def test_groups_are_of_any_field_and_count_the_others(filled: Filled, field: str, target: Target) -> None:
    for filter in (None, parse_filter(orders.PA)):
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
            expected = orders.reference(filled, "signed", request)
            hits = orders.all_pages(lambda request: filled.search("signed", request), request)
            assert [orders.name_of(hit) for hit in hits] == [item.name for item, _ in expected]
            check_others(filled, "signed", request, hits)
    assert filled.search("signed", SearchRequest(k=1)).hits[0].others is None


def test_hits_tell_their_lists_and_keep_their_cosine(filled: Filled) -> None:
    page = filled.search("signed", SearchRequest(k=orders.COUNT, words="effusion"))
    plain = {hit.id: hit for hit in filled.search("signed", SearchRequest(k=orders.COUNT)).hits}
    nearest = {hit.id for hit in plain.values() if hit.rank <= orders.PLACES}
    has = {
        record.id for record in filled.records if "effusion" in f"{record.report} {' '.join(record.texts)}"
    }
    assert page.fused
    for hit in page.hits:
        assert hit.cosine == pytest.approx(plain[hit.id].cosine, abs=1e-6)
        assert ("vector" in hit.found_by) == (hit.id in nearest or hit.score == 0)
        assert ("keywords" in hit.found_by) <= (hit.id in has)
    assert sum("keywords" in hit.found_by for hit in page.hits) == min(orders.PLACES, len(has))


def test_what_is_no_request_is_refused_and_named(filled: Filled) -> None:
    words = [f"word{number}" for number in range(MAX_WORDS + 1)]
    SearchRequest(k=1, diversity=0, min_score=-1, words=" ".join(words[1:])).check()
    SearchRequest(diversity=1, min_score=1).check()
    no_field = r"no field 'veiw' to group by\. Did you mean 'view'"
    for request, field, message in (
        (SearchRequest(k=0), "limit", None),
        (SearchRequest(diversity=1.01), "diversity", None),
        (SearchRequest(diversity=-0.01), "diversity", None),
        (SearchRequest(min_score=1.01), "min_score", None),
        (SearchRequest(min_score=-1.01), "min_score", None),
        (SearchRequest(words=" ".join(words)), "keywords", f"{MAX_WORDS + 1} different words"),
        (SearchRequest(diversity=float("nan")), "diversity", None),
        (SearchRequest(words=" -- "), "keywords", None),
        (SearchRequest(group_by="veiw"), "group_by", no_field),
        (
            SearchRequest(exclude_groups_of=("image-001",), exclude_groups_by="veiw"),
            "exclude_same_group",
            no_field,
        ),
    ):
        with pytest.raises(QueryError, match=message) as failed:
            filled.search("signed", request)
        assert failed.value.field == field


def test_a_page_is_exact_where_its_view_says_so(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    search = CosineView.search

    def inexact(*args: Any, **kwargs: Any) -> Any:
        return search(*args, **kwargs)._replace(exact=False)

    monkeypatch.setattr(CosineView, "search", inexact)
    for values in orders.combinations():
        assert not filled.search("signed", SearchRequest(k=orders.PAGE, **values)).exact, values


@pytest.mark.parametrize("number", [3e38, 1e-38, 1.0])
def test_a_query_of_large_or_small_numbers_keeps_its_direction(number: float) -> None:
    query = unit_query(np.full(8, -number, dtype=np.float32), 8)
    np.testing.assert_allclose(query, np.full(8, -(8**-0.5)), rtol=1e-6)


def test_several_parts_make_one_query_but_not_for_blades_and_vectors_without_a_sign(filled: Filled) -> None:
    engine = filled.engine
    for kind in orders.KINDS:
        active = engine.active(kind)
        single = Part(engine.vector_of(active, "image-007"), "image")
        vector = engine.compose(active, Parts(liked=[single]))
        assert engine.search(active, vector, SearchRequest(k=1)).hits[0].id == "image-007"
        both = Parts(liked=[single, Part(orders.query_of(), None)])
        if kind == "signed":
            page = engine.search(active, engine.compose(active, both), SearchRequest(k=orders.COUNT))
            assert {hit.id for hit in page.hits[:20]} > {"image-007"}
        else:
            with pytest.raises(QueryError, match="one text, image, id or vector only"):
                engine.compose(active, both)


def test_z_scores_are_those_of_the_sample(filled: Filled) -> None:
    active = filled.engine.active("signed")
    near = filled.engine.vector_of(active, "image-040")
    unusual = filled.engine.search(active, near, SearchRequest(k=orders.COUNT)).z_scores
    assert unusual is not None
    assert len(unusual) == orders.COUNT
    # Over the whole collection, which is its own sample, they are standard scores.
    assert np.mean(unusual) == pytest.approx(0, abs=1e-3)
    assert np.std(unusual) == pytest.approx(1, abs=1e-3)
