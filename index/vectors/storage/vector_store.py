"""Rows of float16 vectors, as the catalogue has them, wherever they are stored."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.codec import unit, widened
from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.threads import cores, scanners, use_threads

Float16Array = NDArray[np.float16]
# Inner products (N,) and the rows (N,) that have them.
Found = tuple[Vectors, Rows]
# Held whenever rows are read, and let go in between.
Guard = Callable[[], AbstractContextManager[None]]

# Below so many comparisons one thread is done before others have begun.
_WORTH_THREADS: Final = 20_000
# Stepping over a row costs this share of comparing it (measured).
_SKIPPED: Final = 0.04
# Up to this share of all rows, those that pass are copied out instead of picked during a scan (measured).
_GATHERED: Final = 0.1
# Rows that are compared with many queries at once, or written.
_BLOCK: Final = 16_384
# Scattered rows that are copied and compared at once: they stay in the processor's cache.
_COMPARED_AT_ONCE: Final = 512
# Half a unit in the last of a float16's 11 digits, and half the smallest number there is.
_ROUNDING: Final = 2.0**-11
_SMALLEST: Final = 2.0**-25
# FAISS sums up in float32.
_SUMMATION: Final = 1e-5


class VectorStore(ABC):
    """Vectors (N, D) in float16; rows are only appended. The owner locks readers against writers.

    Attributes:
        dim: Length of a vector.
        error: Upper bound of the difference between an inner product that a scan finds and the cosine.
        damaged: Whether the file below was damaged since: the rows must be read anew.
    """

    damaged = False

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.error = scan_error(dim)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Memory that the rows hold."""

    def fresh(self) -> Self:
        """Return an empty store of the same kind."""
        return type(self)(self.dim)

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

    def blocks(self, among: Mask, guard: Guard = nullcontext) -> Iterator[tuple[Rows, Float16Array]]:
        """Give the rows of a mask of the first rows (N,), some at a time, and their stored vectors."""
        for start in range(0, len(among), _BLOCK):
            rows = start + np.flatnonzero(among[start : start + _BLOCK])
            with guard():
                halves = self.halves(rows)
            yield rows, halves

    def nearest(self, query: Vectors, count: int, passing: FilterMask) -> Found:
        """Return the `count` largest inner products of rows that pass with a query (D,), and the rows.

        They are in no order; fewer come back only when fewer pass.
        """
        if passing.count <= _GATHERED * len(self):
            scan, total = partial(self._scan_rows, query, count, passing.rows), passing.count
            work: float = total
        else:
            scan, total = partial(self._scan, query, count, passing), len(self)
            work = passing.count + total * _SKIPPED
        parts = cores() if work >= _WORTH_THREADS else 1
        # A part has whole bytes of bits.
        edges = [total * part // parts // 8 * 8 for part in range(parts)] + [total]
        if parts > 1:
            return best_of_parts(list(scanners().map(scan, edges[:-1], edges[1:])), count)
        use_threads(1)
        return scan(0, total)

    def _scan_rows(self, query: Vectors, count: int, rows: Rows, start: int, stop: int) -> Found:
        """Return the `count` best of `rows` from place `start` to `stop`."""
        products, places = self.best_of(query, count, rows[start:stop])
        return products, rows[start + places]

    def best_of(self, query: Vectors, count: int, rows: Rows) -> Found:
        """Return the `count` largest inner products with these rows, and their places, best first."""
        use_threads(1)
        index = zero_index(self.dim, min(len(rows), _COMPARED_AT_ONCE))
        halves = memory_of(index)
        found = []
        for start in range(0, len(rows), _COMPARED_AT_ONCE):
            part = rows[start : start + _COMPARED_AT_ONCE]
            self.take(part, halves[: len(part)])
            index.ntotal = len(part)
            (products,), (places,) = index.search(query[None], min(count, len(part)))
            found.append((products, start + places))
        if len(found) == 1:
            return found[0]
        products, places = best_of_parts(found, count)
        order = np.argsort(-products, kind="stable")
        return products[order], places[order]

    def nearest_many(self, queries: Vectors, count: int, among: Mask, guard: Guard = nullcontext) -> Rows:
        """Return the nearest rows (Q, count) to queries (Q, D) in a mask of the first rows (N,), best first.

        Places without a row hold -1.
        """
        library: Any = faiss
        use_threads(cores() if len(among) >= _WORTH_THREADS else 1)
        best = np.full((len(queries), count), -np.inf, dtype=np.float32)
        rows = np.full((len(queries), count), -1, dtype=np.int64)
        for block, halves in self.blocks(among, guard):
            if not len(block):
                continue
            found = min(count, len(block))
            scores, places = library.knn(queries, widened(halves), found, metric=faiss.METRIC_INNER_PRODUCT)
            both = np.concatenate((best, scores), axis=1)
            chosen = np.argpartition(-both, count - 1, axis=1)[:, :count]
            rows = np.take_along_axis(np.concatenate((rows, block[places]), axis=1), chosen, axis=1)
            best = np.take_along_axis(both, chosen, axis=1)
        return np.take_along_axis(rows, np.argsort(-best, axis=1), axis=1)


def scan_error(dim: int) -> float:
    """Return the largest difference between a cosine and the product with a vector rounded to float16."""
    # The two differ by the length of the rounded vector: that of a unit vector is off by this.
    return _ROUNDING + _SMALLEST * math.sqrt(dim) + _SUMMATION


def zero_index(dim: int, count: int = 0) -> Any:
    """Return FAISS's index of float16 rows, all of them zero."""
    index = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    resize(index, count)
    return index


def memory_of(index: Any) -> Float16Array:
    """Return FAISS's own memory of the rows (N, D), not a copy; it is another after each change."""
    if not index.ntotal:
        return np.empty((0, index.d), dtype="<f2")
    stored: Float16Array = (
        faiss.rev_swig_ptr(index.codes.data(), index.codes.size()).view("<f2").reshape(index.ntotal, index.d)
    )
    return stored


def resize(index: Any, count: int) -> None:
    """Set the number of rows of FAISS's index; new rows are zero."""
    index.codes.resize(count * index.d * 2)
    index.ntotal = count


def best_of_parts(found: list[Found], count: int) -> Found:
    """Return the `count` best of what parts have found, in no order."""
    if not found:
        return np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    scores, rows = (np.concatenate(part) for part in zip(*found, strict=True))
    if len(rows) <= count:
        return scores, rows
    chosen = np.argpartition(-scores, count - 1)[:count]
    return scores[chosen], rows[chosen]


def write_header(file: IO[bytes], count: int, dim: int) -> None:
    """Begin a file of `count` rows."""
    header = {"descr": "<f2", "fortran_order": False, "shape": (count, dim)}
    np.lib.format.write_array_header_1_0(file, header)


def read_count(file: IO[bytes], dim: int) -> int:
    """Return how many rows follow in a file.

    Raises:
        ValueError: The file does not hold float16 rows of this dimension.
    """
    np.lib.format.read_magic(file)
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    held = os.fstat(file.fileno()).st_size - file.tell()
    if by_column or dtype != "<f2" or shape[1:] != (dim,) or held != shape[0] * dim * dtype.itemsize:
        raise ValueError("the file holds no float16 rows of this dimension")
    return int(shape[0])
