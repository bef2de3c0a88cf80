"""Short codes of some of the vectors, in no lists: a search scans all of them."""

from typing import Any, Final

import faiss

from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.threads import use_threads

# Of so many vectors the codes are learnt: 16 values for each two numbers.
TRAINED_ON: Final = 4096
_VALUES: Final = 16
_ITERATIONS: Final = 8


class FlatCodes:
    """Codes by place, 4 bits for every two numbers as in `Codes`, but of whole vectors.

    Args:
        rotated: FAISS's index that begins with a transform of vectors into the numbers that are coded.
        sample: Vectors (S, D) to learn from.
    """

    def __init__(self, rotated: Any, sample: Vectors) -> None:
        library: Any = faiss
        # The transform is its own, and lives as long.
        self._rotated = rotated
        rotation = rotated.chain.at(0)
        kept = rotation.d_out
        self._codes = library.IndexPQFastScan(kept, kept // 2, 4, faiss.METRIC_INNER_PRODUCT)
        self._codes.pq.cp.niter = _ITERATIONS
        self._codes.pq.cp.min_points_per_centroid = 1
        self._codes.pq.cp.max_points_per_centroid = TRAINED_ON // _VALUES
        self._index = library.IndexPreTransform(rotation, self._codes)
        # What all have in common would take up the range of the codes, and changes no order.
        self._mean = sample.mean(axis=0)
        use_threads(1)
        self._index.train(sample - self._mean)

    def __len__(self) -> int:
        """Return the number of codes."""
        return int(self._codes.ntotal)

    @property
    def memory_bytes(self) -> int:
        """Memory that the codes hold."""
        return len(self) * int(self._codes.code_size)

    def add(self, vectors: Vectors) -> None:
        """Append vectors (N, D)."""
        use_threads(1)
        self._index.add(vectors - self._mean)

    def search(self, queries: Vectors, candidates: int) -> Rows:
        """Return the places (Q, C) of the likely nearest to queries (Q, D), likeliest first; -1 for none."""
        use_threads(1)
        places: Rows = self._index.search(queries, min(candidates, len(self)))[1]
        return places
