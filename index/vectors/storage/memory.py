"""Vectors in memory, scanned by FAISS."""

from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np

from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import Rows
from index.vectors.protocol import Vectors
from index.vectors.storage.faiss_rows import Float16Array, Found, empty_index, memory_of, read_count, resize
from index.vectors.storage.huge_pages import use_huge_pages
from index.vectors.storage.vector_store import VectorStore

# Memory for rows that are read, and for some that come later.
_ROOM: Final = 33 / 32


class MemoryStore(VectorStore):
    """Rows in the memory of one of FAISS's indexes."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self._index = empty_index(dim)
        self._held = memory_of(self._index)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._index.ntotal)

    @property
    def memory_bytes(self) -> int:
        """Memory that the rows hold."""
        return len(self) * self.dim * 2

    @property
    def held(self) -> Float16Array:
        """The rows (N, D) themselves, until one is added."""
        return self._held

    def append(self, vectors: Float16Array) -> None:
        """Append vectors (N, D) as they are stored."""
        try:
            if len(vectors):
                self._index.add_sa_codes(vectors.view(np.uint8))
        finally:
            self._held = memory_of(self._index)

    def take(self, rows: Rows, out: Float16Array) -> None:
        """Copy these rows into `out` (N, D); see `VectorStore`."""
        # Valid rows need no check, and mode "clip" copies them once only.
        np.take(self._held, rows, axis=0, out=out, mode="clip")

    def read(self, path: Path) -> None:
        """Take the rows of a file in place of those here; see `VectorStore`."""
        index = empty_index(self.dim)
        with path.open("rb") as file:
            count = read_count(file, self.dim)
            # Without room, the first vector appended would have all of them copied, while searches wait.
            resize(index, int(_ROOM * count))
            resize(index, count)
            held = memory_of(index)
            if file.readinto(held.data) != held.nbytes:
                raise ValueError("the file ends before its rows do")
        self._index, self._held = index, held
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
        (products,), (rows,) = self._index.search(query[None], count, params=parameters)
        return products[rows >= 0], rows[rows >= 0]
