"""What the processes of one `recoquest serve` share: counts in memory, and locks that end with a process.

All of it is made before the processes are forked, and found by each in the same place.
"""

import fcntl
import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

# Ranges of the lock file.
_LEAD: Final = 0
_TABLES: Final = 1
_NUMBER_BYTES: Final = 8


class Count:
    """A number to which each process adds its own part, which is gone when the process ends."""

    def __init__(self, sharing: "Sharing", parts: "memoryview[int]") -> None:
        self._sharing = sharing
        self._parts = parts

    @property
    def own(self) -> int:
        """The part of this process."""
        return self._parts[self._sharing.place]

    @own.setter
    def own(self, number: int) -> None:
        self._parts[self._sharing.place] = number

    def part(self, place: int) -> int:
        """The part of the process in a place."""
        return self._parts[place]

    @property
    def total(self) -> int:
        """The parts of all processes."""
        return sum(self._parts)


class Sharing:
    """Shared by processes that are forked later; each then takes its place.

    Attributes:
        processes: Their number.
        place: The place of this process, from 0 on.
        figures: Folder of the figures of each process; None where there is one.
        serving: Counts the processes that take requests.
    """

    def __init__(self, processes: int = 1, figures: Path | None = None) -> None:
        self.processes = processes
        self.place = 0
        self.figures = figures
        self._counts: list[memoryview[int]] = []
        self._file = None if processes == 1 else tempfile.TemporaryFile()  # noqa: SIM115 - it stays open
        self._leads = processes == 1
        self.serving = self.count()

    def count(self) -> Count:
        """Return another count, which is 0."""
        size = self.processes * _NUMBER_BYTES
        parts = memoryview(bytearray(size) if self.processes == 1 else mmap.mmap(-1, size)).cast("q")
        self._counts.append(parts)
        return Count(self, parts)

    def clear(self, place: int) -> None:
        """Forget what a process that has ended had counted."""
        for parts in self._counts:
            parts[place] = 0

    def leads(self) -> bool:
        """Whether this process does what only one has to; another does so once that one has ended.

        The system frees the lock of a process that ends, however it ends.
        """
        if not self._leads and self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LEAD)
            except OSError:
                return False
            self._leads = True
        return self._leads

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of shared tables, for microseconds; a process must not take it twice."""
        if self._file is None:
            yield
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, _TABLES)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _TABLES)
