"""Rows of numbers computed from images or texts before the first step, cached on disk or in memory."""

import errno
import fcntl
import hashlib
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from training.common.atomic import remove_folder
from training.common.errors import ImageError
from training.common.manifest import Manifest
from training.common.memory import fits_cache
from training.common.progress import ProgressBar, progress_bar
from training.common.workers import WorkerLostError

logger = logging.getLogger(__name__)

# Other users must not see patients' images.
PRIVATE_FILE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700
# A killed process loses the rows of so many seconds.
_COMMIT_SECONDS: Final = 10.0
# Leaves space for a run's checkpoints.
_SHARE_OF_DISK: Final = 0.8
# Size and time that no file has.
_NONE: Final = -1
# Fewer rows are recomputed within seconds.
_FEW: Final = 1_000
_CHUNK: Final = 256
_NOTE: Final = "made-of.txt"
_UNUSED_SECONDS: Final = 60 * 24 * 3600
_READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
Value = TypeVar("Value")
Row = NDArray[Any]
Reject = Callable[[int, str], None]


class SourceFile(NamedTuple):
    """State of a file: path, size in bytes, and change time of its inode in ns.

    Tools that preserve the modification time, such as `cp -p`, still update the inode's. A text is identified
    by its digest as path and its length in bytes.
    """

    path: str
    size: int
    changed: int


class Entry(NamedTuple):
    """Row number of a file, or the reason why it has no row."""

    file: SourceFile
    row: int | None
    reason: str = ""


Entries = dict[str, Entry]


class RowCache:
    """Cached rows of one data set's files, computed in one way; private to the user.

    The folder contains `rows`, a binary file, and `index.jsonl`; the last line about a file counts. A line is
    written after its row is synced to disk, so that the next process resumes after a killed one. Rows never
    move; a changed file's row is overwritten, and mapped files never become shorter.
    """

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.folder = folder
        self.row_bytes = math.prod(shape) * dtype.itemsize
        self._shape = shape
        self._dtype = dtype
        self._rows = folder / "rows"
        self._index = folder / "index.jsonl"

    def read(self) -> Entries:
        """Entries by path; none if the cache is damaged.

        Raises:
            OSError: It can't be read.
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
        """All rows (N, ...), memory-mapped.

        Raises:
            OSError: They can't be read.
        """
        count = self._rows.stat().st_size // self.row_bytes
        if not count:
            return np.empty((0, *self._shape), self._dtype)
        return np.asarray(np.memmap(self._rows, self._dtype, mode="r", shape=(count, *self._shape)))

    @contextmanager
    def writer(self) -> Iterator["RowWriter"]:
        """Add rows while other processes can't; what was added is kept even after an error.

        Raises:
            OSError: The cache can't be written, or its file system doesn't support locks.
        """
        index = self._lock()
        try:
            if not self.read():
                # New or damaged. A process that has mapped the old file keeps it.
                self._rows.unlink(missing_ok=True)
                os.truncate(index, 0)
            self._rows.touch(PRIVATE_FILE)
            with self._rows.open("r+b", buffering=0) as rows:
                writer = RowWriter(self.read(), index, rows.fileno(), self.row_bytes)
                try:
                    yield writer
                finally:
                    writer.commit()
        finally:
            os.close(index)

    def _lock(self) -> int:
        """File descriptor of the index, locked exclusively."""
        while True:
            # Existing folders keep their permissions.
            for path in (*reversed(self.folder.parents), self.folder):
                path.mkdir(_PRIVATE_FOLDER, exist_ok=True)
            index = os.open(self._index, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
            try:
                try:
                    fcntl.flock(index, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    logger.warning("Another process is filling %s: waiting for it.", self.folder)
                    fcntl.flock(index, fcntl.LOCK_EX)
                # It may have been removed between opening and locking.
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(index), self._index.stat()):
                        return index
            except BaseException:
                os.close(index)
                raise
            os.close(index)


class RowWriter:
    """Add rows to a locked cache; `entries` includes those added."""

    def __init__(self, entries: Entries, index: int, rows: int, row_bytes: int) -> None:
        self.entries = entries
        self._index = index
        self._rows = rows
        self._row_bytes = row_bytes
        self._next = 1 + max((entry.row for entry in entries.values() if entry.row is not None), default=-1)
        self._pending: list[Entry] = []
        self._committed_at = time.monotonic()
        # A killed process may have left half a line.
        self._end = os.pread(index, os.fstat(index).st_size, 0).rfind(b"\n") + 1

    def begin(self, files: Sequence[SourceFile]) -> None:
        """Invalidate the rows of changed files, to be overwritten, and check the disk space for new rows.

        Raises:
            OSError: The disk has too little space.
        """
        cached = (self.entries[file.path] for file in files if file.path in self.entries)
        changed = [entry for entry in cached if entry.row is not None]
        needed = (len(files) - len(changed)) * self._row_bytes
        free = shutil.disk_usage(self._rows).free
        if needed > _SHARE_OF_DISK * free:
            raise OSError(errno.ENOSPC, f"{needed / 1e9:,.1f} GB are needed, {free / 1e9:,.1f} GB are free")
        self._append([Entry(SourceFile(entry.file.path, _NONE, _NONE), entry.row) for entry in changed])

    def add(self, file: SourceFile, made: NDArray[Any] | str) -> None:
        """Add the row of a file, or the reason why it has none.

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
        self._note(Entry(file, row))
        if time.monotonic() - self._committed_at >= _COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Sync what was added since the last commit.

        Raises:
            OSError: The disk is full.
        """
        # Remove half a row that a full disk left.
        os.truncate(self._rows, self._next * self._row_bytes)
        os.fsync(self._rows)
        self._append(self._pending)
        self._pending, self._committed_at = [], time.monotonic()

    def _note(self, entry: Entry) -> None:
        self.entries[entry.file.path] = entry
        self._pending.append(entry)

    def _append(self, entries: Sequence[Entry]) -> None:
        lines = b"".join(json.dumps([*file, row, reason]).encode() + b"\n" for file, row, reason in entries)
        _write_at(self._index, lines, self._end)
        os.fsync(self._index)
        self._end += len(lines)


def _write_at(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


@dataclass(frozen=True)
class RowMaker:
    """Compute a row of numbers for each of `count` images or texts.

    Attributes:
        folder: Data folder.
        sources: Current state of each row's source; rows on disk whose source changed are recomputed.
        key: Identifies everything but the source that determines the numbers.
        what: Name of the rows in messages.
        make: Compute some rows, in order, or the reasons why there are none.
    """

    folder: Path
    count: int
    sources: Callable[[], Sequence[SourceFile]]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    key: str
    what: str
    make: Callable[[Sequence[int]], Iterable[Row | ImageError]]

    @property
    def nbytes(self) -> int:
        """Size of all rows in bytes."""
        return self.count * math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class PreparedRows:
    """Rows of a manifest's readable images.

    Attributes:
        array: (R, ...) all rows, in memory or mapped.
        readable: Numbers of the N records with a row.
        places: (N,) int64, index of each one's row in `array`.
    """

    array: Row
    readable: Sequence[int]
    places: NDArray[np.int64]

    @property
    def row_bytes(self) -> int:
        """Size of a row in bytes."""
        return math.prod(self.array.shape[1:]) * self.array.itemsize


class Together(Protocol):
    """Processes that train one model together and open its images at the same time."""

    def any_rank(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether any process sets it."""

    def main_first(self, act: Callable[[], Value]) -> Value:
        """Run an action first in the main process, then in the others."""


