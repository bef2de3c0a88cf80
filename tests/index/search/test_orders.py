"""Orders of hits over a view: by groups, fused, and diverse beside a slow reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from index.search.grouping import GroupColumn, Groups
from index.search.orders import FusedRanking, GroupedRanking, VectorRanking, diversify, fuse
from index.vectors.protocol import NOTHING, After, Keys, Neighbours, Vectors
from index.vectors.view import CosineView
from tests.index.samples import unit_vectors

DIM = 16
COUNT = 50


class _Noting(CosineView):
    """A view that notes what its searches were limited to."""

    def __init__(self) -> None:
        super().__init__(DIM)
        self.limits: list[Keys | None] = []

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Search and note."""
        self.limits.append(allowed)
        return super().search(query, k, allowed=allowed, after=after)


def test_matches_of_words_take_no_filter_s_place_in_the_view() -> None:
    view = _Noting()
    view.add(np.arange(COUNT), unit_vectors(COUNT, DIM))
    allowed = np.arange(0, COUNT, 2)
    nearest = VectorRanking(view, unit_vectors(1, DIM, seed=1)[0], allowed, np.empty(0, dtype=np.int64))
    # The last one is not in the view.
    found = FusedRanking(nearest, np.array([4, 2, 8, COUNT + 6]), NOTHING).page(5)
    assert {4, 2, 8} <= set(found.keys.tolist())
    assert view.limits
    assert all(limit is allowed for limit in view.limits)


def test_many_hidden_keys_are_left_out_as_by_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    view = _Noting()
    view.add(np.arange(COUNT), unit_vectors(COUNT, DIM))
    query = unit_vectors(1, DIM, seed=1)[0]
    hidden = np.arange(0, COUNT, 2)
    few = [
        VectorRanking(view, query, allowed, hidden).with_few_hidden().page(9)
        for allowed in (None, np.arange(7, 40))
    ]
    assert [limit is None for limit in view.limits] == [True, False]
    monkeypatch.setattr("index.search.orders._MANY_HIDDEN", 10)
    many = [
        VectorRanking(view, query, allowed, hidden).with_few_hidden().page(9)
        for allowed in (None, np.arange(7, 40))
    ]
    for one, other in zip(few, many, strict=True):
        assert one.keys.tolist() == other.keys.tolist()
    assert [len(limit) for limit in view.limits[2:] if limit is not None] == [25, 17]


def test_groups_end_when_each_that_can_be_found_has_a_hit() -> None:
    """All of a group may be left out; then nothing is gained by looking deeper."""
    view = _Noting()
    view.add(np.arange(COUNT), unit_vectors(COUNT, DIM))
    query = unit_vectors(1, DIM, seed=1)[0]
    column = GroupColumn(np.arange(COUNT), np.arange(COUNT) % 4)
    hidden = np.arange(0, COUNT, 4)
    nearest = VectorRanking(view, query, None, hidden).with_few_hidden()
    found = GroupedRanking(nearest, Groups(lambda: column), nearest.findable).page(5)
    best = [key for key in view.search(query, COUNT).keys.tolist() if key % 4]
    firsts = [next(key for key in best if key % 4 == group) for group in (1, 2, 3)]
    assert found.keys.tolist() == sorted(firsts, key=best.index)
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
        for place in range(len(keys)):
            if place in chosen:
                continue
            alike = max((float(vectors[place] @ vectors[other]) for other in chosen), default=0.0)
            gain = scores[place] if not chosen else (1 - diversity) * scores[place] - diversity * alike
            worth.append((-float(gain), int(keys[place]), place))
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
    found = diversify(keys, scores, vectors, diversity=diversity, count=25)
    assert found.tolist() == _reference(keys, scores, vectors, diversity, 25)


def test_a_copy_of_the_best_waits_behind_what_is_different() -> None:
    vectors = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    scores = np.array([0.9, 0.9, 0.5], dtype=np.float32)
    keys = np.array([5, 4, 6], dtype=np.int64)
    assert diversify(keys, scores, vectors, diversity=0.5, count=3).tolist() == [1, 2, 0]


def test_more_than_there_is_gives_all_and_nothing_gives_nothing() -> None:
    keys, scores, vectors = _candidates(5, 1)
    assert sorted(diversify(keys, scores, vectors, diversity=0.3, count=9).tolist()) == list(range(5))
    assert len(diversify(keys[:0], scores[:0], vectors[:0], diversity=0.3, count=9)) == 0
