"""A number in a file beside an SQLite catalogue, which every commit changes."""

import logging
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

# The numbers that were announced and settled last.
_NUMBERS: Final = struct.Struct("<QQ")
_ANNOUNCED_AT: Final = 0
_SETTLED_AT: Final = 8
# A larger one is damaged.
_LARGEST: Final = 2**63
_UNUSABLE: Final = -1
_FAILURES: Final = (OSError, struct.error)

_log = logging.getLogger(__name__)


class CommitCount:
    """Tells whether anything was committed, in a tenth of the time that it takes to ask SQLite.

    Whoever is about to commit announces the next number, and settles it once that is over, whatever came of
    it. Between the two nobody can tell what others see. After a process that was killed there it is so until
    the next commit.

    Args:
        database: The catalogue's file.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        # Whoever writes holds it: a number must not get into another file that was opened meanwhile.
        self._lock = threading.RLock()
        self._file: int | None = None
        self._close: Callable[[], object] | None = None
        self._told = False

    def settled(self) -> int | None:
        """Return the number of the last commit; None where one is under way, or the file does not tell."""
        if self._file == _UNUSABLE:
            return None
        try:
            announced, settled = _numbers(self._opened())
        except _FAILURES:
            if self._file is None:
                self._file = _UNUSABLE
            return None
        return settled if announced == settled else None

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Announce a commit and settle it at the end; the caller has the database's lock when this begins.

        Where the file cannot be written, this process asks SQLite from now on, and others find what is
        committed when they next do.
        """
        try:
            with self._lock:
                number = self._announce()
        except _FAILURES as error:
            self._give_up(error)
            yield
            return
        try:
            yield
        finally:
            # Without the lock, another commit may be over as well.
            with suppress(*_FAILURES), self._lock:
                file = self._opened()
                if _numbers(file)[1] < number:
                    _write(file, number, _SETTLED_AT)

    def close(self) -> None:
        """Close the file; the next look opens it again."""
        with self._lock:
            close, self._file, self._close = self._close, None, None
            if close is not None:
                close()

    def _give_up(self, error: Exception) -> None:
        self.close()
        self._file = _UNUSABLE
        if not self._told:
            _log.warning(
                "%s cannot be written (%s): other processes find a moment later what this one writes",
                _path(self._database),
                error,
            )
        self._told = True

    def _announce(self) -> int:
        # What kept the file from being used may be over.
        file = self._opened()
        number = 1 + max(_numbers(file))
        if number > _LARGEST:
            _write(file, 0, _SETTLED_AT)
            number = 1
        _write(file, number, _ANNOUNCED_AT)
        return number

    def _opened(self) -> int:
        file = self._file
        if file is not None and file != _UNUSABLE:
            return file
        with self._lock:
            file = self._file
            if file is None or file == _UNUSABLE:
                file = self._file = _open(self._database)
                # A catalogue may go without being closed.
                self._close = weakref.finalize(self, os.close, file)
            return file


def _open(database: Path) -> int:
    """Open the file beside a database; it is made of zeros, so that nobody finds it half made."""
    file = os.open(_path(database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(file).st_size < _NUMBERS.size:
            _make_like(file, database.stat())
            os.ftruncate(file, _NUMBERS.size)
    except OSError:
        os.close(file)
        raise
    return file


def _path(database: Path) -> Path:
    return database.with_name(f"{database.name}-commits")


def _make_like(file: int, database: os.stat_result) -> None:
    """Let whoever may write to the database write to a file, as it is with SQLite's own."""
    with suppress(PermissionError):
        os.fchmod(file, database.st_mode & 0o666)
        os.fchown(file, database.st_uid, database.st_gid)


def _numbers(file: int) -> tuple[int, int]:
    announced, settled = _NUMBERS.unpack(os.pread(file, _NUMBERS.size, 0))
    return announced, settled


def _write(file: int, number: int, place: int) -> None:
    os.pwrite(file, number.to_bytes(8, "little"), place)