@dataclass(frozen=True)
class Room:
    """Where rows may be cached; the same for all processes of a run.

    Attributes:
        memory: Whether each process has memory for all rows.
        disk: Whether to use the user's cache folder if it has space.
    """

    memory: bool
    disk: bool


def find_room(nbytes: int, records: int, *, on_disk: bool, processes: Together, costly: bool = False) -> Room:
    """Where `nbytes` of rows may be cached; must be called before any process allocates memory for them.

    `costly` rows are cached on disk even if they are few.
    """
    fit = fits_cache(nbytes)
    tight, disk = processes.any_rank([not fit, on_disk and (costly or not (fit and records < _FEW))])
    return Room(memory=not tight, disk=disk)


def prepare(maker: RowMaker, reject: Reject, room: Room, *, show_progress: bool) -> PreparedRows | None:
    """Rows of all images; None if neither disk nor memory has space.

    Many rows are cached in the user's cache folder, which all processes and later runs share; otherwise each
    process keeps them in memory. `reject` is called for records without a row.

    Raises:
        DataError: Too many images are broken.
    """
    if room.disk:
        try:
            return _on_disk(maker, reject, show_progress)
        except OSError as error:
            logger.warning(
                "The prepared %s cannot be kept on disk (%s): name a folder that has room in XDG_CACHE_HOME.",
                maker.what,
                f"{error.filename}: {error.strerror}" if error.filename else error.strerror,
            )
    if room.memory:
        return _in_memory(maker, reject, show_progress)
    needed = f"{maker.nbytes / 1e9:,.1f}"
    logger.warning("The prepared %s need %s GB, more than the memory holds.", maker.what, needed)
    return None


def cache_folder() -> Path:
    """Folder of rows cached for later runs.

    Raises:
        OSError: The user has no home folder.
    """
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(named) if named else Path.home() / ".cache") / "recoquest" / "images"
    except RuntimeError as error:
        raise OSError(errno.ENOENT, "there is no home folder") from error


def _in_memory(maker: RowMaker, reject: Reject, show_progress: bool) -> PreparedRows:
    total = maker.count
    array = np.empty((total, *maker.shape), maker.dtype)
    readable = []
    with progress_bar(f"preparing {maker.what}", total, shown=show_progress) as bar:
        for row, made in _made(maker, range(total), bar):
            if isinstance(made, ImageError):
                reject(row, str(made))
            else:
                array[row] = made
                readable.append(row)
    return PreparedRows(array, readable, np.array(readable, dtype=np.int64))


