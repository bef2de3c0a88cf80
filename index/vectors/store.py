"""Rows of float16 vectors, as the catalogue has them: in memory, scanned by FAISS, or in mapped files."""

import ctypes
import logging
import math
import mmap
import os
import resource
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, Final, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from index.errors import ViewError
from index.vectors.protocol import Mask, Rows, Vectors, unit
from index.vectors.rows import FilterMask
from training.common.host import cores

# A tenth of a core's time if other processes need all of it; otherwise all of it.
_BUILD_NICENESS = 10
Float16Array = NDArray[np.float16]
# Inner products (N,) and the rows (N,) that have them.
ScoredRows = tuple[Vectors, Rows]
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
# Minimum size of an array that gains from huge pages.
_WORTHWHILE: Final = 32 * 1024**2
# Since Linux 6.1; Python's mmap has no name for it.
_MADV_COLLAPSE: Final = 25
# Memory for rows that are read, and for some that come later.
_ROOM: Final = 33 / 32
# Addresses for rows that come after those of a shared file; memory is taken only by rows that come.
_ADDRESSES: Final = 3 / 2
_MORE_ADDRESSES: Final = 16 * 1024**2
# Linux's numbers, for which Python's mmap has no names.
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000
# Bytes of new rows held in memory before they move to a file.
_BUFFER_BYTES: Final = 64 * 1024**2
# Maximum number of rows read for each needed one, if they are contiguous.
_SPREAD: Final = 8
# Once rows had to be waited for, they are fetched so many times before it is tried again without.
_FETCHED: Final = 100

_log = logging.getLogger(__name__)


def use_threads(count: int) -> None:
    """Let FAISS use `count` threads for calls from this thread."""
    # OpenMP keeps the number for each calling thread. A query that waits for a second thread waits for a
    # whole time slice of the scheduler whenever the other cores are busy.
    faiss.omp_set_num_threads(count)


def lower_priority() -> None:
    """Lower the priority of this thread, and of all that it begins, below those that answer searches.

    Linux keeps a priority for each thread. A pool of OpenMP takes that of the thread which begins it.
    """
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BUILD_NICENESS)


@lru_cache(maxsize=2)
def threads_for(work: str, _process: int) -> Executor:
    """Return the threads of a process that do the parts of a kind of work, one on each core.

    After a fork there are other ones: a child has none of its parent's threads.
    """
    return ThreadPoolExecutor(cores(), work, initializer=use_threads, initargs=(1,))


