"""Exact search among vectors without a sign, such as QUEST's normals: an opposite is the same."""

import numpy as np
from numpy.typing import NDArray

from index.vectors.flat.flat_view import FlatView
from index.vectors.protocol import Vectors


class UnsignedView(FlatView):
    """All vectors, compared with the query by |cosine|."""

    def _rough_scores(self, query: Vectors, vectors: Vectors) -> Vectors:
        rough: Vectors = np.abs(vectors @ query)
        return rough

    def _scores(self, query: Vectors, vectors: Vectors) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = np.abs(np.vecdot(vectors.astype(np.float64), query.astype(np.float64)))
        return scores
