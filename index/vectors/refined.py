"""Rows that codes name, ranked by their stored vectors inside FAISS."""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np

from index.planner import Probe, ViewName
from index.vectors.codes import Codes, list_count
from index.vectors.half import HalfRows
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.threads import cores, use_threads

# Settings that are kept, with the selectors in them.
_REMEMBERED: Final = 16


class RefinedCodes:
    """Codes of rows, and the rows."""

    name: ViewName = "ivf"

    def __init__(self, codes: Codes, rows: HalfRows) -> None:
        library: Any = faiss
        self._codes, self._rows = codes, rows
        # Made of both at once, it refuses codes behind which more rows were added.
        empty = library.IndexFlatIP(codes.dim)
        self._index: Any = library.IndexRefine(empty, empty)
        # To make them takes as long as to search some lists.
        self._parameters = lru_cache(_REMEMBERED)(_parameters)
        self.settle(rows)

    def __len__(self) -> int:
        """Return the number of rows that have codes."""
        return len(self._codes)

    @property
    def lists(self) -> int:
        """Number of lists."""
        return self._codes.lists

    @property
    def memory_bytes(self) -> int:
        """Memory that the codes hold."""
        return self._codes.memory_bytes

    def learn(self, vectors: Vectors) -> None:
        """Code the vectors (N, D) of the next rows; see `Finder`."""
        self._codes.add(vectors)
        self._index.ntotal = len(self._codes)

    def settle(self, rows: HalfRows) -> None:
        """Use these rows; see `Finder`."""
        self._rows = rows
        self._index.base_index, self._index.refine_index = self._codes.index, rows.index
        self._index.ntotal = len(self._codes)

    def append(self, vectors: Vectors) -> None:
        """Append vectors (N, D) to the rows and code them; see `Finder`."""
        self._rows.add(vectors)
        self.learn(vectors)

    @property
    def outgrown(self) -> bool:
        """Whether so many rows need many more lists."""
        return list_count(len(self)) > 2 * self.lists

    def write(self, path: Path) -> None:
        """Write the codes into a file."""
        self._codes.write(path)

    @classmethod
    def read(cls, path: Path, rows: HalfRows) -> "RefinedCodes":
        """Return what `write` put into a file, for these rows.

        Raises:
            ValueError: It holds no codes of them.
        """
        codes = Codes.read(path)
        if (codes.dim, len(codes)) != (rows.dim, len(rows)):
            raise ValueError("the files do not hold one code for each vector")
        return cls(codes, rows)

    def search(self, queries: Vectors, probe: Probe) -> Rows:
        """Return the likely nearest rows (Q, C) by their codes alone; see `Finder`."""
        return self._codes.search(queries, probe.lists, probe.candidates)

    def nearest(
        self, queries: Vectors, count: int, probe: Probe, selector: Any = None
    ) -> tuple[Vectors, Rows]:
        """Return inner products and rows (Q, count); see `Finder`."""
        use_threads(cores() if len(queries) > 1 else 1)
        parameters = self._parameters(probe.lists, probe.candidates, count, selector)
        products, rows = self._index.search(np.ascontiguousarray(queries), count, params=parameters)
        return products, rows


def _parameters(lists: int, candidates: int, count: int, selector: Any) -> Any:
    library: Any = faiss
    inverted = library.SearchParametersIVF(nprobe=lists, sel=selector)
    return library.IndexRefineSearchParameters(
        k_factor=max(1.0, candidates / count),
        base_index_params=library.SearchParametersPreTransform(index_params=inverted),
    )
