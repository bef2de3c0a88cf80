"""Which rows a search may find, remembered by filter."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.positions import Mask, Positions, Rows
from index.vectors.protocol import After, Keys, Neighbours, Vectors

# One for each row, the first row's is the lowest of the first byte.
Bits = NDArray[np.uint8]

_REMEMBERED: Final = 8
# Of each filter so many numbers may be copied: a byte each, or four where that is faster and they are few.
_COPIED: Final = 16 * 1024**2
# A larger share of all rows is not copied: to pass over the others costs little then.
_COPIED_SHARE: Final = 0.25
# To copy so many rows takes as long as some searches for them.
_COPIED_A_SEARCH: Final = 2048
# The weight of the last query, and how fast it is forgotten where no query tells of it.
_LEARNT: Final = 0.2
_FORGOTTEN: Final = 0.02


@dataclass
class Met:
    """How many of the rows near queries have passed of late: it is much the same from one to the next."""

    share: float = 1.0

    def note(self, share: float) -> None:
        """Take in what share passed near one more query."""
        self.share += _LEARNT * (share - self.share)

    def forget(self, usual: float) -> None:
        """Go towards the share of all rows, so that it is looked at again before long."""
        self.share += _FORGOTTEN * (usual - self.share)


class SearchedCopy(Protocol):
    """Vectors that were copied to be searched by themselves.

    Attributes:
        cost: Nanoseconds that a search of them takes.
    """

    cost: float

    @property
    def memory_bytes(self) -> int:
        """Memory that they hold."""

    def search(self, query: Vectors, k: int, after: After | None = None) -> Neighbours | None:
        """Find the `k` nearest vectors to a query (D,) of length one, exactly; see `VectorView`.

        Returns:
            None where the copies do not tell.
        """


@dataclass
class Passing:
    """The rows that may be found.

    Attributes:
        keys: What they were found from, kept so that no other array gets its identity; None without a filter.
        mask: Whether each row (N,) passes.
        count: How many do.
        near: How many of those near queries do.
        searches: How many searches it has served.
        copied: Their vectors, if they were copied.
    """

    keys: Keys | None
    mask: Mask
    count: int
    near: Met = field(default_factory=Met)
    searches: int = 0
    copied: SearchedCopy | None = None
    _copying: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def rows(self) -> Rows:
        """The rows that pass, rising."""
        return np.flatnonzero(self.mask)

    def is_worth_copying(self, dim: int) -> bool:
        """Tell whether to copy vectors of `dim` numbers: side by side they take a fraction of the time."""
        few = self.count * dim <= _COPIED and self.count <= _COPIED_SHARE * len(self.mask)
        asked = self.keys is not None and self.searches > 1 + self.count // _COPIED_A_SEARCH
        return few and asked and self.copied is None

    def begin_copying(self) -> bool:
        """Tell whether the caller is to copy them; nobody is asked twice."""
        return self._copying.acquire(blocking=False)

    @cached_property
    def bits(self) -> Bits | None:
        """The mask in bits, or None when all rows pass."""
        return None if self.count == len(self.mask) else np.packbits(self.mask, bitorder="little")

    @cached_property
    def selector(self) -> Any:
        """The same for FAISS."""
        library: Any = faiss
        return None if self.bits is None else library.IDSelectorBitmap(self.bits)


class Filters:
    """What passed the filters of late, by the identity of their arrays, until rows change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[int | None, Passing] = OrderedDict()

    @property
    def memory_bytes(self) -> int:
        """Memory that copied vectors hold."""
        with self._lock:
            known = list(self._known.values())
        return sum(passing.copied.memory_bytes for passing in known if passing.copied is not None)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._known.clear()

    def passing(self, allowed: Keys | None, places: Positions) -> Passing:
        """Return the rows of the keys that a filter allows, or all living rows without one."""
        place = None if allowed is None else id(allowed)
        with self._lock:
            known = self._known.get(place)
            if known is not None:
                known.searches += 1
                self._known.move_to_end(place)
                return known
        found = _find(allowed, places)
        with self._lock:
            self._known[place] = found
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found


def _find(allowed: Keys | None, places: Positions) -> Passing:
    if allowed is None:
        return Passing(None, places.alive, len(places))
    rows, there = places.find(allowed)
    mask = np.zeros(len(places.keys), dtype=bool)
    mask[rows[there]] = True
    return Passing(allowed, mask, int(np.count_nonzero(there)))
