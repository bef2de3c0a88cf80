"""A copy of all vectors on a GPU, scanned there by FAISS."""

import logging
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from index.vectors.filter_mask import FilterMask
from index.vectors.protocol import Vectors
from index.vectors.storage.vector_store import Found

# FAISS gives at most so many of the nearest from a GPU.
_MOST_FOUND: Final = 2048

_log = logging.getLogger(__name__)


class GpuScan:
    """float16 vectors in one of FAISS's flat indexes on a GPU, which `new_index` makes.

    Searches that need more than 2,048 rows, dead and filtered ones included, are scanned by the CPU.

    Attributes:
        failed: Whether the GPU failed, so that everything is scanned by the CPU.
    """

    def __init__(self, dim: int, new_index: Callable[[int], Any]) -> None:
        self._index = new_index(dim)
        self.failed = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._index.ntotal)

    @property
    def device_bytes(self) -> int:
        """Memory that the vectors hold on the GPU."""
        return 2 * len(self) * int(self._index.d)

    def add(self, vectors: Vectors) -> None:
        """Append vectors (N, D).

        Raises:
            RuntimeError: The GPU does not take them.
        """
        if len(vectors):
            self._index.add(np.ascontiguousarray(vectors))

    def nearest(self, query: Vectors, count: int, passing: FilterMask) -> Found | None:
        """Return the `count` largest inner products of rows that pass with a query (D,), and the rows.

        None where only the CPU can scan.
        """
        wanted = count + len(passing.mask) - passing.count
        if self.failed or wanted > min(_MOST_FOUND, len(self)) or len(passing.mask) != len(self):
            return None
        try:
            (products,), (rows,) = self._index.search(query[None], wanted)
        except RuntimeError as error:
            self.give_up(error)
            return None
        passed = passing.mask[rows]
        return products[passed][:count], rows[passed][:count]

    def give_up(self, error: RuntimeError) -> None:
        """Leave everything to the CPU from now on."""
        self.failed = True
        _log.warning("vectors are scanned by the CPU from now on, as the GPU failed: %s", error)
