"""Rows of numbers made of files, kept in one file on disk that all processes map and later runs find."""

import errno
import fcntl
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

# Others may not see images of patients.
PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700
_COMMIT_BYTES: Final = 2**28
# Rows that take long to make are few bytes.
_COMMIT_SECONDS: Final = 60.0
# A run writes checkpoints besides.
_SHARE_OF_DISK: Final = 0.8
# Of a file that no file has.
_NONE: Final = -1


class SourceFile(NamedTuple):
    """A file at the moment of a look: its path, its size in bytes, and the last change of its inode in ns.

    Tools that keep the time of a file's content, such as `cp -p`, still change that of its inode. A text has
    its digest for a path, its length in bytes, and never changes.
    """

    path: str
    size: int
    changed: int


class Entry(NamedTuple):
    """Number of the row that was made of a file, or why there is none."""

    file: SourceFile
    row: int | None
    reason: str = ""


Entries = dict[str, Entry]


class RowCache:
    """The rows of the files of one data set, made in one way, for the user alone.

    The folder holds `rows`, all numbers one row after another, and `index.jsonl` with a line for each file,
    of which the last counts. A line is written when its row is safe on the disk, so a process may be killed
    at any moment and the next goes on from there. Rows stay where they are, except that a changed file's is
    written anew; nothing that is mapped becomes shorter.

    Args:
        folder: Of the cache; made when rows are added.
        shape: Of a row.
        dtype: Of its numbers.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.folder = folder
        self.row_bytes = math.prod(shape) * dtype.itemsize
        self._shape = shape
        self._dtype = dtype
        self._rows = folder / "rows"
        self._index = folder / "index.jsonl"

    def read(self) -> Entries:
        """Entries by path; none where the cache is damaged.

        Raises:
            OSError: It cannot be read.
        """
        try:
            content = self._index.read_bytes()
            rows = self._rows.stat().st_size // self.row_bytes
        except FileNotFoundError:
            return {}
        entries = {}
        try:
            for line in content[: content.rfind(b"\n") + 1].splitlines():
                path, size, changed, row, reason = json.loads(line)
                entries[path] = Entry(SourceFile(path, size, changed), row, reason)
        except (ValueError, TypeError):
            return {}
        complete = all(entry.row is None or entry.row < rows for entry in entries.values())
        return entries if complete else {}

    def map(self) -> NDArray[Any]:
        """All rows (N, ...), read from the disk when they are used.

        Raises:
            OSError: They cannot be read.
        """
        count = self._rows.stat().st_size // self.row_bytes
        if not count:
            return np.empty((0, *self._shape), self._dtype)
        return np.asarray(np.memmap(self._rows, self._dtype, mode="r", shape=(count, *self._shape)))

    @contextmanager
    def writer(self) -> Iterator["RowWriter"]:
        """Keep other processes from adding rows, and add some; what was added stays also after an error.

        Raises:
            OSError: The cache cannot be written, or its file system has no locks.
        """
        with self._locked() as index, self._rows.open("r+b", buffering=0) as rows:
            writer = RowWriter(self.read(), index, rows.fileno(), self.row_bytes)
            try:
                yield writer
            finally:
                writer.commit()

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The descriptor of the index, for this process alone."""
        index = self._lock()
        try:
            if not self.read():
                # Nothing yet, or damaged: whoever has mapped the rows keeps them.
                self._rows.unlink(missing_ok=True)
                os.truncate(index, 0)
            self._rows.touch(PRIVATE_FILE)
            yield index
        finally:
            os.close(index)

    def _lock(self) -> int:
        while True:
            _make_private(self.folder)
            index = os.open(self._index, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
            try:
                _wait_for(index, self.folder)
                if self._is_current(index):
                    return index
            except BaseException:
                os.close(index)
                raise
            os.close(index)

    def _is_current(self, index: int) -> bool:
        """Whether an index that was open before it was locked has not been removed since."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(index), self._index.stat())
        return False


class RowWriter:
    """Adds rows to a cache that is locked.

    Attributes:
        entries: What is there, with what was added.
    """

    def __init__(self, entries: Entries, index: int, rows: int, row_bytes: int) -> None:
        self.entries = entries
        self._index = index
        self._rows = rows
        self._row_bytes = row_bytes
        self._next = 1 + max((entry.row for entry in entries.values() if entry.row is not None), default=-1)
        self._pending: list[Entry] = []
        self._pending_bytes = 0
        self._committed_at = time.monotonic()
        # A process that was killed may have left half a line.
        self._end = os.pread(index, os.fstat(index).st_size, 0).rfind(b"\n") + 1

    def begin(self, files: Sequence[SourceFile]) -> None:
        """Give up the rows of changed files, whose place new ones take, and reserve the rest on the disk.

        Raises:
            OSError: The disk has no room for them.
        """
        known = (self.entries[file.path] for file in files if file.path in self.entries)
        changed = [entry for entry in known if entry.row is not None]
        needed = (len(files) - len(changed)) * self._row_bytes
        free = shutil.disk_usage(self._rows).free
        if needed > _SHARE_OF_DISK * free:
            raise OSError(errno.ENOSPC, f"{needed / 1e9:,.1f} GB are needed, {free / 1e9:,.1f} GB are free")
        self._append([Entry(SourceFile(entry.file.path, _NONE, _NONE), entry.row) for entry in changed])

    def add(self, file: SourceFile, made: NDArray[Any] | str) -> None:
        """Keep what was made of a file: its row, or why there is none.

        Raises:
            OSError: The disk is full.
        """
        if isinstance(made, str):
            self._note(Entry(file, None, made))
            return
        before = self.entries.get(file.path)
        row = self._next if before is None or before.row is None else before.row
        _write_at(self._rows, np.ascontiguousarray(made).data.cast("B"), row * self._row_bytes)
        self._next = max(self._next, row + 1)
        self._pending_bytes += self._row_bytes
        self._note(Entry(file, row))
        waited = time.monotonic() - self._committed_at
        if self._pending_bytes >= _COMMIT_BYTES or waited >= _COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Write down what was added since the last time.

        Raises:
            OSError: The disk is full.
        """
        # Half a row that a full disk left.
        os.truncate(self._rows, self._next * self._row_bytes)
        os.fsync(self._rows)
        self._append(self._pending)
        self._pending, self._pending_bytes = [], 0
        self._committed_at = time.monotonic()

    def _note(self, entry: Entry) -> None:
        self.entries[entry.file.path] = entry
        self._pending.append(entry)

    def _append(self, entries: Sequence[Entry]) -> None:
        lines = b"".join(json.dumps([*file, row, reason]).encode() + b"\n" for file, row, reason in entries)
        _write_at(self._index, lines, self._end)
        os.fsync(self._index)
        self._end += len(lines)


def _make_private(folder: Path) -> None:
    """Make a folder, and those around it, for the user alone; one that is there stays as it is."""
    for path in (*reversed(folder.parents), folder):
        path.mkdir(_PRIVATE_FOLDER, exist_ok=True)


def _write_at(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _wait_for(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.warning("Another process is filling %s: waiting for it.", folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
