"""Rows of float16 vectors, as the catalogue has them, wherever they are stored."""

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.codec import unit, widened
from index.vectors.passing import Bits, Passing
from index.vectors.positions import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.threads import cores, scanners, use_threads

if TYPE_CHECKING:
    from index.vectors.device import DeviceRows

Guard = Callable[[], AbstractContextManager[None]]
Halves = NDArray[np.float16]

# Below so many rows one thread is done before others have begun.
_WORTH_THREADS: Final = 20_000
# To step over a row takes this share of what it takes to compare it (measured).
_PASSED_OVER: Final = 0.04
# Up to this share of all rows, those that pass are copied out instead of picked during a scan (measured).
_GATHERED: Final = 0.01
# Rows that are copied at once.
COPIED: Final = 512
# Rows that are compared with many queries at once, or written.
_BLOCK: Final = 16_384
# Half a unit in the last of a float16's 11 digits, and half the smallest number there is.
_ROUNDING: Final = 2.0**-11
_SMALLEST: Final = 2.0**-25
# FAISS sums up in float32.
SUMMATION: Final = 1e-5


class StoredRows(ABC):
    """Vectors (N, D) in float16; rows are only appended. Its owner sees to it that nobody reads meanwhile.

    Attributes:
        dim: Length of a vector.
        error: Upper bound of the difference between an inner product that a scan finds and the cosine.
        damaged: Whether what they are stored in was damaged since: they must be read anew.
        device: The same rows on a GPU, which scans them, if there are any.
    """

    damaged = False
    device: "DeviceRows | None" = None

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.error = self._bound(SUMMATION)
        self._copies = _Copies(dim)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Memory that the rows hold."""

    @abstractmethod
    def fresh(self) -> Self:
        """Return no rows, stored in the same way."""

    @abstractmethod
    def drop_copies(self) -> None:
        """Let go of copies of all rows by which scans are faster, if there are any."""

    @abstractmethod
    def use_large_pages(self) -> None:
        """Have rows lie where they are taken fastest, while others read and append."""

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
    def append(self, vectors: Halves) -> None:
        """Append vectors (N, D) as they are stored."""

    @abstractmethod
    def take(self, rows: Rows, out: Halves) -> None:
        """Copy these rows, which are there, into `out` (N, D)."""

    @abstractmethod
    def _scan(self, query: Vectors, count: int, passing: Passing, start: int, stop: int) -> "Found":
        """Return the `count` best of the rows that pass from `start`, a multiple of 8, to `stop`."""

    def _bound(self, summation: float) -> float:
        """Return by how much an inner product whose sum is off by so much may be off the cosine."""
        # They differ by the length of the rounded vector; that of one of length one is off by at most this.
        return _ROUNDING + _SMALLEST * math.sqrt(self.dim) + summation

    def add(self, vectors: Vectors) -> None:
        """Append vectors (N, D) of length one, but for rounding."""
        # FAISS rounds otherwise than NumPy, by which the catalogue's vectors come out again as they were.
        self.append(np.ascontiguousarray(vectors, dtype="<f2"))

    def get(self, rows: Rows) -> Vectors:
        """Return the vectors (N, D) of these rows, exactly of length one."""
        return unit(self.rough(rows))

    def rough(self, rows: Rows) -> Vectors:
        """Return the vectors (N, D) of these rows as they were rounded."""
        return widened(self.halves(rows))

    def halves(self, rows: Rows) -> Halves:
        """Return these rows (N, D) as they are stored."""
        taken = np.empty((len(rows), self.dim), dtype="<f2")
        self.take(rows, taken)
        return taken

    def blocks(self, alive: Mask | None = None) -> Iterator[Halves]:
        """Give all rows or those alive, some at a time, as they are stored."""
        for start in range(0, len(self), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(self)))
            yield self.halves(rows if alive is None else rows[alive[rows]])

    def nearest(self, query: Vectors, count: int, passing: Passing) -> Rows:
        """Return the `count` rows of those that pass with the largest inner products with a query (D,).

        They are in no order; fewer come back only when fewer pass.
        """
        if passing.count <= _GATHERED * len(self):
            return self.nearest_of(query, count, passing.rows)
        return self._nearest(query, count, passing)

    def _nearest(self, query: Vectors, count: int, passing: Passing) -> Rows:
        """Return the nearest of rows of which many pass; see `nearest`."""
        scan = partial(self._scan, query, count, passing)
        return self._in_parts(scan, count, len(self), self._work(passing))[1]

    def _work(self, passing: Passing) -> float:
        """Return to how many comparisons a scan for those that pass amounts."""
        return passing.count + len(self) * _PASSED_OVER

    def _in_parts(self, scan: Callable[[int, int], "Found"], count: int, total: int, work: float) -> "Found":
        """Return the `count` best that scans from one of `total` rows to another find, one on each core.

        Args:
            scan: Does a part.
            count: How many are wanted.
            total: How many rows there are.
            work: To how many comparisons all of it amounts.
        """
        parts = cores() if work >= _WORTH_THREADS else 1
        # Whole bytes of bits.
        edges = [total * part // parts // 8 * 8 for part in range(parts)] + [total]
        if parts == 1:
            use_threads(1)
            return scan(*edges)
        return _best(list(scanners().map(scan, edges[:-1], edges[1:])), count)

    def nearest_of(self, query: Vectors, count: int, rows: Rows) -> Rows:
        """Return the `count` of these rows with the largest inner products with a query (D,), in no order."""
        return rows if len(rows) <= count else rows[self.best_of(query, count, rows)[1]]

    def best_of(self, query: Vectors, count: int, rows: Rows) -> "Found":
        """Return the `count` largest inner products with these rows, and their places, best first."""
        use_threads(1)
        if 0 < len(rows) <= COPIED:
            return self._compared(query, count, rows)
        found = []
        for start in range(0, len(rows), COPIED):
            products, places = self._compared(query, count, rows[start : start + COPIED])
            found.append((products, start + places))
        products, places = _best(found, count)
        order = np.argsort(-products)
        return products[order], places[order]

    def _compared(self, query: Vectors, count: int, rows: Rows) -> "Found":
        """Compare a query (D,) with at most `COPIED` rows; see `best_of`."""
        copies = self._copies
        self.take(rows, copies.rows[: len(rows)])
        copies.index.ntotal = len(rows)
        (products,), (places,) = copies.index.search(query[None], min(count, len(rows)))
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
                vectors = self.rough(block)
            scores, places = library.knn(
                queries, vectors, min(count, len(block)), metric=faiss.METRIC_INNER_PRODUCT
            )
            both = np.concatenate((best, scores), axis=1)
            chosen = np.argpartition(-both, count - 1, axis=1)[:, :count]
            rows = np.take_along_axis(np.concatenate((rows, block[places]), axis=1), chosen, axis=1)
            best = np.take_along_axis(both, chosen, axis=1)
        return np.take_along_axis(rows, np.argsort(-best, axis=1), axis=1)


# Inner products (N,) and the rows, or their places among some, (N,) that have them.
Found = tuple[Vectors, Rows]


def scan_index(index: Any, query: Vectors, count: int, bits: Bits | None, start: int, stop: int) -> Found:
    """Return the `count` best of the rows of FAISS's index from `start` to `stop` that have their bit."""
    library: Any = faiss
    if bits is None:
        chosen: Any = library.IDSelectorRange(start, stop)
    else:
        own = np.zeros_like(bits)
        own[start // 8 : -(-stop // 8)] = bits[start // 8 : -(-stop // 8)]
        chosen = library.IDSelectorBitmap(own)
    parameters = library.SearchParameters(sel=chosen)
    products, rows = index.search(query[None], count, params=parameters)
    found = rows[0] >= 0
    return products[0][found], rows[0][found]


class _Copies(threading.local):
    """Room for some rows in an index of each thread's own: new memory would cost more than comparing."""

    def __init__(self, dim: int) -> None:
        self.index = empty_index(dim)
        self.index.add_sa_codes(np.zeros((COPIED, 2 * dim), dtype=np.uint8))
        self.rows = memory_of(self.index)


def empty_index(dim: int) -> Any:
    """Return FAISS's index of no float16 rows."""
    return faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)


def memory_of(index: Any) -> Halves:
    """Return FAISS's own memory of the rows (N, D), not a copy; it is another after each change."""
    if not index.ntotal:
        return np.empty((0, index.d), dtype="<f2")
    stored: Halves = (
        faiss.rev_swig_ptr(index.codes.data(), index.codes.size()).view("<f2").reshape(index.ntotal, index.d)
    )
    return stored


def read_count(file: IO[bytes], dim: int) -> int:
    """Return how many rows follow in a file that `write` has written.

    Raises:
        ValueError: It does not hold float16 rows of this dimension.
    """
    np.lib.format.read_magic(file)
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    held = os.fstat(file.fileno()).st_size - file.tell()
    if by_column or dtype != "<f2" or shape[1:] != (dim,) or held != shape[0] * dim * dtype.itemsize:
        raise ValueError("the file holds no float16 rows of this dimension")
    return int(shape[0])


def _best(found: list[Found], count: int) -> Found:
    """Return the `count` best of what parts have found."""
    if not found:
        return np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    scores, rows = (np.concatenate(part) for part in zip(*found, strict=True))
    if len(rows) <= count:
        return scores, rows
    chosen = np.argpartition(-scores, count - 1)[:count]
    return scores[chosen], rows[chosen]
