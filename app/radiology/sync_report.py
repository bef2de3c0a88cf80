"""The outcome of a pass over an archive, and the list of the films that it quarantines."""

import csv
import errno
import io
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from index.catalogue.studies import Outcome
from training.common.errors import DataError

_SHOWN: Final = 8
COLUMNS: Final = ("time", "study", "series", "sop", "reason")


@dataclass(slots=True)
class SyncReport:
    """Counts of instances, by outcome.

    Attributes:
        refused: Instances that cannot be used, or that the archive did not give.
        left_out: Instances that the filters leave out, and those that are no images.
        removed: Images of instances that the archive no longer has, and that were removed.
        reports: Structured reports among those that this pass brought over.
        reports_removed: Structured reports that the archive no longer has, and that were removed.
        absent: Named studies that the archive does not have within the filters, and that were not known.
        failures: Pieces of studies that the archive failed to return; the next pass retries them.
        waiting: Whether the hours ended before everything was looked at.
        doubts: Sentences on studies that the archive may have and does not list.
        reasons: Number of instances by the reason why they were not taken in this pass.
    """

    taken: int = 0
    up_to_date: int = 0
    refused: int = 0
    left_out: int = 0
    quarantined: int = 0
    removed: int = 0
    reports: int = 0
    reports_removed: int = 0
    studies: int = 0
    absent: int = 0
    failures: int = 0
    waiting: bool = False
    doubts: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def found(self) -> int:
        """Instances that the archive has within the filters of studies."""
        return self.taken + self.up_to_date + self.refused + self.left_out + self.quarantined

    @property
    def has_changed(self) -> bool:
        """True if the pass changed the collection."""
        return bool(self.taken or self.removed or self.reports_removed)

    def count(self, outcome: Outcome, reason: str = "", *, known: bool = False, number: int = 1) -> None:
        """Count instances; `known`: that is their outcome of an earlier pass."""
        name = "up_to_date" if known and outcome == "taken" else outcome.replace(" ", "_")
        setattr(self, name, getattr(self, name) + number)
        if reason and number:
            self.reasons[f"{outcome}: {reason.rstrip('.')}"] += number

    def line(self, collection: str) -> str:
        """Return the result in one line."""
        names = ("taken", "up to date", "refused", "left out", "quarantined")
        counted = " + ".join(f"{getattr(self, name.replace(' ', '_')):,} {name}" for name in names)
        removed = f" Removed: {self.removed:,}." if self.removed else ""
        report_counts = f" Reports: {self.reports:,} taken, {self.reports_removed:,} removed."
        reports = report_counts if self.reports or self.reports_removed else ""
        more = " or more" if self.doubts else ""
        line = f"{collection}: {self.studies:,} studies{more}; {self.found:,} instances found = {counted}."
        return f"{line}{removed}{reports}"

    def sentences(self) -> list[str]:
        """Return the doubts, and the commonest reasons why instances were not taken, with their numbers."""
        return self.doubts + [f"{count:,} {reason}." for reason, count in self.reasons.most_common(_SHOWN)]


@dataclass(frozen=True, slots=True)
class QuarantineList:
    """A CSV file that grows by a line for each film; several processes may append to it.

    Attributes:
        file: The same, open, without a buffer.
    """

    path: Path
    file: BinaryIO

    def append(self, films: Iterable[tuple[str, str, str, str]]) -> None:
        """Write films that may show a name to the disk: study, series, SOP, reason; with the time in UTC."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        lines = _lines((now, *film) for film in films)
        if not lines:
            return
        with _naming(self.path):
            if self.file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self.file.fileno())


@contextmanager
def quarantine_list(path: Path | None) -> Iterator[QuarantineList | None]:
    """Open the list, readable by its owner alone if it is new; without a path there is none.

    Raises:
        DataError: It cannot be written, or is another file.
    """
    if path is None:
        yield None
        return
    with ExitStack() as opened:
        with _naming(path):
            # A pipe that nobody reads would never open.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
            file = opened.enter_context(os.fdopen(os.open(path, flags, 0o600), "ab+", buffering=0))
            _begin(file)
        yield QuarantineList(path, file)


def _begin(file: BinaryIO) -> None:
    """Write the header of a new file; end a line that was cut."""
    header = _lines([COLUMNS])
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise OSError(errno.EINVAL, "it is no file")
    if file.seek(0, os.SEEK_END) == 0:
        file.write(header)
        return
    file.seek(0)
    if file.read(len(header)) != header:
        raise OSError(errno.EINVAL, "it is not such a list")
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.write(b"\n")


def _lines(rows: Iterable[tuple[str, ...]]) -> bytes:
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue().encode()


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say which file cannot be used, and why."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"The list of quarantined films {path} cannot be written ({error.strerror}): give --quarantined "
            "another file."
        ) from error
