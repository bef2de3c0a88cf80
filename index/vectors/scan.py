"""Exact search by a similarity that is no inner product: the query is compared with every vector in NumPy."""

from abc import ABC, abstractmethod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.exact import ExactView
from index.vectors.protocol import Vectors

# Vectors that are compared at once: what is computed of them stays in the processor's cache.
_BLOCK: Final = 4096


class ScanView(ExactView, ABC):
    """All vectors, compared with the query block by block; the best are ranked as `ExactView` ranks them."""

    @abstractmethod
    def _rough_scores(self, query: Vectors, vectors: Vectors) -> Vectors:
        """Return the scores (N,) of vectors (N, D) in float32; `_scores` has them exactly."""

    def _candidates(self, query: Vectors, count: int, among: NDArray[np.int64] | None) -> NDArray[np.int64]:
        positions = np.arange(len(self)) if among is None else among
        if count == len(positions):
            return positions
        stored = self._stored()
        scores = np.empty(len(positions), dtype=np.float32)
        for start in range(0, len(positions), _BLOCK):
            block = slice(start, start + _BLOCK)
            # A slice of what is stored needs no copy; the places that a filter allows do.
            vectors = stored[block] if among is None else stored[among[block]]
            scores[block] = self._rough_scores(query, vectors)
        return positions[np.argpartition(-scores, count)[:count]]
