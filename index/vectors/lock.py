"""A lock for many readers or one writer."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class ReadWriteLock(AbstractContextManager[None]):
    """Lock that readers share and a writer holds alone; a waiting writer goes before later readers.

    A thread must not take the lock twice. Readers enter the lock itself: searches take it too often to make a
    context manager each time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._readers = 0
        self._writing = False
        self._writers_waiting = 0

    def reading(self) -> AbstractContextManager[None]:
        """Hold the lock together with other readers."""
        return self

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._changed:
            self._writers_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._readers)
                self._writing = True
            except BaseException:
                # Readers wait for this writer, and no one else would wake them.
                self._changed.notify_all()
                raise
            finally:
                self._writers_waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def __enter__(self) -> None:
        """Wait until no writer holds the lock or waits for it."""
        # The condition's own methods would take as long as the rest.
        with self._lock:
            while self._writing or self._writers_waiting:
                self._changed.wait()
            self._readers += 1

    def __exit__(self, *_: object) -> None:
        """Let a waiting writer in if this was the last reader."""
        with self._lock:
            self._readers -= 1
            if self._writers_waiting and not self._readers:
                self._changed.notify_all()
