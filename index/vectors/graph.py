"""A graph of near vectors: each search walks towards its query (HNSW: Malkov and Yashunin 2016)."""

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np

from index.planner import GRAPH_LINKS, Probe, ViewName
from index.vectors.half import HalfRows
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import empty_index
from index.vectors.threads import cores, use_threads

# How many near vectors are looked at for the links of a new one.
_EFFORT: Final = 128
# Candidates of a search stand in for lists, so that there is one way to plan both.
_LISTS: Final = 4
_REMEMBERED: Final = 16
# Vectors from which on several threads are worth their start.
_WORTH_THREADS: Final = 500


class Graph:
    """Links between rows; until `settle` it has a copy of them, so that it can be built beside writes.

    Args:
        index: FAISS's index of the links and the copy.
        rows: Whose vectors these are.
    """

    name: ViewName = "hnsw"
    lists = _LISTS
    ranked = sys.maxsize

    def __init__(self, index: Any, rows: HalfRows) -> None:
        self._index = index
        self._rows = rows
        self._parameters = lru_cache(_REMEMBERED)(_parameters)

    @classmethod
    def empty(cls, rows: HalfRows) -> "Graph":
        """Return a graph that has learnt none of some rows."""
        library: Any = faiss
        index = library.IndexHNSW(empty_index(rows.dim), GRAPH_LINKS)
        index.hnsw.efConstruction = _EFFORT
        return cls(index, rows)

    def __len__(self) -> int:
        """Return the number of rows that it knows."""
        return int(self._index.ntotal)

    @property
    def memory_bytes(self) -> int:
        """Memory that the links hold."""
        hnsw = self._index.hnsw
        return int(4 * hnsw.neighbors.size() + 8 * hnsw.offsets.size() + 4 * hnsw.levels.size())

    def search(self, queries: Vectors, probe: Probe) -> Rows:
        """Return the likely nearest rows (Q, C); see `Finder`."""
        return self._search(queries, probe.candidates, probe.candidates, None)[1]

    def nearest(
        self, queries: Vectors, count: int, probe: Probe, selector: Any = None
    ) -> tuple[Vectors, Rows]:
        """Return inner products and rows (Q, count); see `Finder`."""
        return self._search(queries, count, probe.candidates, selector)

    def learn(self, vectors: Vectors) -> None:
        """Link the vectors (N, D) of the next rows; see `Finder`."""
        use_threads(cores() if len(vectors) >= _WORTH_THREADS else 1)
        self._index.add(np.ascontiguousarray(vectors))

    def settle(self, vectors: Vectors) -> None:
        """Link vectors (N, D) and use the rows in place of the copy; see `Finder`."""
        if len(vectors):
            self.learn(vectors)
        self._index.storage = self._rows.index

    def append(self, vectors: Vectors) -> None:
        """Append vectors (N, D) to the rows and link them; see `Finder`."""
        with self._rows.grown():
            # FAISS rounds otherwise than NumPy, but leaves alone what is rounded.
            self.learn(vectors.astype("<f2").astype(np.float32))

    def with_learnt(self, vectors: Vectors, selector: Any = None) -> None:
        """Return nothing: a row is linked to those near it when it comes, whatever they are."""

    @property
    def outgrown(self) -> bool:
        """Never: it grows with its rows."""
        return False

    def flat(self, sample: Vectors) -> None:
        """Return nothing: it makes no codes."""

    def write(self, path: Path) -> None:
        """Write the links into a file."""
        library: Any = faiss
        library.write_index(self._index, str(path), faiss.IO_FLAG_SKIP_STORAGE)

    @classmethod
    def read(cls, path: Path, rows: HalfRows) -> "Graph":
        """Return what `write` put into a file, for these rows.

        Raises:
            ValueError: It holds no graph of them.
        """
        index: Any = faiss.read_index(str(path), faiss.IO_FLAG_SKIP_STORAGE)
        if not isinstance(index, faiss.IndexHNSW) or (index.d, index.ntotal) != (rows.dim, len(rows)):
            raise ValueError("the file holds no graph of these vectors")
        graph = cls(index, rows)
        graph.settle(np.empty((0, rows.dim), dtype=np.float32))
        return graph

    def _search(self, queries: Vectors, count: int, candidates: int, selector: Any) -> tuple[Vectors, Rows]:
        use_threads(cores() if len(queries) > 1 else 1)
        parameters = self._parameters(max(count, candidates), selector)
        products, rows = self._index.search(np.ascontiguousarray(queries), count, params=parameters)
        return products, rows


def _parameters(candidates: int, selector: Any) -> Any:
    library: Any = faiss
    return library.SearchParametersHNSW(efSearch=candidates, sel=selector)
