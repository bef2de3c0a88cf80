"""The one cache of what is made of other things, such as columns, masks and overviews."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", bound=_Sized)
_ENTRY_BYTES: Final = 1024


class IncrementalCache(Generic[Key, Value]):
    """LRU cache of values of a changing source, brought up to date where that pays; threads may share it.

    Args:
        max_bytes: Memory of all values; the least recently used are evicted, but never the latest.
        newer: Whether a state later than the requested one is acceptable.
    """

    def __init__(self, max_bytes: int, *, newer: bool = False) -> None:
        self._max_bytes = max_bytes
        self._newer = newer
        self._lock = threading.Lock()
        # The state, the value and the bytes of each entry.
        self._entries: OrderedDict[Key, tuple[int, Value, int]] = OrderedDict()
        # A lock of each key that is being read: one thread reads its value, others wait for it.
        self._turns: WeakValueDictionary[Key, threading.Lock] = WeakValueDictionary()
        self._bytes = 0

    def get(
        self,
        key: Key,
        sequence: int,
        read: Callable[[], Value],
        catch_up: Callable[[int, Value], Value | None] | None = None,
    ) -> Value:
        """Return a value as it is at a sequence number, the same object as long as nothing of it changes.

        Threads that ask for the same at once read it once.

        Args:
            key: Key of the value.
            sequence: Number of the source's state; later ones are higher.
            read: Reads it; its exceptions are passed on, and nothing is kept.
            catch_up: Updates a value of an earlier state; None, also as its result: it is read again.
        """
        value, _ = self._at(key, sequence)
        if value is not None:
            return value
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            value, earlier = self._at(key, sequence)
            if catch_up is not None and earlier is not None and value is None:
                value = catch_up(*earlier)
            if value is None:
                value = read()
            self._keep(key, sequence, value)
        return value

    def _at(self, key: Key, sequence: int) -> tuple[Value | None, tuple[int, Value] | None]:
        """Return the value if it is fresh enough; otherwise the entry of an earlier state."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None, None
            if entry[0] == sequence or (self._newer and entry[0] > sequence):
                self._entries.move_to_end(key)
                return entry[1], None
            return None, entry[:2] if entry[0] < sequence else None

    def _keep(self, key: Key, sequence: int, value: Value) -> None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry[0] > sequence:
                return
            self._forget(key)
            # A key may be longer than its value.
            cost = value.nbytes + len(str(key)) + _ENTRY_BYTES
            self._entries[key] = (sequence, value, cost)
            self._bytes += cost
            while self._bytes > self._max_bytes and len(self._entries) > 1:
                self._forget(next(iter(self._entries)))

    @property
    def nbytes(self) -> int:
        """Memory that all values hold together."""
        with self._lock:
            return self._bytes

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def discard(self, key: Key) -> None:
        """Remove a value, if it is cached."""
        with self._lock:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[2]
