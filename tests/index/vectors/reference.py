"""Search by comparing everything, in a few lines of NumPy: what every view is tested against."""

import numpy as np
from numpy.typing import NDArray

from index.vectors.protocol import After, Keys, Neighbours, Vectors


class ReferenceView:
    """A view that is slow and plainly right, of vectors with or without a sign or of k-blades."""

    def __init__(self, dim: int, blades: int = 1, *, unsigned: bool = False) -> None:
        self.dim = dim
        self.blades = blades
        self.unsigned = unsigned
        self._vectors: dict[int, Vectors] = {}
        self._ordered: tuple[Keys, Vectors] | None = None

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._vectors)

    @property
    def memory_bytes(self) -> int:
        """Memory that the vectors hold."""
        return sum(vector.nbytes for vector in self._vectors.values())

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Put in vectors (N, D) under keys (N,), replacing those of keys already there."""
        for key, vector in zip(keys.tolist(), vectors, strict=True):
            self._vectors[key] = vector.copy()
        self._ordered = None

    def remove(self, keys: Keys) -> None:
        """Take out the vectors of these keys."""
        for key in keys.tolist():
            self._vectors.pop(key, None)
        self._ordered = None

    def keys(self) -> Keys:
        """Return all keys, rising."""
        return np.array(sorted(self._vectors), dtype=np.int64)

    def vectors(self, keys: Keys) -> Vectors:
        """Return the vectors (N, D) of keys (N,)."""
        return np.stack([self._vectors[key] for key in keys.tolist()])

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,)."""
        keys, vectors = self._in_order()
        if allowed is not None:
            passing = np.isin(keys, allowed)
            keys, vectors = keys[passing], vectors[passing]
        scores = self._scores(query, vectors)
        if after is not None:
            behind = (scores < after.score) | ((scores == after.score) & (keys > after.key))
            keys, scores = keys[behind], scores[behind]
        first = np.lexsort((keys, -scores))[:k]
        return Neighbours(keys=keys[first], scores=scores[first], exact=True)

    def scores(self, query: Vectors, keys: Keys) -> tuple[Keys, NDArray[np.float32]]:
        """Return the keys (N,) that the view holds, and their scores for a query (D,)."""
        stored = np.array([key for key in keys.tolist() if key in self._vectors], dtype=np.int64)
        return stored, self._scores(
            query, self.vectors(stored) if len(stored) else np.empty((0, self.dim), np.float32)
        )

    def search_many(self, queries: Vectors, k: int, *, allowed: Keys | None = None) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D)."""
        return [self.search(query, k, allowed=allowed) for query in queries]

    def _in_order(self) -> tuple[Keys, Vectors]:
        """All keys, rising, with their vectors."""
        if self._ordered is None:
            keys = self.keys()
            self._ordered = keys, self.vectors(keys) if len(keys) else np.empty((0, self.dim), np.float32)
        return self._ordered

    def _scores(self, query: Vectors, vectors: Vectors) -> NDArray[np.float32]:
        if self.blades == 1:
            scores = (vectors.astype(np.float64) @ query.astype(np.float64)).astype(np.float32)
        else:
            cosines = [blade_cosine(query, vector, self.blades) for vector in vectors]
            scores = np.array(cosines, dtype=np.float32)
        return np.abs(scores) if self.unsigned else scores


def blade_cosine(query: Vectors, vector: Vectors, blades: int) -> float:
    """Return det(A) / sqrt(det(B) det(C)) of two k-blades (k * D,), in float64 and rounded to float32.

    A are the products of the query's vectors with the other's, B and C those of each with itself. For k = 1
    and vectors of length one it is their inner product.
    """
    if blades == 1:
        return float(np.float32(np.dot(query.astype(np.float64), vector.astype(np.float64))))
    u, v = (blade.astype(np.float64).reshape(blades, -1) for blade in (query, vector))
    lengths = np.linalg.det(u @ u.T) * np.linalg.det(v @ v.T)
    return float(np.float32(np.linalg.det(u @ v.T) / np.sqrt(lengths)))
