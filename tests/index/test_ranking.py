"""Orders of hits over a view."""

import numpy as np

from index.ranking import Fused, Scope
from index.vectors.cosine import CosineView
from index.vectors.protocol import After, Keys, Neighbours, Vectors
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
    scope = Scope(view, unit_vectors(1, DIM, seed=1)[0], allowed, np.empty(0, dtype=np.int64))
    # The last one is not in the view.
    found = Fused(scope, np.array([4, 2, 8, COUNT + 6])).page(5)
    assert {4, 2, 8} <= set(found.keys.tolist())
    assert view.limits
    assert all(limit is allowed for limit in view.limits)
