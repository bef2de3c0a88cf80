"""Limits of requests at work, and a budget of bytes for their bodies."""

import time
from dataclasses import dataclass
from typing import Final

# Share of the deadline that a new request may be expected to wait. Half of the requests exceed the mean.
_EXPECTED: Final = 0.5
# Weight of the latest request in the moving mean.
_WEIGHT: Final = 0.1
# A body that takes longer is a slow caller's, who keeps nobody out.
_SOON_S: Final = 0.5
# Half-life of the mean while idle: a past load says little of the next one.
_HALF_LIFE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a request: its start, the number of concurrent requests, and for how many it counts."""

    since: float
    number: int
    weight: int = 1


class ConcurrencyLimiter:
    """Limits the requests of one kind that are at work.

    They are taken when so many requests are at work, or earlier on a machine that is slow: a request waits
    for those before it, so it is expected to take as many times the seconds that each has taken of late.

    Attributes:
        kind: Named in figures.
        deadline_s: From the end of a request to its answer.
    """

    def __init__(self, kind: str, limit: int, deadline_s: float) -> None:
        self.kind = kind
        self.deadline_s = deadline_s
        self._limit = limit
        self._at_work = 0
        self._seconds_each = 0.0
        self._idle_since = time.monotonic()
        self._arriving: dict[int, float] = {}

    @property
    def is_full(self) -> bool:
        """Whether one more request would be too many, with those whose bodies are about to have come."""
        begun = time.monotonic() - _SOON_S
        while self._arriving and next(iter(self._arriving.values())) < begun:
            self._arriving.pop(next(iter(self._arriving)))
        return self._too_many(self._at_work + len(self._arriving))

    def announce(self, who: object) -> None:
        """Count a request whose body arrives, until it has come or is late."""
        self._arriving[id(who)] = time.monotonic()

    def withdraw(self, who: object) -> None:
        """Count a request no more as one that arrives."""
        self._arriving.pop(id(who), None)

    def take(self) -> Place | None:
        """Take a place; None: they are taken."""
        if self._too_many(self._at_work):
            return None
        if not self._at_work:
            idle_s = time.monotonic() - self._idle_since
            self._seconds_each *= 0.5 ** (idle_s / _HALF_LIFE_S)
        self._at_work += 1
        return Place(time.monotonic(), self._at_work)

    def widen(self, place: Place, weight: int) -> Place | None:
        """Return the place of a request that counts for several; None: there is no room beside others."""
        others = self._at_work - place.weight
        if others and self._too_many(others + weight - 1):
            return None
        self._at_work = others + weight
        return Place(place.since, others + weight, weight)

    def give_back(self, place: Place, *, answered: bool) -> None:
        """Give a place back; `answered` tells whether the request was worked on to its end."""
        self._at_work -= place.weight
        if not self._at_work:
            self._idle_since = time.monotonic()
        if answered:
            each = (time.monotonic() - place.since) / place.number
            self._seconds_each += _WEIGHT * (each - self._seconds_each)

    def _too_many(self, others: int) -> bool:
        """Whether one more than these is too many; a lone one never is."""
        late = others > 0 and (others + 1) * self._seconds_each > self.deadline_s * _EXPECTED
        return late or others >= self._limit


class Budget:
    """Bytes of bodies that are being read or worked on."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    def has_room(self, size: int) -> bool:
        """Whether so many bytes could be reserved now; where none are, any number can."""
        return not size or not self._used or self._used + size <= self._limit

    def reserve(self, size: int) -> bool:
        """Reserve bytes that have come; False: there is no room."""
        if not self.has_room(size):
            return False
        self._used += size
        return True

    def free(self, size: int) -> None:
        """Give bytes back."""
        self._used -= size
