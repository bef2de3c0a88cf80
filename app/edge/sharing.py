"""What the processes of one `recoquest serve` share: counts, events, texts, and locks that end with it.

All of it is made before the processes are forked, and inherited by each at the same address.
"""

import fcntl
import mmap
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

# Ranges of the lock file.
_LEAD: Final = 0
_TABLES: Final = 1
_NUMBER: Final = struct.Struct("q")
# Which text counts, and the sizes of both.
_HEAD: Final = struct.Struct("3q")


class Count:
    """A number to which each process adds its own part, which is removed when the process ends."""

    def __init__(self, sharing: "Sharing", parts: "memoryview[int]") -> None:
        self._sharing = sharing
        self._parts = parts

    @property
    def own(self) -> int:
        """The part of this process."""
        return self._parts[self._sharing.index]

    @own.setter
    def own(self, number: int) -> None:
        self._parts[self._sharing.index] = number

    def part(self, index: int) -> int:
        """The part of the process with an index."""
        return self._parts[index]

    @property
    def total(self) -> int:
        """The parts of all processes."""
        return sum(self._parts)


class Events:
    """The latest events of all processes, of which each process takes those that it doesn't know yet.

    Args:
        form: Form of an event, as of `struct`.
        kept: A process that looks less often than after so many events misses the oldest.
    """

    def __init__(self, sharing: "Sharing", form: str, kept: int) -> None:
        self._form = struct.Struct(form)
        self._kept = kept
        self._memory = sharing.memory(_NUMBER.size + kept * self._form.size)
        self._taken = 0

    def take(self) -> Iterator[tuple[Any, ...]]:
        """Give the events since the last call, with the lock of `Sharing` held."""
        (written,) = _NUMBER.unpack_from(self._memory)
        for number in range(max(self._taken, written - self._kept), written):
            yield self._form.unpack_from(self._memory, self._offset(number))
        self._taken = written

    def put(self, *event: object) -> None:
        """Add an event, with the lock held; `take` gives it to this process as well."""
        (written,) = _NUMBER.unpack_from(self._memory)
        self._form.pack_into(self._memory, self._offset(written), *event)
        # Last: a process may end anywhere.
        _NUMBER.pack_into(self._memory, 0, written + 1)

    def _offset(self, number: int) -> int:
        return _NUMBER.size + number % self._kept * self._form.size


class Texts:
    """A text of each process, which all read; it outlives its process.

    Args:
        room: Most bytes of a text; memory is taken only by those that are written.
    """

    def __init__(self, sharing: "Sharing", room: int) -> None:
        self._sharing = sharing
        self._room = room
        self._memory = [sharing.memory(_HEAD.size + 2 * room) for _ in range(sharing.processes)]

    def write(self, text: bytes) -> None:
        """Replace the text of this process.

        Raises:
            ValueError: It is too long.
        """
        if len(text) > self._room:
            raise ValueError(f"a text of {len(text)} bytes is too long")
        memory = self._memory[self._sharing.index]
        with self._sharing.locked():
            valid, *sizes = _HEAD.unpack_from(memory)
            start = _HEAD.size + (1 - valid) * self._room
            memory[start : start + len(text)] = text
            sizes[1 - valid] = len(text)
            # Last: a process may end anywhere.
            _HEAD.pack_into(memory, 0, 1 - valid, *sizes)

    def read(self, index: int) -> bytes:
        """Return the text that the process with an index has written; empty: none yet."""
        memory = self._memory[index]
        with self._sharing.locked():
            valid, *sizes = _HEAD.unpack_from(memory)
            start = _HEAD.size + valid * self._room
            return bytes(memory[start : start + sizes[valid]])


class Sharing:
    """Shared by processes that are forked later; each then sets its index.

    Attributes:
        processes: Their number.
        index: Index of this process, from 0.
        serving: Counts the processes that take requests.
    """

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes
        self.index = 0
        self._counts: list[memoryview[int]] = []
        self._file = None if processes == 1 else tempfile.TemporaryFile()  # noqa: SIM115 - it stays open
        self._is_main = processes == 1
        # The system's lock does not keep threads of a process apart.
        self._lock = threading.Lock()
        self.serving = self.count()

    def count(self) -> Count:
        """Return another count, which is 0."""
        parts = self.memory(self.processes * _NUMBER.size).cast("q")
        self._counts.append(parts)
        return Count(self, parts)

    def memory(self, size: int) -> "memoryview[int]":
        """Return so many bytes of memory that all processes share, which are 0."""
        return memoryview(bytearray(size) if self.processes == 1 else mmap.mmap(-1, size))

    def clear(self, index: int) -> None:
        """Remove the counts of a process that has ended."""
        for parts in self._counts:
            parts[index] = 0

    def is_main(self) -> bool:
        """Whether this process does what only one has to; another does so once that one has ended.

        The system frees the lock of a process that ends, however it ends.
        """
        if not self._is_main and self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LEAD)
            except OSError:
                return False
            self._is_main = True
        return self._is_main

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of shared memory, for microseconds; a thread must not take it twice."""
        with self._lock:
            if self._file is None:
                yield
                return
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, _TABLES)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _TABLES)
