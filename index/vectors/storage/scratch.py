"""Room for a few vectors that are compared: new memory for each search would cost more than comparing."""

import threading
from typing import Any, Final

import numpy as np

from index.vectors.storage.faiss_rows import Float16Array, empty_index, memory_of

# Rows that fit.
SCRATCH_ROWS: Final = 512


class Scratch(threading.local):
    """For each thread one index of a few rows for each dimension, shared by all stores of a process."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, Float16Array]] = {}

    def of(self, dim: int) -> tuple[Any, Float16Array]:
        """Return FAISS's index of `SCRATCH_ROWS` float16 rows, and their memory (R, D)."""
        held = self._held.get(dim)
        if held is None:
            index = empty_index(dim)
            index.add_sa_codes(np.zeros((SCRATCH_ROWS, 2 * dim), dtype=np.uint8))
            held = self._held[dim] = (index, memory_of(index))
        return held