class VectorStore:
    """Vectors (N, D) in float16, in the memory of a FAISS index; rows are only appended.

    The owner locks readers against writers.

    Attributes:
        dim: Length of a vector.
        error: Upper bound of the difference between an inner product that a scan finds and the cosine.
        damaged: Whether the file below was damaged since: the rows must be read again.
        index: FAISS's index of the rows in memory, until one is added.
        buffer: These rows (N, D) themselves, until one is added.
    """

    damaged = False

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.error = scan_error(dim)
        self.index = zero_index(dim)
        self.buffer = memory_of(self.index)

    def __len__(self) -> int:
        return int(self.index.ntotal)

    @property
    def memory_bytes(self) -> int:
        """Memory that the rows hold, without pages of files, which the system takes back when it likes."""
        return int(self.index.ntotal) * self.dim * 2

    def fresh(self) -> Self:
        """Return an empty store of the same kind."""
        return type(self)(self.dim)

    def append(self, vectors: Float16Array) -> None:
        """Append vectors (N, D) as they are stored."""
        try:
            if len(vectors):
                self.index.add_sa_codes(vectors.view(np.uint8))
        finally:
            self.buffer = memory_of(self.index)

    def take(self, rows: Rows, out: Float16Array | None = None) -> Float16Array:
        """Return these rows (N, D), which are there, as they are stored; in `out`, if that isn't None."""
        # Valid rows need no check, and mode "clip" copies them once only.
        return np.take(self.buffer, rows, axis=0, out=out, mode="clip")

    def read(self, path: Path) -> None:
        """Replace the rows by those of a file.

        Raises:
            ValueError: It does not hold float16 rows of this dimension.
        """
        index = zero_index(self.dim)
        with path.open("rb") as file:
            count = read_count(file, self.dim)
            # Without room, the first vector appended would have all of them copied, while searches wait.
            resize(index, int(_ROOM * count))
            resize(index, count)
            buffer = memory_of(index)
            if file.readinto(buffer.data) != buffer.nbytes:
                raise ValueError("the file ends before its rows do")
        self.index, self.buffer = index, buffer
        use_huge_pages(buffer)

    def move_to(self, path: Path, count: int) -> None:
        """Replace the first `count` rows by the same rows in a file; keep those after them."""
        later = self.take(np.arange(count, len(self)))
        self.read(path)
        self.append(later)

    def _scan(self, query: Vectors, count: int, passing: FilterMask, start: int, stop: int) -> ScoredRows:
        """Return the `count` best of the rows that pass from `start`, a multiple of 8, to `stop`."""
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

    def add(self, vectors: Vectors) -> None:
        """Append vectors (N, D) of length one, but for rounding."""
        # FAISS rounds otherwise than NumPy, by which the catalogue's vectors come out again as they were.
        self.append(np.ascontiguousarray(vectors, dtype="<f2"))

    def get(self, rows: Rows) -> Vectors:
        """Return the vectors (N, D) of these rows, exactly of length one."""
        return unit(self.rounded(rows))

    def rounded(self, rows: Rows) -> Vectors:
        """Return the vectors (N, D) of these rows as they were rounded."""
        return self.take(rows).astype(np.float32)

    def blocks(self, among: Mask, guard: Guard = nullcontext) -> Iterator[tuple[Rows, Float16Array]]:
        """Give the rows of a mask of the first rows (N,), some at a time, and their stored vectors."""
        for start in range(0, len(among), _BLOCK):
            rows = start + np.flatnonzero(among[start : start + _BLOCK])
            with guard():
                halves = self.take(rows)
            yield rows, halves

    def nearest(self, query: Vectors, count: int, passing: FilterMask) -> ScoredRows:
        """Return the `count` largest inner products of rows that pass with a query (D,), and the rows.

        They are in no order; fewer come back only when fewer pass.
        """
        scan, total = partial(self._scan, query, count, passing), len(passing.mask)
        work = passing.count + total * _SKIPPED
        if passing.count <= _GATHERED * total:
            scan, work = partial(self._scan_rows, query, count, passing.rows), passing.count
            total = passing.count
        parts = cores() if work >= _WORTH_THREADS else 1
        if parts == 1:
            use_threads(1)
            return scan(0, total)
        # A part has whole bytes of bits.
        edges = [total * part // parts // 8 * 8 for part in range(parts)] + [total]
        scanned = threads_for("scan", os.getpid()).map(scan, edges[:-1], edges[1:])
        return best_of_parts(list(scanned), count)

    def _scan_rows(self, query: Vectors, count: int, rows: Rows, start: int, stop: int) -> ScoredRows:
        """Return the `count` best of `rows[start:stop]`."""
        products, indices = self.best_of(query, count, rows[start:stop])
        return products, rows[start + indices]

    def best_of(self, query: Vectors, count: int, rows: Rows) -> ScoredRows:
        """Return the `count` largest inner products with these rows, and their indices, best first."""
        use_threads(1)
        index = zero_index(self.dim, min(len(rows), _COMPARED_AT_ONCE))
        halves = memory_of(index)
        parts = []
        for start in range(0, len(rows), _COMPARED_AT_ONCE):
            part = rows[start : start + _COMPARED_AT_ONCE]
            self.take(part, halves[: len(part)])
            index.ntotal = len(part)
            (products,), (indices,) = index.search(query[None], min(count, len(part)))
            parts.append((products, start + indices))
        if len(parts) == 1:
            return parts[0]
        products, indices = best_of_parts(parts, count)
        order = np.argsort(-products, kind="stable")
        return products[order], indices[order]

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
            count_here = min(count, len(block))
            scores, indices = library.knn(
                queries, halves.astype(np.float32), count_here, metric=faiss.METRIC_INNER_PRODUCT
            )
            both = np.concatenate((best, scores), axis=1)
            chosen = np.argpartition(-both, count - 1, axis=1)[:, :count]
            rows = np.take_along_axis(np.concatenate((rows, block[indices]), axis=1), chosen, axis=1)
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


def best_of_parts(parts: list[ScoredRows], count: int) -> ScoredRows:
    """Return the `count` best hits of all parts, unordered."""
    if not parts:
        return np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64)
    scores, rows = (np.concatenate(part) for part in zip(*parts, strict=True))
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
    size = os.fstat(file.fileno()).st_size - file.tell()
    if by_column or dtype != "<f2" or shape[1:] != (dim,) or size != shape[0] * dim * dtype.itemsize:
        raise ValueError("the file holds no float16 rows of this dimension")
    return int(shape[0])


