"""A lock for many readers or one writer."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class ReadWriteLock:
    """Readers share, a writer is alone; a waiting writer goes before readers that come later.

    A thread must not take it twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._readers = 0
        self._writing = False
        self._writers_waiting = 0
        self._shared = _Shared(self)

    def reading(self) -> AbstractContextManager[None]:
        """Hold the lock together with other readers."""
        return self._shared

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._changed:
            self._writers_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._readers)
                self._writing = True
            finally:
                self._writers_waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def begin_reading(self) -> None:
        """Wait until no writer holds the lock or waits for it."""
        # The condition's own methods would take as long as the rest.
        with self._lock:
            while self._writing or self._writers_waiting:
                self._changed.wait()
            self._readers += 1

    def end_reading(self) -> None:
        """Let a waiting writer in if this was the last reader."""
        with self._lock:
            self._readers -= 1
            if self._writers_waiting and not self._readers:
                self._changed.notify_all()


class _Shared(AbstractContextManager[None]):
    """What `reading` gives to every reader: a search takes it too often for a generator each time."""

    def __init__(self, lock: ReadWriteLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.begin_reading()

    def __exit__(self, *_: object) -> None:
        self._lock.end_reading()
