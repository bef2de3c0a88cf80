"""Which rows a search may find, remembered by filter."""

import math
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Iterable, Sized
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
# Up to so many numbers float32 is faster than 8 bits or codes, which have to be ranked once more.
WIDE: Final = 1024**2
# Nanoseconds that it takes to begin with codes, and to search few of them.
_CODES_BEGUN: Final = 500_000_000
_CODES_SEARCHED: Final = 100_000
# While a row is coded, so many can be scanned; and so many codes while one row is (measured).
_SCANNED_A_CODED: Final = 200
_CODES_A_SCANNED: Final = 16
# What codes save counts where it is a third of the time.
_WORTH_CODES: Final = 1.5
# What is kept side by side for all filters may take so many bytes, or so much of what the rows do.
_COPIES: Final = 64 * 1024**2
_COPIES_SHARE: Final = 1 / 16
# By how many queries a copy is timed, how often by each, and the hits of each.
_ASKED: Final = 8
_ROUNDS: Final = 3
_TIMED_HITS: Final = 10
# Where so large a share of what passes came or went, it is coded anew: to compare what came takes as long as
# to search the codes.
_CHANGED_SHARE: Final = 1 / 32
# The weight of the last query, and how fast it is forgotten where no query tells of it.
_LEARNT: Final = 0.2
_FORGOTTEN: Final = 0.02


@dataclass
class Met:
    """What the queries of late met: it is much the same from one to the next.

    Attributes:
        share: How many of the rows near them passed.
        found: How many of them found their hits by codes or a graph.
    """

    share: float = 1.0
    found: float = 1.0

    def note(self, share: float) -> None:
        """Take in what share passed near one more query."""
        self.share += _LEARNT * (share - self.share)

    def note_found(self, found: float) -> None:
        """Take in whether one more query found its hits, or what share of some did."""
        self.found += _LEARNT * (found - self.found)

    def forget(self, usual: float) -> None:
        """Go towards the share of all rows and towards hits, so that it is tried again before long."""
        self.share += _FORGOTTEN * (usual - self.share)
        self.found += _FORGOTTEN * (1 - self.found)


class SearchedCopy(ABC):
    """Vectors, or their codes, that were put side by side to be searched by themselves, by one thread.

    Attributes:
        deepest: Down to which rank they may find the hits.
        cost: Nanoseconds that a search of them takes; infinite until it is measured.
    """

    def __init__(self, deepest: float = math.inf) -> None:
        self.deepest = deepest
        self.cost = math.inf

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """Memory that they hold."""

    @abstractmethod
    def search(self, query: Vectors, k: int, after: After | None = None) -> Neighbours | None:
        """Find the `k` nearest vectors to a query (D,) of length one; see `VectorView`.

        Returns:
            None where the copies do not tell.
        """

    def measure(self, queries: Iterable[Vectors]) -> None:
        """Take the mean time of searches for some queries (D,), each at its quickest, as the cost."""
        quickest = []
        for query in queries:
            spent = []
            for _ in range(_ROUNDS):
                started = time.thread_time_ns()
                if self.search(query, _TIMED_HITS) is not None:
                    spent.append(time.thread_time_ns() - started)
            quickest += [min(spent)] if spent else []
        self.cost = sum(quickest) / len(quickest) if quickest else math.inf


class LastingCopy(SearchedCopy):
    """One that follows rows that come and go, as it takes long to make; others are made anew."""

    @abstractmethod
    def followed(self, mask: Mask, keys: Keys) -> "LastingCopy":
        """Return the like of this for other rows, once some were appended or died.

        Args:
            mask: Whether each row passes now; nearly all of these did.
            keys: The keys of all rows.
        """


class _Line:
    """A filter through all changes of rows; `latest` is None until the first."""

    def __init__(self) -> None:
        self.latest: weakref.ref[Passing] | None = None