def use_huge_pages(memory: NDArray[Any]) -> None:
    """Move memory to pages of 2 MB if the system has some, while others read and write it.

    Candidates are scattered: with pages of 4 kB the processor looks up nearly every page in memory first,
    and a search takes twice as long (measured). Neither FAISS nor Python's allocator asks for huge pages.
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


class _Addresses:
    """Rows of a file, mapped by each process that reads it, and behind them room for rows of this process.

    Pages of the file are in memory once for all processes. A write changes this process's copy of a page.

    Raises:
        OSError: The system gives no addresses, or doesn't map the file.
    """

    def __init__(self, file: IO[bytes], count: int, dim: int) -> None:
        self.count = count
        offset, row = file.tell(), 2 * dim
        length = offset + count * row
        self.room = int(_ADDRESSES * count) + _MORE_ADDRESSES // row
        size = -(-(offset + self.room * row) // mmap.PAGESIZE) * mmap.PAGESIZE
        start = _map(None, size, mmap.MAP_ANONYMOUS, -1)
        unmap = ctypes.CDLL(None).munmap
        freed = weakref.finalize(self, unmap, ctypes.c_void_p(start), ctypes.c_size_t(size))
        # Threads may still search while the interpreter ends.
        freed.atexit = False
        if length:
            _map(start, length, _MAP_FIXED, file.fileno())
        memory = (ctypes.c_uint16 * (self.room * dim)).from_address(start + offset)
        self.rows: Float16Array = np.frombuffer(memoryview(memory), "<f2").reshape(self.room, dim)


def _map(start: int | None, size: int, flags: int, file: int) -> int:
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    system.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    access = mmap.PROT_READ | mmap.PROT_WRITE
    mapped = system.mmap(start, size, access, mmap.MAP_PRIVATE | _MAP_NORESERVE | flags, file, 0)
    if mapped is None or mapped == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "the vectors' file cannot be mapped")
    return int(mapped)


class SharedStore(VectorStore):
    """Rows of a snapshot's file in memory that all processes share, and rows since in that of this process.

    To FAISS they are one array. Until there is a file, and once there are half as many rows since, all rows
    are in memory of this process. A file that is cut short ends the process (SIGBUS).
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self._file: _Addresses | None = None

    @property
    def own_rows(self) -> int:
        """Number of rows that are in memory of this process alone."""
        return len(self) - (0 if self._file is None else self._file.count)

    def append(self, vectors: Float16Array) -> None:
        """Append vectors (N, D) as they are stored."""
        count = len(self) + len(vectors)
        if self._file is not None and count > self._file.room:
            index = zero_index(self.dim)
            resize(index, int(_ROOM * count))
            resize(index, len(self))
            memory_of(index)[:] = self.buffer
            self.index, self.buffer, self._file = index, memory_of(index), None
        if self._file is None:
            super().append(vectors)
        else:
            self._file.rows[len(self) : count] = vectors
            self._show(self._file, count)

    def read(self, path: Path) -> None:
        """Replace the rows by those of a file; see `VectorStore`."""
        with path.open("rb") as file:
            count = read_count(file, self.dim)
            try:
                addresses = _Addresses(file, count, self.dim)
            except OSError as error:
                _log.warning("vectors are not shared: %s", error)
                self._file = None
                super().read(path)
                return
        self._show(addresses, count)
        use_huge_pages(self.buffer)

    def _show(self, file: _Addresses, count: int) -> None:
        library: Any = faiss
        index, rows = zero_index(self.dim), file.rows[:count]
        start = library.swig_ptr(file.rows.view(np.uint8).reshape(-1))
        # FAISS owns nothing of it: the addresses are freed with this store.
        index.codes = library.MaybeOwnedVectorUInt8.create_view(start, rows.nbytes, index.codes.owner)
        index.ntotal = count
        self.index, self.buffer, self._file = index, rows, file


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows (N, D) from row `first` on, in memory or in a mapped file."""

    first: int
    rows: Float16Array
    file: mmap.mmap | None = None
    offset: int = 0

    @classmethod
    def mapped(cls, first: int, file: IO[bytes], count: int, dim: int) -> "_Part":
        """Map `count` rows that begin where the file is read next."""
        offset = file.tell()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # Candidates are scattered: don't read ahead.
        mapped.madvise(mmap.MADV_RANDOM)
        rows = np.frombuffer(mapped, "<f2", count * dim, offset).reshape(count, dim)
        return cls(first, rows, mapped, offset)

    @property
    def end(self) -> int:
        """The row behind the last."""
        return self.first + len(self.rows)

    @property
    def whole(self) -> bool:
        """Whether the file is as long as when it was mapped."""
        return self.file is None or self.file.size() >= self.offset + self.rows.nbytes

    def fetch(self, rows: Rows, *, scattered: bool) -> None:
        """Have rows read from the disk at once, not one by one; of scattered ones only if `scattered`."""
        if self.file is None:
            return
        size = self.rows.shape[1] * self.rows.itemsize
        offsets = rows - self.first
        first, last = int(offsets.min()), int(offsets.max())
        if last - first < _SPREAD * len(offsets):
            pieces = [(first, last + 1)]
        elif scattered:
            pieces = [(offset, offset + 1) for offset in offsets.tolist()]
        else:
            return
        for start, stop in pieces:
            at = self.offset + start * size
            page = at - at % mmap.PAGESIZE
            self.file.madvise(mmap.MADV_WILLNEED, page, self.offset + stop * size - page)


class MappedStore(VectorStore):
    """Rows in mapped files, that of the snapshot and an unnamed one of later rows; the last are in memory."""

    def __init__(self, dim: int, folder: Path | None = None) -> None:
        super().__init__(dim)
        self._folder = folder
        self._snapshot: _Part | None = None
        self._since: _Part | None = None
        self._unnamed: IO[bytes] | None = None
        self._buffer_bytes = _BUFFER_BYTES
        self._fetched = 0
        # Parts in the order of their rows: replaced in one step, as a snapshot is written while others read.
        self._parts: tuple[_Part, ...] = (_Part(0, self.buffer),)

    def __len__(self) -> int:
        return self._parts[-1].end

    def fresh(self) -> Self:
        """Return an empty store of the same kind."""
        return type(self)(self.dim, self._folder)

    def append(self, vectors: Float16Array) -> None:
        """Append vectors (N, D) as they are stored."""
        super().append(vectors)
        if self.memory_bytes >= self._buffer_bytes:
            try:
                self._move()
                self._buffer_bytes = _BUFFER_BYTES
            except OSError as error:
                self._buffer_bytes = 2 * self.memory_bytes
                _log.warning("new vectors stay in memory: %s", error)
        files = tuple(part for part in (self._snapshot, self._since) if part is not None)
        self._parts = (*files, _Part(files[-1].end if files else 0, self.buffer))

    def take(self, rows: Rows, out: Float16Array | None = None) -> Float16Array:
        """Return these rows (N, D); see `VectorStore`.

        Raises:
            ViewError: The file of the rows was cut short.
        """
        if out is None:
            out = np.empty((len(rows), self.dim), dtype="<f2")
        for part in self._parts:
            here = (rows >= part.first) & (rows < part.end)
            if not here.any():
                continue
            # Access to a missing page would kill the process (SIGBUS).
            if not part.whole:
                self.damaged = True
                raise ViewError("The file of a collection's vectors was cut short while it was searched.")
            if here.all():
                return self._take(part, rows, out)
            out[here] = self._take(part, rows[here])
        return out

    def read(self, path: Path) -> None:
        """Replace the rows by those of a file; see `VectorStore`."""
        with path.open("rb") as file:
            snapshot = _Part.mapped(0, file, read_count(file, self.dim), self.dim)
        self._snapshot, self._since, self._unnamed = snapshot, None, None
        self._drop_memory()
        self._parts = (snapshot, _Part(snapshot.end, self.buffer))

    def _take(self, part: _Part, rows: Rows, out: Float16Array | None = None) -> Float16Array:
        """Take rows of a part; to fetch what is in memory would take longer than to take it."""
        part.fetch(rows, scattered=self._fetched > 0)
        self._fetched = max(0, self._fetched - 1)
        waited = _waits()
        taken = np.take(part.rows, rows - part.first, axis=0, out=out, mode="clip")
        if _waits() > waited:
            self._fetched = _FETCHED
        return taken

    def _move(self) -> None:
        """Move the rows in memory to the end of the unnamed file."""
        first = 0 if self._snapshot is None else self._snapshot.end
        moved = 0 if self._since is None else len(self._since.rows)
        if self._unnamed is None:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            self._unnamed = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - it stays open
        _write(self._unnamed, self.buffer, moved * self.dim * 2)
        self._since = _Part.mapped(first, self._unnamed, moved + len(self.buffer), self.dim)
        self._drop_memory()

    def _drop_memory(self) -> None:
        self.index = zero_index(self.dim)
        self.buffer = memory_of(self.index)

    def _scan(self, query: Vectors, count: int, passing: FilterMask, start: int, stop: int) -> ScoredRows:
        rows = start + np.flatnonzero(passing.mask[start:stop])
        return self._scan_rows(query, count, rows, 0, len(rows))


def _waits() -> int:
    """Return how often this thread has waited for the disk to read what it touched."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


def _write(file: IO[bytes], rows: Float16Array, offset: int) -> None:
    left = rows.data.cast("B")
    while left:
        written = os.pwrite(file.fileno(), left, offset)
        left, offset = left[written:], offset + written
