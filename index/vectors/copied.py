"""The vectors that pass a filter, side by side: few, so that nothing is asked of FAISS."""

from typing import Final

import numpy as np

from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import behind, best_first, cosines

# An inner product that is summed up in float32 is off by at most this for each number.
_ROUNDING: Final = 2.0**-24


class CopiedVectors:
    """Vectors (N, D) of length one under their keys (N,), compared with a query one by one.

    They are float32: to widen float16 would take longer than to compare it. One thread does it, as BLAS's
    wait for each other whenever other work has the cores.
    """

    def __init__(self, keys: Keys, vectors: Vectors) -> None:
        self._keys = keys
        self._vectors = vectors
        # Of two inner products, each off by so much.
        self._margin = np.float32(2 * _ROUNDING * vectors.shape[1])

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors and keys hold."""
        return self._keys.nbytes + self._vectors.nbytes

    def search(self, query: Vectors, k: int, after: After | None = None) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,) of length one, exactly; see `VectorView`."""
        products = np.vecdot(self._vectors, query)
        rank = k if after is None else k + after.rank
        while True:
            places = self._reaching(products, rank)
            keys, scores = best_first(self._keys[places], cosines(query, self._vectors[places]))
            first = behind(keys, scores, after)
            # Others than before may lie on the pages before by now.
            if first + k <= rank or len(places) == len(self._keys):
                return Neighbours(keys[first : first + k], scores[first : first + k], exact=True)
            rank = first + k

    def _reaching(self, products: Vectors, rank: int) -> Keys:
        """Return the places of all vectors that may be among the nearest, down to a rank."""
        if rank >= len(products):
            return np.arange(len(products))
        last = np.partition(products, -rank)[-rank]
        return np.flatnonzero(products >= last - self._margin)
