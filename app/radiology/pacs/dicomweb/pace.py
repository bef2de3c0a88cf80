"""Politeness towards an archive: requests a second, and the hours in which it is asked at all."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

_HOURS: Final = re.compile(r"([01]?\d|2[0-4])-([01]?\d|2[0-4])")
_LONGEST_PAUSE: Final = 30.0


class OutsideHoursError(Exception):
    """The hours in which the archive may be asked are over."""


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of the day, in the machine's local time, such as 20 to 6: from the first, before the last."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Hours":
        """Read hours such as 20-06.

        Raises:
            ValueError: They are none.
        """
        found = _HOURS.fullmatch(text.strip())
        first, last = (int(part) % 24 for part in found.groups()) if found else (0, 0)
        if found is None or first == last:
            raise ValueError(f"{text!r} is not two different hours of the day, such as 20-06")
        return cls(first, last)

    def include(self, hour: int) -> bool:
        """Tell whether an hour of the day is one of these."""
        if self.first < self.last:
            return self.first <= hour < self.last
        return hour >= self.first or hour < self.last

    def seconds_until(self, at: datetime) -> float:
        """Return the seconds until they begin; 0: they have."""
        if self.include(at.hour):
            return 0.0
        begin = at.replace(hour=self.first, minute=0, second=0, microsecond=0)
        begin = begin if begin > at else begin + timedelta(days=1)
        return (begin - at).total_seconds()


class Pace:
    """Lets threads ask the archive one after another.

    Args:
        rate: Most requests a second; None: no limit.
        hours: Hours in which requests are allowed; None: all.
        waits: Whether a request outside these hours waits for them; else it is refused.
        now: Gives the local time.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        rate: float | None = None,
        hours: Hours | None = None,
        *,
        waits: bool = False,
        now: Callable[[], datetime] = datetime.now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pause = 0.0 if rate is None else 1 / rate
        self._hours = hours
        self._waits = waits
        self._now, self._sleep = now, sleep
        self._lock = Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Wait for the turn of one request.

        Raises:
            OutsideHoursError: It is outside the hours.
        """
        while self._hours is not None and (left := self._hours.seconds_until(self._now())) > 0:
            if not self._waits:
                raise OutsideHoursError
            self._sleep(min(left, _LONGEST_PAUSE))
        if not self._pause:
            return
        with self._lock:
            at = max(time.monotonic(), self._next)
            self._next = at + self._pause
        left = at - time.monotonic()
        if left > 0:
            self._sleep(left)
