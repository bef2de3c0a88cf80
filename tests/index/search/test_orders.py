"""Orders of hits over a view."""

import numpy as np
import pytest

from index.search.grouping import GroupColumn, Groups
from index.search.orders import FusedRanking, GroupedRanking, VectorRanking
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
