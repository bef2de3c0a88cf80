"""Rows that codes name, ranked by their stored vectors."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import faiss
import numpy as np

from index.planner import Probe, ViewName
from index.vectors.codes import Codes
from index.vectors.flat import FlatCodes
from index.vectors.half import HalfRows
from index.vectors.mapped import MappedRows
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import StoredRows
from index.vectors.threads import cores, use_threads

# Settings that are kept, with the selectors in them.
_REMEMBERED: Final = 16

_Stored = TypeVar("_Stored", bound=StoredRows)


class CodedRows(ABC, Generic[_Stored]):
    """Codes of rows, and the rows."""

    name: ClassVar[ViewName]
    ranked: ClassVar[int] = 0

    def __init__(self, codes: Codes, rows: _Stored) -> None:
        self._codes, self._rows = codes, rows

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

    def settle(self, vectors: Vectors) -> None:
        """Go on: there is no copy; see `Finder`."""

    def append(self, vectors: Vectors) -> None:
        """Append vectors (N, D) to the rows, without codes: these might not tell them apart; see `Finder`."""
        self._rows.add(vectors)

    def with_learnt(self, vectors: Vectors, selector: Any = None) -> Callable[[Vectors, Probe], Rows]:
        """Return a search by the codes of its rows and of vectors (N, D) beside them; see `Finder`."""
        both = self._codes.with_more(vectors, selector)
        return lambda queries, probe: both(queries, probe.lists, probe.candidates)

    @property
    def outgrown(self) -> bool:
        """Whether so many rows need many more lists."""
        return self._codes.outgrown

    def flat(self, sample: Vectors) -> FlatCodes:
        """Return codes that know no rows yet; see `Finder`."""
        return self._codes.flat(sample)

    def write(self, path: Path) -> None:
        """Write the codes into a file."""
        self._codes.write(path)

    @classmethod
    def read(cls, path: Path, rows: _Stored) -> Self:
        """Return what `write` put into a file, for these rows.

        Raises:
            ValueError: It holds no codes of them.
        """
        codes = Codes.read(path)
        if codes.dim != rows.dim or len(codes) > len(rows):
            raise ValueError("the files hold no codes of these vectors")
        return cls(codes, rows)

    def search(self, queries: Vectors, probe: Probe) -> Rows:
        """Return the likely nearest rows (Q, C) by their codes alone; see `Finder`."""
        return self._codes.search(queries, probe.lists, probe.candidates)

    @abstractmethod
    def nearest(
        self, queries: Vectors, count: int, probe: Probe, selector: Any = None
    ) -> tuple[Vectors, Rows]:
        """Return inner products and rows (Q, count); see `Finder`."""


class RefinedCodes(CodedRows[HalfRows]):
    """Rows in memory, ranked within FAISS."""

    name = "ivf"
    # So few take next to no time.
    ranked = 128

    def __init__(self, codes: Codes, rows: HalfRows) -> None:
        super().__init__(codes, rows)
        library: Any = faiss
        # Made of both at once, it refuses codes behind which more rows were added.
        empty = library.IndexFlatIP(codes.dim)
        self._index: Any = library.IndexRefine(empty, empty)
        self._index.base_index, self._index.refine_index = codes.index, rows.index
        self._index.ntotal = len(codes)
        # To make them takes as long as to search some lists.
        self._parameters = lru_cache(_REMEMBERED)(_parameters)

    def learn(self, vectors: Vectors) -> None:
        """Code the vectors (N, D) of the next rows; see `Finder`."""
        super().learn(vectors)
        self._index.ntotal = len(self._codes)

    def nearest(
        self, queries: Vectors, count: int, probe: Probe, selector: Any = None
    ) -> tuple[Vectors, Rows]:
        """Return inner products and rows (Q, count); see `Finder`."""
        use_threads(cores() if len(queries) > 1 else 1)
        parameters = self._parameters(probe.lists, probe.candidates, count, selector)
        products, rows = self._index.search(np.ascontiguousarray(queries), count, params=parameters)
        return products, rows

    def search(self, queries: Vectors, probe: Probe) -> Rows:
        """Return the likely nearest rows (Q, C); see `Finder`."""
        if probe.candidates <= self.ranked:
            return self.nearest(queries, probe.candidates, probe)[1]
        return super().search(queries, probe)


class MappedCodes(CodedRows[MappedRows]):
    """Rows in files, of which only the candidates are read."""

    name = "mapped"

    def nearest(
        self, queries: Vectors, count: int, probe: Probe, selector: Any = None
    ) -> tuple[Vectors, Rows]:
        """Return inner products and rows (Q, count); see `Finder`."""
        named = self._codes.search(queries, probe.lists, max(count, probe.candidates), selector)
        products = np.full((len(queries), count), -np.inf, dtype=np.float32)
        rows = np.full((len(queries), count), -1, dtype=np.int64)
        for place, (query, candidates) in enumerate(zip(queries, named, strict=True)):
            best, found = self._rows.best_of(query, count, candidates[candidates >= 0])
            order = np.argsort(-best)
            products[place, : len(order)], rows[place, : len(order)] = best[order], found[order]
        return products, rows


def _parameters(lists: int, candidates: int, count: int, selector: Any) -> Any:
    library: Any = faiss
    inverted = library.SearchParametersIVF(nprobe=lists, sel=selector)
    return library.IndexRefineSearchParameters(
        k_factor=max(1.0, candidates / count),
        base_index_params=library.SearchParametersPreTransform(index_params=inverted),
    )
