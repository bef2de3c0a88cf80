"""A graph of near vectors: each search walks towards its query (HNSW: Malkov and Yashunin 2016)."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np

from index.vectors.codec import widened
from index.vectors.half import HalfRows
from index.vectors.planner import GRAPH_LINKS, Probe, ViewName
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.same_rows import SameRows, first_of_each
from index.vectors.stored import Halves, empty_index, memory_of
from index.vectors.threads import cores, use_threads

# How many near vectors are looked at for the links of a new one.
_EFFORT: Final = 128
# Candidates of a search stand in for lists, so that there is one way to plan both.
_LISTS: Final = 4
_REMEMBERED: Final = 16
# Nearest rows of which one may be the same as another; those that are nearly the same may be a little longer.
_LOOKED_AT: Final = 4
# Candidates of a search for one.
_EFFORT_FOR_SAME: Final = 32
# Vectors from which on several threads are worth their start.
_WORTH_THREADS: Final = 500
# The part of a snapshot that says which rows are the same.
_SAME: Final = "same"


class Graph:
    """Links between rows; until `settle` it has a copy of them, so that it can be built beside writes.

    Of rows that are the same one has links: with links to each other they would have none to any others, and
    no search would find a way to them.

    Args:
        index: FAISS's index of the links.
        rows: Whose vectors these are.
        stored: FAISS's index of the vectors: a copy, or the rows' own.
        same: Which of them are the same.
    """

    name: ViewName = "hnsw"
    lists = _LISTS

    def __init__(self, index: Any, rows: HalfRows, stored: Any, same: SameRows) -> None:
        self._index = index
        self._rows = rows
        self._store_in(stored)
        self._parameters = lru_cache(_REMEMBERED)(_parameters)
        self._same = same

    @classmethod
    def empty(cls, rows: HalfRows) -> "Graph":
        """Return a graph that has learnt none of some rows."""
        library: Any = faiss
        copy = empty_index(rows.dim)
        index = library.IndexHNSW(copy, GRAPH_LINKS)
        index.hnsw.efConstruction = _EFFORT
        return cls(index, rows, copy, SameRows())

    def __len__(self) -> int:
        """Return the number of rows that it knows."""
        return int(self._index.ntotal)

    @property
    def nested(self) -> bool:
        """False: who wants more comes farther; see `Finder`."""
        return False

    @property
    def memory_bytes(self) -> int:
        """Memory that the links hold."""
        hnsw = self._index.hnsw
        return int(4 * hnsw.neighbors.size() + 8 * hnsw.offsets.size() + 4 * hnsw.levels.size())

    def search(self, queries: Vectors, probe: Probe, threads: int | None = None) -> Rows:
        """Return the likely nearest rows (Q, C); see `Finder`."""
        use_threads(threads or (cores() if len(queries) > 1 else 1))
        linked = self._linked(queries, probe.candidates)
        return np.stack([self._same.with_others(found) for found in linked])

    def learn(self, vectors: Vectors) -> None:
        """Link the vectors (N, D) of the next rows; see `Finder`."""
        use_threads(cores() if len(vectors) >= _WORTH_THREADS else 1)
        halves = vectors.astype("<f2")
        places = np.arange(len(halves))
        rows, first = len(self) + places, first_of_each(halves)
        linked = self._linked_as(halves, _EFFORT_FOR_SAME)[first]
        linked = np.where(linked < 0, rows[first], linked)
        new = linked == rows
        for part in np.split(places, np.flatnonzero(np.diff(new)) + 1):
            self._append(np.ascontiguousarray(vectors[part]), with_links=bool(new[part].any()))
        self._same.add(linked[~new], rows[~new])

    def settle(self, vectors: Vectors) -> None:
        """Link vectors (N, D) and use the rows in place of the copy; see `Finder`."""
        if len(vectors):
            self.learn(vectors)
        self._store_in(self._rows.index)

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

    def write(self, folder: Path, stem: str) -> dict[str, Path]:
        """Write the links, and which rows are the same, into files of this folder, by part."""
        files = {part: folder / f"{stem}.{part}" for part in (self.name, _SAME)}
        library: Any = faiss
        library.write_index(self._index, str(files[self.name]), faiss.IO_FLAG_SKIP_STORAGE)
        self._same.write(files[_SAME])
        return files

    @classmethod
    def read(cls, files: Mapping[str, Path], rows: HalfRows) -> "Graph":
        """Return what `write` put into files, for these rows.

        Raises:
            ValueError: They hold no graph of them.
        """
        index: Any = faiss.read_index(str(files[cls.name]), faiss.IO_FLAG_SKIP_STORAGE)
        if not isinstance(index, faiss.IndexHNSW) or (index.d, index.ntotal) != (rows.dim, len(rows)):
            raise ValueError("the file holds no graph of these vectors")
        if _SAME not in files:
            raise ValueError("the files do not say which of the vectors are the same")
        return cls(index, rows, rows.index, SameRows.read(files[_SAME], len(rows)))

    def _store_in(self, stored: Any) -> None:
        self._stored = self._index.storage = stored
        # FAISS's Python layer would keep the copy that an index was made with.
        self._index.referenced_objects = [stored]

    def _linked(self, queries: Vectors, count: int, effort: int = 0) -> Rows:
        """Return the likely nearest linked rows (Q, count) to queries (Q, D)."""
        parameters = self._parameters(max(count, effort))
        rows: Rows = self._index.search(np.ascontiguousarray(queries), count, params=parameters)[1]
        return rows

    def _linked_as(self, halves: Halves, effort: int) -> Rows:
        """Return the linked rows (N,) that are the same as these (N, D); -1 where none is found."""
        if not len(self) or not len(halves):
            return np.full(len(halves), -1)
        near = self._linked(widened(halves), _LOOKED_AT, effort)
        # Until it is settled from its own copy: the rows may move meanwhile.
        known = memory_of(self._stored)[np.maximum(near, 0)]
        same = (known == halves[:, None]).all(axis=2) & (near >= 0)
        found: Rows = np.where(same.any(axis=1), near[np.arange(len(near)), same.argmax(axis=1)], -1)
        return found

    def _append(self, vectors: Vectors, *, with_links: bool) -> None:
        """Append rows (N, D), rounded already."""
        if with_links:
            self._index.add(vectors)
            return
        self._stored.add(vectors)
        self._index.hnsw.prepare_level_tab(len(vectors), False)
        self._index.ntotal = self._stored.ntotal


def _parameters(candidates: int) -> Any:
    library: Any = faiss
    return library.SearchParametersHNSW(efSearch=candidates)
