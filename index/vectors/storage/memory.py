"""Vectors in memory, scanned by FAISS."""

import ctypes
import mmap
import sys
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import Rows
from index.vectors.protocol import Vectors
from index.vectors.storage.vector_store import (
    Float16Array,
    Found,
    VectorStore,
    memory_of,
    read_count,
    resize,
    zero_index,
)

# Minimum size of an array that gains from huge pages.
_WORTHWHILE: Final = 32 * 1024**2
# Since Linux 6.1; Python's mmap has no name for it.
_MADV_COLLAPSE: Final = 25
# Memory for rows that are read, and for some that come later.
_ROOM: Final = 33 / 32


class MemoryStore(VectorStore):
    """Rows in the memory of one of FAISS's indexes.

    Attributes:
        index: FAISS's index of the rows, until one is added.
        held: The rows (N, D) themselves, until one is added.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.index = zero_index(dim)
        self.held = memory_of(self.index)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.index.ntotal)

    @property
    def memory_bytes(self) -> int:
        """Memory that the rows hold."""
        return len(self) * self.dim * 2

    def append(self, vectors: Float16Array) -> None:
        """Append vectors (N, D) as they are stored."""
        try:
            if len(vectors):
                self.index.add_sa_codes(vectors.view(np.uint8))
        finally:
            self.held = memory_of(self.index)

    def take(self, rows: Rows, out: Float16Array) -> None:
        """Copy these rows into `out` (N, D); see `VectorStore`."""
        # Valid rows need no check, and mode "clip" copies them once only.
        np.take(self.held, rows, axis=0, out=out, mode="clip")

    def read(self, path: Path) -> None:
        """Take the rows of a file in place of those here; see `VectorStore`."""
        index = zero_index(self.dim)
        with path.open("rb") as file:
            count = read_count(file, self.dim)
            # Without room, the first vector appended would have all of them copied, while searches wait.
            resize(index, int(_ROOM * count))
            resize(index, count)
            held = memory_of(index)
            if file.readinto(held.data) != held.nbytes:
                raise ValueError("the file ends before its rows do")
        self.index, self.held = index, held
        use_huge_pages(held)

    def _scan(self, query: Vectors, count: int, passing: FilterMask, start: int, stop: int) -> Found:
        library: Any = faiss
        if passing.bits is None:
            chosen = library.IDSelectorRange(start, stop)
        else:
            bits = np.zeros_like(passing.bits)
            part = slice(start // 8, -(-stop // 8))
            bits[part] = passing.bits[part]
            chosen = library.IDSelectorBitmap(bits)
        parameters = library.SearchParameters(sel=chosen)
        (products,), (rows,) = self.index.search(query[None], count, params=parameters)
        return products[rows >= 0], rows[rows >= 0]


def use_huge_pages(memory: NDArray[Any]) -> None:
    """Move memory to pages of 2 MB if the system has some, while others read and write it.

    Candidates lie anywhere: with pages of 4 kB the processor looks nearly each page up in memory first, and a
    search takes twice as long (measured). Neither FAISS nor Python's allocator asks for huge pages.
    """
    if sys.platform != "linux" or memory.nbytes < _WORTHWHILE:
        return
    start, stop = memory.ctypes.data, memory.ctypes.data + memory.nbytes
    first, last = -(-start // mmap.PAGESIZE), stop // mmap.PAGESIZE
    ctypes.CDLL(None).madvise(
        ctypes.c_void_p(first * mmap.PAGESIZE),
        ctypes.c_size_t((last - first) * mmap.PAGESIZE),
        ctypes.c_int(_MADV_COLLAPSE),
    )
