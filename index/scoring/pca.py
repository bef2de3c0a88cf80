"""Scores of a query with many vectors, told from the directions in which these vary."""

import math
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.protocol import Vectors
from index.vectors.threads import use_threads

_EPSILON: Final = 1e-12
# Directions are among the first if scores vary by more along them than this share of what they usually do.
_FIRST: Final = 0.06
# Largest share of variance of the omitted directions: half of it changes the spread by half a percent.
_LEFT_OUT: Final = 0.02


class PrincipalComponents:
    """The directions in which vectors vary, by which a query's scores are told without the vectors.

    Args:
        mean: Mean (D,) of the vectors.
        directions: (R, D), of length one and at right angles.
        variances: Along each (R,), falling.
    """

    def __init__(self, mean: Vectors, directions: Vectors, variances: NDArray[np.float32]) -> None:
        self._all = directions, variances
        # Expected variance of the scores of queries that are distributed like the vectors.
        usual = np.square(variances).sum() / max(variances.sum(), _EPSILON)
        few = int(np.count_nonzero(variances > _FIRST * usual))
        self._rows = np.vstack((directions[:few], mean))
        self._weights = np.stack((variances[:few], np.ones(few, dtype=np.float32)))
        self._next = float(variances[few]) if few < len(variances) else 0.0

    @classmethod
    def of(cls, vectors: Vectors, mean: Vectors) -> "PrincipalComponents":
        """Return those of vectors (N, D) with this mean (D,)."""
        library: Any = faiss
        # NumPy's would take seconds wherever other work has the cores.
        use_threads(1)
        found = library.PCAMatrix(vectors.shape[1], min(vectors.shape))
        # Centred first: a mean much longer than the deviations would cost digits.
        found.train(vectors - mean)
        variances = np.maximum(library.vector_to_array(found.eigenvalues) / np.float32(len(vectors)), 0)
        directions = library.vector_to_array(found.PCAMat).reshape(-1, vectors.shape[1])
        return cls(mean, directions[: len(variances)], variances[: len(directions)])

    def scores(self, query: Vectors) -> tuple[float, float]:
        """Return the mean of a query's (D,) scores and their standard deviation, to half a percent.

        The query has length one. The first directions tell of nearly all; all are taken where what the
        others may add matters, as for queries of another kind. BLAS would take several threads for the
        products, which wait for each other whenever other work has the cores.
        """
        products = np.vecdot(self._rows, query)
        along = products[:-1]
        known, shares = np.vecdot(self._weights, along * along).tolist()
        others = max(0.0, 1 - shares) * self._next
        if others > _LEFT_OUT * known:
            directions, variances = self._all
            known, others = float(np.vecdot(np.square(np.vecdot(directions, query)), variances)), 0.0
        return float(products[-1]), math.sqrt(known + others / 2)
