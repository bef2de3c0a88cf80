"""Rows made of images or texts before the first step: on disk where they are many, or in memory."""

import errno
import hashlib
import json
import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from training.common.atomic import remove_folder
from training.common.errors import ImageError
from training.common.manifest import Manifest
from training.common.memory import fits_cache
from training.common.progress import ProgressBar, progress_bar
from training.common.workers import WorkerLostError
from training.data.row_cache import PRIVATE_FILE, Entries, Entry, RowCache, SourceFile

logger = logging.getLogger(__name__)

# Fewer are made anew in a few seconds.
_FEW: Final = 1_000
_CHUNK: Final = 256
_NOTE: Final = "made-of.txt"
_UNUSED_SECONDS: Final = 60 * 24 * 3600
_READ_ONLY: Final = (errno.EACCES, errno.EPERM, errno.EROFS)

Value = TypeVar("Value")
Row = NDArray[Any]
Reject = Callable[[int, str], None]


@dataclass(frozen=True)
class RowMaker:
    """Makes a row of numbers of each image or text of a data set.

    Attributes:
        folder: Of the data set.
        count: How many there are.
        sources: Looks at what each is made of; a row on disk whose source has changed is made anew.
        shape: Of a row.
        dtype: Of its numbers.
        key: Tells all that decides the numbers besides the source.
        what: Name of the rows, for messages.
        make: What is made of some of them, in order: a row, or why there is none.
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
    """The rows of a manifest's readable images.

    Attributes:
        array: (R, ...) all rows that there are, in memory or mapped.
        readable: The N records whose image can be read.
        places: (N,) int64, where in `array` the row of each is.
    """

    array: Row
    readable: Sequence[int]
    places: NDArray[np.int64]

    @property
    def row_bytes(self) -> int:
        """Size of a row in bytes."""
        return math.prod(self.array.shape[1:]) * self.array.itemsize


class Together(Protocol):
    """Processes that train one model, and open its images at the same moment."""

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether it is set in any process."""

    def leader_first(self, act: Callable[[], Value]) -> Value:
        """The result of an action that the others begin when the leading process has done it."""


@dataclass(frozen=True)
class Room:
    """Where rows may be kept, the same for all processes of a run.

    Attributes:
        memory: Each process can hold all of them.
        disk: They go to the user's cache folder, if that can hold them.
    """

    memory: bool
    disk: bool


def find_room(nbytes: int, records: int, *, on_disk: bool, processes: Together, costly: bool = False) -> Room:
    """Where rows may be kept; asked before any process takes memory, of which the others would see less.

    Args:
        nbytes: Size of all rows.
        records: Number of rows.
        on_disk: Whether they may be kept on a disk.
        processes: Open the same images.
        costly: A few take long to make as well, so they are kept on disk like many.
    """
    fit = fits_cache(nbytes)
    tight, disk = processes.any_of([not fit, on_disk and (costly or not (fit and records < _FEW))])
    return Room(memory=not tight, disk=disk)


def prepare(maker: RowMaker, reject: Reject, room: Room, *, show_progress: bool) -> PreparedRows | None:
    """The rows of all images; None where neither disk nor memory can hold them.

    Many are kept in the user's cache folder, where all processes map them and later runs find them. Where
    that cannot be, each process has them in its memory.

    Args:
        maker: Makes them.
        reject: Counts a record whose image cannot be read.
        room: Where they may be kept.
        show_progress: Show a bar on standard error.

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
    """Where rows are kept for later runs.

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
    cache = RowCache(cache_folder() / _name(maker), maker.shape, maker.dtype)
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
    readable, places = [], []
    for row, file in enumerate(files):
        entry = entries[file.path]
        if entry.row is None:
            reject_once(row, entry.reason)
        else:
            readable.append(row)
            places.append(entry.row)
    return PreparedRows(cache.map(), readable, np.array(places, dtype=np.int64))


def _name(maker: RowMaker) -> str:
    """Name of the folder of a cache: the data, and how rows are made of them."""
    folder = str(maker.folder.resolve())
    decides = json.dumps([folder, maker.key, maker.shape, str(maker.dtype)])
    return hashlib.sha256(decides.encode()).hexdigest()[:20]


def image_files(manifest: Manifest) -> list[SourceFile]:
    """The image files of a manifest at this moment."""
    return [_source_file(manifest, row) for row in range(len(manifest.records))]


def _source_file(manifest: Manifest, row: int) -> SourceFile:
    record = manifest.records[row]
    try:
        about = manifest.image_path(record).stat()
    except OSError:
        # Decoding says why.
        return _out_of_reach(record.image)
    return SourceFile(record.image, about.st_size, about.st_ctime_ns)


def _out_of_reach(path: str) -> SourceFile:
    return SourceFile(path, 0, 0)


def _missing(files: Sequence[SourceFile], entries: Entries) -> dict[SourceFile, int]:
    """The files that nothing is known of, with the first record of each."""
    missing: dict[SourceFile, int] = {}
    for row, file in enumerate(files):
        entry = entries.get(file.path)
        if entry is None or entry.file != file:
            missing.setdefault(file, row)
    return missing


def _filled(
    maker: RowMaker, cache: RowCache, files: Sequence[SourceFile], reject: Reject, show_progress: bool
) -> Entries:
    """Make all missing rows, and return what is known then; other processes wait, and find them there."""
    _remove_unused(cache_folder())
    with cache.writer() as writer:
        missing = _missing(files, writer.entries)
        if not missing:
            # Another process has made them.
            return writer.entries
        writer.begin(list(missing))
        _note_use(cache.folder, maker.folder)
        if any(file != _out_of_reach(file.path) for file in missing):
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
    """Whether a file could not be read, or its decoder was lost, which need not lie in the file."""
    cause = error.__cause__
    return isinstance(cause, WorkerLostError) or (isinstance(cause, OSError) and cause.errno is not None)


def _note_use(folder: Path, data: Path) -> None:
    """Note in a cache which data it is of, and by the time of the note that it is used."""
    try:
        (folder / _NOTE).touch(PRIVATE_FILE)
        (folder / _NOTE).write_bytes(os.fsencode(f"{data.resolve()}\n"))
    except OSError as error:
        # A cache that others filled may be read-only.
        if error.errno not in _READ_ONLY:
            raise


def _remove_unused(root: Path) -> None:
    """Remove the caches of data that are gone, and those that no run has used for two months."""
    for note in root.glob(f"[!.]*/{_NOTE}"):
        # Another process may remove it at this moment; another user's may be out of reach.
        with suppress(OSError):
            data = Path(os.fsdecode(note.read_bytes()).rstrip("\n"))
            if not data.is_dir() or time.time() - note.stat().st_mtime > _UNUSED_SECONDS:
                remove_folder(note.parent)
    for left in root.glob(".*.old"):
        # A process was killed while it removed a cache.
        shutil.rmtree(left, ignore_errors=True)
