"""Rows of vectors in memory, scanned by FAISS on all cores or on a device that has a copy of them."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import numpy as np

from index.vectors.coarse import CoarseRows
from index.vectors.large_pages import move_to_large_pages, refill_in_large_pages
from index.vectors.passing import Passing
from index.vectors.positions import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import (
    SUMMATION,
    Found,
    Guard,
    Halves,
    StoredRows,
    empty_index,
    memory_of,
    read_count,
    scan_index,
)

if TYPE_CHECKING:
    from index.vectors.device import DeviceRows

# Rows beyond the nearest that a scan of 8 bits names: so many may come close enough.
_REACHING: Final = 256
# Memory for rows that are read, and for some that come later.
_ROOM: Final = 33 / 32

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")


class HalfRows(StoredRows):
    """Rows in the memory of one of FAISS's indexes.

    Attributes:
        coarse: The same rows in 8 bits, by which scans are nearly twice as fast, if there are any.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.coarse: CoarseRows | None = None
        self._failing = threading.Lock()
        self._index = empty_index(dim)
        self._held = memory_of(self._index)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._index.ntotal)

    @property
    def memory_bytes(self) -> int:
        """Memory that the rows hold."""
        return len(self) * self.dim * 2 + (0 if self.coarse is None else self.coarse.memory_bytes)

    def scan_on(self, device: "DeviceRows | None") -> None:
        """Have scans done by copies of all rows on a device from now on, or no more; 8 bits go."""
        self.coarse, self.device = None, device
        self.error = self._bound(max(SUMMATION, 0.0 if device is None else device.error))

    def drop_copies(self) -> None:
        """Have scans done by the rows themselves; see `StoredRows`."""
        self.scan_on(None)

    @property
    def index(self) -> Any:
        """FAISS's index of the rows, which is another after `read`."""
        return self._index

    @property
    def held(self) -> Halves:
        """The rows (N, D) themselves, until one is added."""
        return self._held

    def fresh(self) -> Self:
        """Return no rows, stored in the same way."""
        return type(self)(self.dim)

    @contextmanager
    def grown(self) -> Iterator[None]:
        """Follow what is appended to `index` meanwhile."""
        try:
            yield
        finally:
            self._held = memory_of(self._index)

    def keep(self, alive: Mask) -> None:
        """Let go of all other rows; those behind them move up."""
        kept = self._held[alive]
        self._index.reset()
        self.coarse = None
        if self.device is not None:
            self.device.clear()
        self.append(kept)

    def append(self, vectors: Halves) -> None:
        """Append vectors (N, D) as they are stored."""
        with self.grown():
            if len(vectors):
                self._index.add_sa_codes(vectors.view(np.uint8))
        if self.coarse is not None:
            self.coarse.append(vectors)
        self._on_device(lambda device: device.append(vectors))

    def use_large_pages(self) -> None:
        """Have rows lie where they are taken fastest; see `StoredRows`."""
        # Only the address is used: should they move meanwhile, others' memory moves, which harms nobody.
        move_to_large_pages(self._held)

    def take(self, rows: Rows, out: Halves) -> None:
        """Copy these rows into `out` (N, D); see `StoredRows`."""
        # They are there: nothing has to be checked, and only then are they copied once.
        np.take(self._held, rows, axis=0, out=out, mode="clip")

    def read(self, path: Path) -> None:
        """Take the rows of a file in place of those here; see `StoredRows`."""
        index = empty_index(self.dim)
        with path.open("rb") as file:
            count = read_count(file, self.dim)
            # Else the first vector that is appended would have all of them copied, while searches wait.
            _resize(index, int(_ROOM * count))
            refill_in_large_pages(memory_of(index))
            _resize(index, count)
            held = memory_of(index)
            if file.readinto(held.data) != held.nbytes:
                raise ValueError("the file ends before its rows do")
        self._index, self._held = index, held
        self.scan_on(None)

    def nearest_many(
        self,
        queries: Vectors,
        count: int,
        among: Mask,
        guard: Guard = nullcontext,
        threads: int | None = None,
    ) -> Rows:
        """Return the nearest rows (Q, count) of each query (Q, D); see `StoredRows`."""
        found = None
        if len(among) == len(self):
            with guard():
                found = self._on_device(lambda device: device.nearest_many(queries, count, among))
        return super().nearest_many(queries, count, among, guard, threads) if found is None else found

    def _nearest(self, query: Vectors, count: int, passing: Passing) -> Rows:
        found = self._on_device(lambda device: device.nearest(query, count, passing))
        if found is not None:
            return found
        wanted = count + _REACHING
        if self.coarse is not None and wanted < passing.count:
            question = self.coarse.question(query)
            scan = partial(scan_index, self.coarse.index, question.steps, wanted, passing.bits)
            reaching = question.reaching(self._in_parts(scan, wanted, len(self), self._work(passing)), count)
            if reaching is not None:
                return self.nearest_of(query, count, reaching)
        return super()._nearest(query, count, passing)

    def _scan(self, query: Vectors, count: int, passing: Passing, start: int, stop: int) -> Found:
        return scan_index(self._index, query, count, passing.bits, start, stop)

    def _on_device(self, work: Callable[["DeviceRows"], _Answer]) -> _Answer | None:
        """Return what work on the device gives; None without one, or where it fails, which ends its use."""
        device = self.device
        if device is None:
            return None
        try:
            return work(device)
        except RuntimeError as error:
            with self._failing:
                failed_first, self.device = self.device is device, None
            # `error` stays as it is: a search beside this may still rank what the device has found.
            if failed_first:
                _log.warning("vectors are scanned by the CPU from now on, as the GPU failed: %s", error)
            return None


def _resize(index: Any, count: int) -> None:
    """Make so many rows of FAISS's index; those that were not there are zero."""
    index.codes.resize(count * index.d * 2)
    index.ntotal = count
