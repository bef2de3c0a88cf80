"""The list of the films that a sync quarantines, for the person who looks at them in the archive."""

import csv
import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from training.common.errors import DataError

COLUMNS: Final = ("time", "study", "series", "sop", "reason")


class QuarantinedFilm(NamedTuple):
    """An instance that may show a name.

    Attributes:
        study: Study Instance UID.
        series: Series Instance UID.
        sop: SOP Instance UID.
        reason: Why it is not taken.
    """

    study: str
    series: str
    sop: str
    reason: str


@dataclass(frozen=True, slots=True)
class QuarantineList:
    """A CSV file that grows by a line for each film; several processes may append to it.

    Attributes:
        path: The file.
        file: The same, open, without a buffer.
    """

    path: Path
    file: BinaryIO

    def append(self, films: Iterable[QuarantinedFilm]) -> None:
        """Write films to the disk, with the time in UTC.

        Raises:
            DataError: They cannot be written.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        rows = [(now, *film) for film in films]
        if not rows:
            return
        lines = _lines(rows)
        try:
            if self.file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self.file.fileno())
        except OSError as error:
            raise _unusable(self.path, error.strerror) from error


@contextmanager
def quarantine_list(path: Path | None) -> Iterator[QuarantineList | None]:
    """Open the list, readable by its owner alone if it is new; without a path there is none.

    Raises:
        DataError: It cannot be written, or is another file.
    """
    if path is None:
        yield None
        return
    try:
        descriptor = _opened(path)
    except OSError as error:
        raise _unusable(path, error.strerror) from error
    with os.fdopen(descriptor, "ab+", buffering=0) as file:
        try:
            _begin(path, file)
        except OSError as error:
            raise _unusable(path, error.strerror) from error
        yield QuarantineList(path, file)


def _begin(path: Path, file: BinaryIO) -> None:
    """Write the header of a new file; end a line that was cut."""
    header = _lines([COLUMNS])
    if file.seek(0, os.SEEK_END) == 0:
        file.write(header)
        return
    file.seek(0)
    if file.read(len(header)) != header:
        raise _unusable(path, "it is not such a list")
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.write(b"\n")


def _opened(path: Path) -> int:
    # A pipe that nobody reads would never open.
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file")
    return descriptor


def _lines(rows: Iterable[tuple[str, ...]]) -> bytes:
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue().encode()


def _unusable(path: Path, reason: str | None) -> DataError:
    return DataError(
        f"The list of quarantined films {path} cannot be written ({reason}): give --quarantined another file."
    )