@dataclass
class Passing:
    """The rows that may be found.

    Attributes:
        keys: What they were found from, kept so that no other array gets its identity; None without a filter.
        mask: Whether each row (N,) passes.
        count: How many do.
        near: How many of those near queries do.
        searches: How many searches it has served.
        asked: The queries (D,) of the last of them, by which what is side by side is timed.
        lost: Nanoseconds that they took longer than with codes of what passes, by estimate.
        copied: Their vectors or codes side by side, if they were copied.
        coded: Whether codes of them were begun with; nobody begins twice.
        changed: How many came or went since.
        barred: The rest of the rows, as a tensor, if rows on a device were searched.
    """

    keys: Keys | None
    mask: Mask
    count: int
    near: Met = field(default_factory=Met)
    searches: int = 0
    asked: deque[Vectors] = field(default_factory=lambda: deque(maxlen=_ASKED))
    lost: float = 0.0
    copied: SearchedCopy | None = None
    coded: bool = False
    changed: int = 0
    barred: Any = None
    _copying: threading.Lock = field(default_factory=threading.Lock)
    _line: _Line = field(default_factory=_Line)

    @cached_property
    def rows(self) -> Rows:
        """The rows that pass, rising."""
        return np.flatnonzero(self.mask)

    def is_worth_copying(self, dim: int) -> bool:
        """Tell whether to copy vectors of `dim` numbers: side by side they take a fraction of the time."""
        if self.copied is not None or self.keys is None:
            return False
        few = self.count * dim <= _COPIED and self.count <= _COPIED_SHARE * len(self.mask)
        return few and self.searches > 1 + self.count // _COPIED_A_SEARCH

    def begin_copying(self) -> bool:
        """Tell whether the caller is to copy them; nobody is asked twice."""
        return self._copying.acquire(blocking=False)

    def note(self, spent: float, dim: int, row_cost: float) -> bool:
        """Tell after a search whether to make codes: they would have saved as much as it takes to make them.

        Args:
            spent: Nanoseconds that the search took.
            dim: Length of a vector.
            row_cost: Nanoseconds to compare a query with one row.
        """
        if self.coded or self.count * dim <= WIDE:
            return False
        searched = _CODES_SEARCHED + self.count * row_cost / _CODES_A_SCANNED
        self.lost += max(0.0, spent - _WORTH_CODES * searched)
        return self.lost > _CODES_BEGUN + self.count * _SCANNED_A_CODED * row_cost

    def differs(self, before: "Passing") -> int:
        """Return how many rows came or went since `before`, when there were fewer rows."""
        count = len(before.mask)
        came = np.count_nonzero(self.mask[count:])
        return int(came + np.count_nonzero(self.mask[:count] != before.mask))

    def follow(self, before: "Passing", keys: Keys) -> None:
        """Take over what was learnt of a filter before rows came or went; see `LastingCopy.followed`."""
        self._line = before._line
        self._line.latest = weakref.ref(self)
        self.near, self.asked, self.lost = before.near, before.asked, before.lost
        self.changed = before.changed + self.differs(before)
        self.coded = before.coded and self.changed <= _CHANGED_SHARE * self.count
        if self.coded and isinstance(before.copied, LastingCopy):
            self.copied = before.copied.followed(self.mask, keys)

    @property
    def latest(self) -> "Passing | None":
        """What passes the same filter now; None where nobody remembers it."""
        return self if self._line.latest is None else self._line.latest()

    @cached_property
    def bits(self) -> Bits | None:
        """The mask in bits, or None when all rows pass."""
        return None if self.count == len(self.mask) else np.packbits(self.mask, bitorder="little")

    @cached_property
    def selector(self) -> Any:
        """The same for FAISS."""
        library: Any = faiss
        return None if self.bits is None else library.IDSelectorBitmap(self.bits)


class _Rows(Sized, Protocol):
    """All rows that may pass.

    Attributes:
        dim: Length of a vector.
    """

    dim: int


class Filters:
    """What passed the filters of late, by the identity of their arrays."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[int | None, Passing] = OrderedDict()
        # What passed before rows came or went, the latest first.
        self._before: list[Passing] = []

    @property
    def memory_bytes(self) -> int:
        """Memory that copied vectors hold."""
        with self._lock:
            known = self._remembered()
        return sum(passing.copied.memory_bytes for passing in known if passing.copied is not None)

    def holds(self, passing: Passing) -> bool:
        """Tell whether this is, or was before rows came or went, what passes a filter that is remembered."""
        with self._lock:
            latest = passing.latest
            return any(known is latest for known in self._remembered())

    def keep_coded(self, passing: Passing, copied: LastingCopy, rows: "_Rows", keys: Keys) -> None:
        """Keep codes as `keep_copied` does, though rows may have come or gone while they were made."""
        with self._lock:
            latest = passing.latest
            if latest is None or not latest.coded:
                return
            self._keep(latest, copied if latest is passing else copied.followed(latest.mask, keys), rows)

    def keep_copied(self, passing: Passing, copied: SearchedCopy, rows: "_Rows") -> None:
        """Keep what passes a filter side by side, and let go of that of others where it is too much.

        What is let go is not coded again until much of it came or went: else filters that do not fit
        together would be coded in turn, for ever.

        Args:
            passing: What passes.
            copied: Its vectors or codes.
            rows: All rows.
        """
        with self._lock:
            self._keep(passing, copied, rows)

    def _keep(self, passing: Passing, copied: SearchedCopy, rows: "_Rows") -> None:
        if passing.copied is not None and passing.copied.cost <= copied.cost:
            return
        passing.copied = copied
        most = max(_COPIES, _COPIES_SHARE * len(rows) * rows.dim * 2)
        others = [known for known in self._remembered() if known is not passing and known.copied]
        total = copied.memory_bytes + sum(known.copied.memory_bytes for known in others if known.copied)
        for known in others:
            if total > most and known.copied is not None:
                total -= known.copied.memory_bytes
                known.copied = None

    def _remembered(self) -> list[Passing]:
        """Return all, the one that was asked for longest ago first."""
        return [*reversed(self._before), *self._known.values()]

    def clear(self) -> None:
        """Forget everything, as rows moved."""
        with self._lock:
            self._known.clear()
            self._before.clear()

    def set_aside(self) -> None:
        """Begin anew, as rows were appended or died: what passes now follows what passed before."""
        with self._lock:
            filtered = [passing for passing in reversed(self._known.values()) if passing.keys is not None]
            for passing in filtered:
                if not isinstance(passing.copied, LastingCopy):
                    passing.copied = None
            self._before = (filtered + self._before)[:_REMEMBERED]
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
            known = self._known.setdefault(place, found)
            if known is found and allowed is not None:
                self._follow(found, places.keys)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
            del self._before[_REMEMBERED - len(self._known) :]
        return known

    def _follow(self, found: Passing, keys: Keys) -> None:
        """Have it follow that of what passed before which it is most like, if there is one much like it."""
        alike = []
        for place, before in enumerate(self._before):
            most = _CHANGED_SHARE * before.count
            if abs(found.count - before.count) <= most and (difference := found.differs(before)) <= most:
                alike.append((difference, place))
        if alike:
            found.follow(self._before.pop(min(alike)[1]), keys)


def _find(allowed: Keys | None, places: Positions) -> Passing:
    if allowed is None:
        return Passing(None, places.alive, len(places))
    rows, there = places.find(allowed)
    mask = np.zeros(len(places.keys), dtype=bool)
    mask[rows[there]] = True
    return Passing(allowed, mask, int(np.count_nonzero(there)))
