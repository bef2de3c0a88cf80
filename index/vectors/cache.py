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
        self._held: OrderedDict[Key, tuple[int, Value, int]] = OrderedDict()
        # A lock of each key that is being read: one thread reads its value, others wait for it.
        self._turns: WeakValueDictionary[Key, threading.Lock] = WeakValueDictionary()
        self._bytes = 0

    def get(
        self,
        place: Key,
        sequence: int,
        read: Callable[[], Value],
        catch_up: Callable[[int, Value], Value | None] | None = None,
    ) -> Value:
        """Return a value as it is at a sequence number, the same object as long as nothing of it changes.

        Threads that ask for the same at once read it once.

        Args:
            place: Key of the value.
            sequence: Number of the source's state; later ones are higher.
            read: Reads it anew; what it raises is passed on, and nothing is kept.
            catch_up: Updates a value of an earlier state; None, also where it returns that: it is read anew.
        """
        value, _ = self._at(place, sequence)
        if value is not None:
            return value
        with self._lock:
            turn = self._turns.setdefault(place, threading.Lock())
        with turn:
            value, earlier = self._at(place, sequence)
            if catch_up is not None and earlier is not None and value is None:
                value = catch_up(*earlier)
            if value is None:
                value = read()
            self._keep(place, sequence, value)
        return value

    def _at(self, place: Key, sequence: int) -> tuple[Value | None, tuple[int, Value] | None]:
        """Return the value that is held if it will do, and else what is held of an earlier state."""
        with self._lock:
            held = self._held.get(place)
            if held is None:
                return None, None
            if held[0] == sequence or (self._newer and held[0] > sequence):
                self._held.move_to_end(place)
                return held[1], None
            return None, held[:2] if held[0] < sequence else None

    def _keep(self, place: Key, sequence: int, value: Value) -> None:
        with self._lock:
            held = self._held.get(place)
            if held is not None and held[0] > sequence:
                return
            self._forget(place)
            # A key may be longer than what it stands for.
            cost = value.nbytes + len(str(place)) + _ENTRY_BYTES
            self._held[place] = (sequence, value, cost)
            self._bytes += cost
            while self._bytes > self._max_bytes and len(self._held) > 1:
                self._forget(next(iter(self._held)))

    @property
    def nbytes(self) -> int:
        """Memory that all values hold together."""
        with self._lock:
            return self._bytes

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._held.clear()
            self._bytes = 0

    def discard(self, place: Key) -> None:
        """Forget a value, if it is held."""
        with self._lock:
            self._forget(place)

    def _forget(self, place: Key) -> None:
        held = self._held.pop(place, None)
        if held is not None:
            self._bytes -= held[2]
