"""Rows of float16 vectors, as the catalogue has them, scanned by FAISS on all cores."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.codec import unit, widened
from index.vectors.passing import Bits, Passing
from index.vectors.positions import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.threads import cores, use_threads

Guard = Callable[[], AbstractContextManager[None]]

# Below so many rows one thread is done before others have begun.
_WORTH_THREADS: Final = 20_000
# To step over a row takes this share of what it takes to compare it (measured).
_PASSED_OVER: Final = 0.04
# Up to this share of all rows, those that pass are copied out instead of picked during a scan (measured).
_GATHERED: Final = 0.01
# Rows that are copied at once.
_COPIED: Final = 512
# Rows that are compared with many queries at once.
_BLOCK: Final = 16_384
# Half a unit in the last of a float16's 11 digits, and half the smallest number there is.
_ROUNDING: Final = 2.0**-11
_SMALLEST: Final = 2.0**-25
# FAISS sums up in float32.
_SUMMATION: Final = 1e-5


class HalfRows:
    """Vectors (N, D) in float16; rows are only appended. Its owner sees to it that nobody reads meanwhile.

    Attributes:
        dim: Length of a vector.
        error: Upper bound of the difference between an inner product by FAISS and the cosine.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        # They differ by the length of the rounded vector; that of one of length one is off by at most this.
        self.error = _ROUNDING + _SMALLEST * math.sqrt(dim) + _SUMMATION
        self._copies = _Copies(dim)
        self._index = empty_index(dim)
        self._pool = ThreadPoolExecutor(cores(), initializer=use_threads, initargs=(1,))
        self._held = _memory_of(self._index)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._index.ntotal)

    @property
    def memory_bytes(self) -> int:
        """Memory that the rows hold."""
        return len(self) * self.dim * 2

    @property
    def index(self) -> Any:
        """FAISS's index of the rows, which is another after `read`."""
        return self._index

    def add(self, vectors: Vectors) -> None:
        """Append vectors (N, D) of length one, but for rounding."""
        # FAISS rounds otherwise than NumPy, by which the catalogue's vectors come out again as they were.
        self._append(np.ascontiguousarray(vectors, dtype="<f2"))

    @contextmanager
    def grown(self) -> Iterator[None]:
        """Follow what is appended to `index` meanwhile."""
        try:
            yield
        finally:
            self._held = _memory_of(self._index)

    def get(self, rows: Rows) -> Vectors:
        """Return the vectors (N, D) of these rows, exactly of length one."""
        return unit(self.rough(rows))

    def rough(self, rows: Rows) -> Vectors:
        """Return the vectors (N, D) of these rows as they were rounded."""
        return widened(self._held.take(rows, axis=0))

    def keep(self, alive: Mask) -> None:
        """Let go of all other rows; those behind them move up."""
        kept = self._held[alive]
        self._index.reset()
        self._append(kept)

    def nearest(self, query: Vectors, count: int, passing: Passing) -> Rows:
        """Return the `count` rows of those that pass with the largest inner products with a query (D,).

        They are in no order; fewer come back only when fewer pass.
        """
        if passing.count <= _GATHERED * len(self):
            return self.nearest_of(query, count, passing.rows)
        work = passing.count + len(self) * _PASSED_OVER
        parts = cores() if work >= _WORTH_THREADS else 1
        # Whole bytes of bits.
        edges = [len(self) * part // parts // 8 * 8 for part in range(parts)] + [len(self)]
        ranges = list(itertools.pairwise(edges))
        if parts == 1:
            use_threads(1)
            found = [self._scan(query, count, passing.bits, *ranges[0])]
        else:
            found = list(self._pool.map(lambda part: self._scan(query, count, passing.bits, *part), ranges))
        return _best(found, count)

    def nearest_of(self, query: Vectors, count: int, rows: Rows) -> Rows:
        """Return the `count` of these rows with the largest inner products with a query (D,), in no order."""
        if len(rows) <= count:
            return rows
        use_threads(1)
        copies = self._copies
        found = []
        for start in range(0, len(rows), _COPIED):
            block = rows[start : start + _COPIED]
            # The rows are there: nothing has to be checked, and only then are they copied once.
            np.take(self._held, block, axis=0, out=copies.rows[: len(block)], mode="clip")
            copies.index.ntotal = len(block)
            scores, places = copies.index.search(query[None], min(count, len(block)))
            found.append((scores[0], block[places[0]]))
        return _best(found, count)

    def nearest_many(self, queries: Vectors, count: int, among: Mask, guard: Guard = nullcontext) -> Rows:
        """Return the nearest rows (Q, count) of each query (Q, D), best first; -1 where there are fewer.

        Args:
            queries: What to search for.
            count: How many rows for each.
            among: Which of the first rows (N,) may be found.
            guard: Held whenever rows are read, and let go in between.
        """
        library: Any = faiss
        use_threads(cores() if len(among) >= _WORTH_THREADS else 1)
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

    def write(self, path: Path) -> None:
        """Write the rows into a file."""
        faiss.write_index(self._index, str(path))

    def read(self, path: Path) -> None:
        """Take the rows of a file in place of those here.

        Raises:
            ValueError: It does not hold float16 rows of this dimension.
        """
        index: Any = faiss.read_index(str(path))
        if (
            not isinstance(index, faiss.IndexScalarQuantizer)
            or index.d != self.dim
            or index.sq.qtype != faiss.ScalarQuantizer.QT_fp16
            or index.metric_type != faiss.METRIC_INNER_PRODUCT
        ):
            raise ValueError("the file holds no float16 rows of this dimension")
        self._index = index
        self._held = _memory_of(index)

    def _append(self, vectors: NDArray[np.float16]) -> None:
        if len(vectors):
            self._index.add_sa_codes(vectors.view(np.uint8))
        self._held = _memory_of(self._index)

    def _scan(
        self, query: Vectors, count: int, bits: Bits | None, start: int, stop: int
    ) -> tuple[Vectors, Rows]:
        library: Any = faiss
        if bits is None:
            chosen: Any = library.IDSelectorRange(start, stop)
        else:
            own = np.zeros_like(bits)
            own[start // 8 : -(-stop // 8)] = bits[start // 8 : -(-stop // 8)]
            chosen = library.IDSelectorBitmap(own)
        parameters = library.SearchParameters(sel=chosen)
        scores, rows = self._index.search(query[None], count, params=parameters)
        found = rows[0] >= 0
        return scores[0][found], rows[0][found]


class _Copies(threading.local):
    """Room for some rows in an index of each thread's own: new memory would cost more than comparing."""

    def __init__(self, dim: int) -> None:
        self.index = empty_index(dim)
        self.index.add_sa_codes(np.zeros((_COPIED, 2 * dim), dtype=np.uint8))
        self.rows = _memory_of(self.index)


def empty_index(dim: int) -> Any:
    """Return FAISS's index of no float16 rows."""
    return faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)


def _best(found: list[tuple[Vectors, Rows]], count: int) -> Rows:
    """Return the `count` best of the rows that parts have found."""
    scores, rows = (np.concatenate(part) for part in zip(*found, strict=True))
    return rows[np.argpartition(-scores, count - 1)[:count]] if len(rows) > count else rows


def _memory_of(index: Any) -> NDArray[np.float16]:
    """Return FAISS's own memory of the rows (N, D), not a copy; it is another after each change."""
    if not index.ntotal:
        return np.empty((0, index.d), dtype="<f2")
    stored: NDArray[np.float16] = (
        faiss.rev_swig_ptr(index.codes.data(), index.codes.size()).view("<f2").reshape(index.ntotal, index.d)
    )
    return stored
