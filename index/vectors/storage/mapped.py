"""Rows of vectors in files, for collections that outgrow memory."""

import logging
import mmap
import os
import resource
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

import numpy as np

from index.errors import ViewError
from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import Rows
from index.vectors.protocol import Vectors
from index.vectors.storage.memory import MemoryStore
from index.vectors.storage.vector_store import Float16Array, Found, VectorStore, read_count

# Bytes of new rows held in memory before they move to a file.
_BUFFER_BYTES: Final = 64 * 1024**2
# Maximum number of rows read for each needed one, if they are contiguous.
_SPREAD: Final = 8
# Once rows had to be waited for, they are fetched so many times before it is tried again without.
_FETCHED: Final = 100

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows (N, D) from row `first` on, in memory or at a place of a mapped file."""

    first: int
    rows: Float16Array
    file: mmap.mmap | None = None
    offset: int = 0

    @classmethod
    def mapped(cls, first: int, file: IO[bytes], count: int, dim: int) -> "_Part":
        """Map `count` rows that begin where the file is read next."""
        offset = file.tell()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # Candidates are scattered: what lies around them is not to be read as well.
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
        places = rows - self.first
        first, last = int(places.min()), int(places.max())
        if last - first < _SPREAD * len(places):
            pieces = [(first, last + 1)]
        elif scattered:
            pieces = [(place, place + 1) for place in places.tolist()]
        else:
            return
        for start, stop in pieces:
            at = self.offset + start * size
            page = at - at % mmap.PAGESIZE
            self.file.madvise(mmap.MADV_WILLNEED, page, self.offset + stop * size - page)


class MappedStore(VectorStore):
    """Rows in mapped files: that of the snapshot, one without a name for those since, and the last in memory.

    Args:
        dim: Length of a vector.
        folder: Folder of the unnamed file; None: the system's temporary folder.
    """

    def __init__(self, dim: int, folder: Path | None = None) -> None:
        super().__init__(dim)
        self._folder = folder
        self._snapshot: _Part | None = None
        self._since: _Part | None = None
        self._unnamed: IO[bytes] | None = None
        self._latest = MemoryStore(dim)
        self._buffer_bytes = _BUFFER_BYTES
        self._fetched = 0
        # Parts in the order of their rows: replaced in one step, as a snapshot is written while others read.
        self._parts: tuple[_Part, ...] = (_Part(0, self._latest.held),)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._parts[-1].end

    @property
    def memory_bytes(self) -> int:
        """Memory that the rows hold, without the files' pages, which the system takes back when it likes."""
        return self._latest.memory_bytes

    def fresh(self) -> Self:
        """Return an empty store of the same kind."""
        return type(self)(self.dim, self._folder)

    def append(self, vectors: Float16Array) -> None:
        """Append vectors (N, D) as they are stored."""
        self._latest.append(vectors)
        if self._latest.memory_bytes >= self._buffer_bytes:
            try:
                self._move()
                self._buffer_bytes = _BUFFER_BYTES
            except OSError as error:
                self._buffer_bytes = 2 * self._latest.memory_bytes
                _log.warning("new vectors stay in memory: %s", error)
        files = tuple(part for part in (self._snapshot, self._since) if part is not None)
        self._parts = (*files, _Part(files[-1].end if files else 0, self._latest.held))

    def take(self, rows: Rows, out: Float16Array) -> None:
        """Copy these rows, which are there, into `out` (N, D).

        Raises:
            ViewError: The file of the rows was cut short.
        """
        for part in self._parts:
            here = (rows >= part.first) & (rows < part.end)
            if not here.any():
                continue
            # Access to a missing page would end the process (SIGBUS).
            if not part.whole:
                self.damaged = True
                raise ViewError("The file of a collection's vectors was cut short while it was searched.")
            if here.all():
                self._take(part, rows, out)
                return
            some = np.empty((np.count_nonzero(here), self.dim), dtype="<f2")
            self._take(part, rows[here], some)
            out[here] = some

    def move_to(self, path: Path, count: int) -> None:
        """Replace the first `count` rows by the same rows in a file; keep those after them."""
        later = self.halves(np.arange(count, len(self)))
        self.read(path)
        self.append(later)

    def read(self, path: Path) -> None:
        """Take the rows of a file in place of those here; see `VectorStore`."""
        with path.open("rb") as file:
            snapshot = _Part.mapped(0, file, read_count(file, self.dim), self.dim)
        self._snapshot, self._since, self._unnamed = snapshot, None, None
        self._latest = MemoryStore(self.dim)
        self._parts = (snapshot, _Part(snapshot.end, self._latest.held))

    def _take(self, part: _Part, rows: Rows, out: Float16Array) -> None:
        """Take rows of a part; to fetch what is in memory would take longer than to take it."""
        part.fetch(rows, scattered=self._fetched > 0)
        self._fetched = max(0, self._fetched - 1)
        waited = _waits()
        np.take(part.rows, rows - part.first, axis=0, out=out, mode="clip")
        if _waits() > waited:
            self._fetched = _FETCHED

    def _move(self) -> None:
        """Move what is kept in memory to the end of the file without a name."""
        first = 0 if self._snapshot is None else self._snapshot.end
        moved = 0 if self._since is None else len(self._since.rows)
        if self._unnamed is None:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            self._unnamed = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - it stays open
        _write(self._unnamed, self._latest.held, moved * self.dim * 2)
        self._since = _Part.mapped(first, self._unnamed, moved + len(self._latest), self.dim)
        self._latest = MemoryStore(self.dim)

    def _scan(self, query: Vectors, count: int, passing: FilterMask, start: int, stop: int) -> Found:
        rows = start + np.flatnonzero(passing.mask[start:stop])
        return self._scan_rows(query, count, rows, 0, len(rows))


def _waits() -> int:
    """Return how often this thread has waited for the disk to read what it touched."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


def _write(file: IO[bytes], rows: Float16Array, place: int) -> None:
    left = rows.data.cast("B")
    while left:
        written = os.pwrite(file.fileno(), left, place)
        left, place = left[written:], place + written