def _made(maker: RowMaker, rows: Sequence[int], bar: ProgressBar) -> Iterator[tuple[int, Row | ImageError]]:
    for start in range(0, len(rows), _CHUNK):
        some = rows[start : start + _CHUNK]
        for row, made in zip(some, maker.make(some), strict=True):
            yield row, made
            bar.advance()


def _on_disk(maker: RowMaker, reject: Reject, show_progress: bool) -> PreparedRows:
    # The name identifies the data and how rows are computed.
    decides = json.dumps([str(maker.folder.resolve()), maker.key, maker.shape, str(maker.dtype)])
    name = hashlib.sha256(decides.encode()).hexdigest()[:20]
    cache = RowCache(cache_folder() / name, maker.shape, maker.dtype)
    files = maker.sources()
    entries = cache.read()
    rejected: set[int] = set()

    def reject_once(row: int, reason: str) -> None:
        if row not in rejected:
            rejected.add(row)
            reject(row, reason)

    if _missing(files, entries):
        entries = _filled(maker, cache, files, reject_once, show_progress)
    _note_use(cache.folder, maker.folder)
    readable, indices = [], []
    for row, file in enumerate(files):
        entry = entries[file.path]
        if entry.row is None:
            reject_once(row, entry.reason)
        else:
            readable.append(row)
            indices.append(entry.row)
    return PreparedRows(cache.map(), readable, np.array(indices, dtype=np.int64))


def image_files(manifest: Manifest) -> list[SourceFile]:
    """Current state of a manifest's image files; size 0 if a file is inaccessible."""
    files = []
    for record in manifest.records:
        try:
            about = manifest.image_path(record).stat()
        except OSError:
            # Decoding will report why.
            files.append(SourceFile(record.image, 0, 0))
        else:
            files.append(SourceFile(record.image, about.st_size, about.st_ctime_ns))
    return files


def _missing(files: Sequence[SourceFile], entries: Entries) -> dict[SourceFile, int]:
    """Files without an up-to-date entry, with the first record of each."""
    missing: dict[SourceFile, int] = {}
    for row, file in enumerate(files):
        entry = entries.get(file.path)
        if entry is None or entry.file != file:
            missing.setdefault(file, row)
    return missing


def _filled(
    maker: RowMaker, cache: RowCache, files: Sequence[SourceFile], reject: Reject, show_progress: bool
) -> Entries:
    """Compute all missing rows while other processes wait, and return all entries."""
    _remove_unused(cache_folder())
    with cache.writer() as writer:
        missing = _missing(files, writer.entries)
        if not missing:
            # Another process has just computed them.
            return writer.entries
        writer.begin(list(missing))
        _note_use(cache.folder, maker.folder)
        if any(file != SourceFile(file.path, 0, 0) for file in missing):
            logger.warning(
                "Prepared %s are kept in %s for later runs, %.1f GB in all; it may be deleted between runs.",
                maker.what,
                cache.folder,
                maker.nbytes / 1e9,
            )
        passing: Entries = {}
        by_row = {row: file for file, row in missing.items()}
        with progress_bar(
            f"preparing {maker.what}", len(files), done=len(files) - len(missing), shown=show_progress
        ) as bar:
            for row, made in _made(maker, list(by_row), bar):
                file = by_row[row]
                if not isinstance(made, ImageError):
                    writer.add(file, made)
                    continue
                reject(row, str(made))
                if _may_pass(made):
                    passing[file.path] = Entry(file, None, str(made))
                else:
                    writer.add(file, str(made))
    return writer.entries | passing


def _may_pass(error: ImageError) -> bool:
    """Whether an error may be temporary: the file couldn't be accessed, or its decoder crashed."""
    cause = error.__cause__
    return isinstance(cause, WorkerLostError) or (isinstance(cause, OSError) and cause.errno is not None)


def _note_use(folder: Path, data: Path) -> None:
    """Record in a cache which data it belongs to and, by the file's time, when it was last used."""
    try:
        (folder / _NOTE).touch(PRIVATE_FILE)
        (folder / _NOTE).write_bytes(os.fsencode(f"{data.resolve()}\n"))
    except OSError as error:
        # Another user's cache may be read-only.
        if error.errno not in _READ_ONLY:
            raise


def _remove_unused(root: Path) -> None:
    """Remove caches whose data is gone or that weren't used for two months."""
    for note in root.glob(f"[!.]*/{_NOTE}"):
        # Another process may be removing it; another user's may be inaccessible.
        with suppress(OSError):
            data = Path(os.fsdecode(note.read_bytes()).rstrip("\n"))
            if not data.is_dir() or time.time() - note.stat().st_mtime > _UNUSED_SECONDS:
                remove_folder(note.parent)
    for left in root.glob(".*.old"):
        # Left by a process that was killed while removing a cache.
        shutil.rmtree(left, ignore_errors=True)
