"""Rows of float16 vectors, as the catalogue has them, wherever they are stored."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import faiss
import numpy as np

from index.vectors.codec import unit, widened
from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.storage.faiss_rows import Float16Array, Found, best_of_parts
from index.vectors.storage.scratch import SCRATCH_ROWS, Scratch
from index.vectors.threads import cores, scanners, use_threads

Guard = Callable[[], AbstractContextManager[None]]

# Below so many comparisons one thread is done before others have begun.
_WORTH_THREADS: Final = 20_000
# Stepping over a row costs this share of comparing it (measured).
_SKIPPED: Final = 0.04
# Up to this share of all rows, those that pass are copied out instead of picked during a scan (measured).
_GATHERED: Final = 0.1
# Rows that are compared with many queries at once, or written.
_BLOCK: Final = 16_384
# Half a unit in the last of a float16's 11 digits, and half the smallest number there is.
_ROUNDING: Final = 2.0**-11
_SMALLEST: Final = 2.0**-25
# FAISS sums up in float32.
_SUMMATION: Final = 1e-5


class VectorStore(ABC):
    """Vectors (N, D) in float16; rows are only appended. Its owner keeps readers and writers apart.

    Args:
        dim: Length of a vector.
        scratch: Shared by all stores of a process.

    Attributes:
        error: Upper bound of the difference between an inner product that a scan finds and the cosine.
        damaged: Whether the file below was damaged since: the rows must be read anew.
    """

    damaged = False

    def __init__(self, dim: int, scratch: Scratch | None = None) -> None:
        self.dim = dim
        self.scratch = scratch or Scratch()
        # Product and cosine differ by the length of the rounded vector: that of a unit vector is off by this.
        self.error = _ROUNDING + _SMALLEST * math.sqrt(dim) + _SUMMATION

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Memory that the rows hold."""

    @property
    def index(self) -> Any | None:
        """FAISS's index of the rows, until one is added; None where they are not in memory."""
        return None

    @abstractmethod
    def fresh(self) -> Self:
        """Return an empty store of the same kind."""

    @abstractmethod
    def keep(self, alive: Mask) -> None:
        """Let go of all other rows; those behind them move up."""

    @abstractmethod
    def read(self, path: Path) -> None:
        """Take the rows of a file in place of those here.

        Raises:
            ValueError: It does not hold float16 rows of this dimension.
        """

    @abstractmethod
    def append(self, vectors: Float16Array) -> None:
        """Append vectors (N, D) as they are stored."""

    @abstractmethod
    def take(self, rows: Rows, out: Float16Array) -> None:
        """Copy these rows, which are there, into `out` (N, D)."""

    @abstractmethod
    def _scan(self, query: Vectors, count: int, passing: FilterMask, start: int, stop: int) -> Found:
        """Return the `count` best of the rows that pass from `start`, a multiple of 8, to `stop`."""

    def add(self, vectors: Vectors) -> None:
        """Append vectors (N, D) of length one, but for rounding."""
        # FAISS rounds otherwise than NumPy, by which the catalogue's vectors come out again as they were.
        self.append(np.ascontiguousarray(vectors, dtype="<f2"))

    def get(self, rows: Rows) -> Vectors:
        """Return the vectors (N, D) of these rows, exactly of length one."""
        return unit(self.rounded(rows))

    def rounded(self, rows: Rows) -> Vectors:
        """Return the vectors (N, D) of these rows as they were rounded."""
        return widened(self.halves(rows))

    def halves(self, rows: Rows) -> Float16Array:
        """Return these rows (N, D) as they are stored."""
        taken = np.empty((len(rows), self.dim), dtype="<f2")
        self.take(rows, taken)
        return taken

    def blocks(self, alive: Mask | None = None) -> Iterator[Float16Array]:
        """Give all rows or those alive, some at a time, as they are stored."""
        for start in range(0, len(self), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(self)))
            yield self.halves(rows if alive is None else rows[alive[rows]])

    def nearest(self, query: Vectors, count: int, passing: FilterMask) -> Found:
        """Return the `count` largest inner products of rows that pass with a query (D,), and the rows.

        They are in no order; fewer come back only when fewer pass.
        """
        if passing.count <= _GATHERED * len(self):
            return self._nearest_of(query, count, passing.rows)
        scan = partial(self._scan, query, count, passing)
        # Whole bytes of bits.
        work = passing.count + len(self) * _SKIPPED
        return self._in_parts(scan, count, len(self), work, 8)

    def _nearest_of(self, query: Vectors, count: int, rows: Rows) -> Found:
        """Return the `count` largest inner products of these rows with a query (D,), and the rows."""

        def compare(start: int, stop: int) -> Found:
            products, places = self.best_of(query, count, rows[start:stop])
            return products, start + places

        products, places = self._in_parts(compare, count, len(rows), len(rows), 1)
        return products, rows[places]

    def _in_parts(
        self, scan: Callable[[int, int], Found], count: int, total: int, work: float, step: int
    ) -> Found:
        """Return the `count` best that scans from one place to another find, one part on each core.

        Args:
            scan: Does a part.
            count: How many are wanted.
            total: Number of places.
            work: To how many comparisons all of it amounts.
            step: Parts begin at multiples of it.
        """
        parts = cores() if work >= _WORTH_THREADS else 1
        edges = [total * part // parts // step * step for part in range(parts)] + [total]
        if parts == 1:
            use_threads(1)
            return scan(*edges)
        return best_of_parts(list(scanners().map(scan, edges[:-1], edges[1:])), count)

    def best_of(self, query: Vectors, count: int, rows: Rows) -> Found:
        """Return the `count` largest inner products with these rows, and their places, best first."""
        use_threads(1)
        found = []
        for start in range(0, max(1, len(rows)), SCRATCH_ROWS):
            products, places = self._compared(query, count, rows[start : start + SCRATCH_ROWS])
            found.append((products, start + places))
        if len(found) == 1:
            return found[0]
        products, places = best_of_parts(found, count)
        order = np.argsort(-products, kind="stable")
        return products[order], places[order]

    def _compared(self, query: Vectors, count: int, rows: Rows) -> Found:
        """Compare a query (D,) with at most `SCRATCH_ROWS` rows; see `best_of`."""
        if not len(rows):
            return np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
        index, halves = self.scratch.of(self.dim)
        self.take(rows, halves[: len(rows)])
        index.ntotal = len(rows)
        found = min(count, len(rows))
        products, places = np.empty(found, dtype=np.float32), np.empty(found, dtype=np.int64)
        # FAISS's Python layer takes half as long as the comparison.
        query = np.ascontiguousarray(query, dtype=np.float32)
        library: Any = faiss
        best = library.swig_ptr(products), library.swig_ptr(places)
        index.search_c(1, library.swig_ptr(query), found, *best)
        return products, places

    def nearest_many(
        self,
        queries: Vectors,
        count: int,
        among: Mask,
        guard: Guard = nullcontext,
        threads: int | None = None,
    ) -> Rows:
        """Return the nearest rows (Q, count) of each query (Q, D), best first; -1 where there are fewer.

        Args:
            queries: What to search for.
            count: How many rows for each.
            among: Which of the first rows (N,) may be found.
            guard: Held whenever rows are read, and let go in between.
            threads: On how many; by default on all cores where that is worth it.
        """
        library: Any = faiss
        use_threads(threads or (cores() if len(among) >= _WORTH_THREADS else 1))
        best = np.full((len(queries), count), -np.inf, dtype=np.float32)
        rows = np.full((len(queries), count), -1, dtype=np.int64)
        for start in range(0, len(among), _BLOCK):
            block = start + np.flatnonzero(among[start : start + _BLOCK])
            if not len(block):
                continue
            with guard():
                vectors = self.rounded(block)
            scores, places = library.knn(
                queries, vectors, min(count, len(block)), metric=faiss.METRIC_INNER_PRODUCT
            )
            both = np.concatenate((best, scores), axis=1)
            chosen = np.argpartition(-both, count - 1, axis=1)[:, :count]
            rows = np.take_along_axis(np.concatenate((rows, block[places]), axis=1), chosen, axis=1)
            best = np.take_along_axis(both, chosen, axis=1)
        return np.take_along_axis(rows, np.argsort(-best, axis=1), axis=1)
