"""The open connections of a server: their number, the time that each may take, and why some were ended."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import structlog

from app.edge.server.heads import HeadLimits

Reason = Literal["head-timeout", "body-timeout", "answer-unread", "replaced", "refused", "malformed"]

_SWEEP_S: Final = 0.25
# Beyond this share of the places, connections without a request are ended ...
_FULL: Final = 0.75
# ... that had the time to send one.
_A_MOMENT_S: Final = 0.1
_LOG_EVERY_S: Final = 5.0
# Connections beyond the limit, for checks of health.
_RESERVE: Final = 32
# Connections that were told of their end and may still read it.
_MAX_LEAVING: Final = 256

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of connections, in seconds where nothing else is said.

    Attributes:
        connections: Maximum number of open connections.
        head_s: Seconds from the opening, or the first byte of a later request, to the end of the head.
        stall_s: Seconds without a byte of an unfinished body.
        body_s: From the end of a head to the end of a body, beside the time for its bytes.
        body_rate: Least bytes a second of a body in the mean.
        answer_s: Without the caller reading on in its answer.
        leave_s: For a caller to read why its connection ends.
    """

    connections: int = 1024
    head_s: float = 10.0
    stall_s: float = 10.0
    body_s: float = 30.0
    body_rate: float = 32 * 1024
    answer_s: float = 30.0
    leave_s: float = 2.0
    head: HeadLimits = field(default_factory=HeadLimits)


class Watched(Protocol):
    """A connection as its watcher sees it."""

    def look(self, now: float) -> None:
        """End what takes too long."""

    def spare_for(self, now: float) -> float | None:
        """For how long nobody has needed the connection; None while somebody does."""

    def replace(self) -> None:
        """End, because another connection needs the place."""


class Connections:
    """Counts connections, looks at each a few times a second, and sums up in the log which it has ended.

    Beyond three quarters of the places, connections that wait for a request are ended, those that have waited
    longest first: who sends nothing, or a byte at a time, keeps nobody out.
    """

    def __init__(self, limits: ConnectionLimits, ended: Callable[[Reason], None]) -> None:
        self.limits = limits
        self._ended = ended
        self._open: dict[Watched, None] = {}
        self._leaving: set[Watched] = set()
        self._unlogged: Counter[Reason] = Counter()
        self._turns: deque[Callable[[], object]] = deque()
        self._logged_at = float("-inf")
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def crowded(self) -> bool:
        """Whether only checks of health are answered on the connection that came last."""
        return len(self._open) > self.limits.connections

    def enter(self, connection: Watched, now: float) -> bool:
        """Take a place for a connection; False: there is none."""
        if len(self._open) >= self.limits.connections:
            self._trim(now)
            if len(self._open) >= self.limits.connections + _RESERVE:
                return False
        self._open[connection] = None
        self._sweep_later()
        return True

    def leave(self, connection: Watched) -> bool:
        """Free the place of a connection that is told why it ends; False: too many are at that."""
        self._open.pop(connection, None)
        if len(self._leaving) >= _MAX_LEAVING:
            return False
        self._leaving.add(connection)
        self._sweep_later()
        return True

    def gone(self, connection: Watched) -> None:
        """Forget a connection that is closed."""
        self._open.pop(connection, None)
        self._leaving.discard(connection)

    def take_turns(self, go_on: Callable[[], object]) -> None:
        """Call one of these, in their order, in each turn of the event loop."""
        if not self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._turns.append(go_on)

    def _next_turn(self) -> None:
        go_on = self._turns.popleft()
        if self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)
        go_on()

    def count(self, reason: Reason) -> None:
        """Count a connection that the service ends."""
        self._ended(reason)
        self._unlogged[reason] += 1
        self._sweep_later()

    def _trim(self, now: float) -> None:
        """End those that have waited longest for a request, as many as are too many."""
        surplus = len(self._open) - int(self.limits.connections * _FULL)
        waits = [(place.spare_for(now), place) for place in self._open] if surplus > 0 else []
        spare = [(waited, place) for waited, place in waits if waited is not None and waited > _A_MOMENT_S]
        for _, place in sorted(spare, key=lambda pair: pair[0], reverse=True)[:surplus]:
            place.replace()

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for connection in (*self._open, *self._leaving):
            connection.look(now)
        self._trim(now)
        if self._unlogged and now - self._logged_at >= _LOG_EVERY_S:
            figures = {reason.replace("-", "_"): number for reason, number in self._unlogged.items()}
            _log.warning("connections were ended", open=len(self._open), **figures)
            self._unlogged.clear()
            self._logged_at = now
        if self._open or self._leaving or self._unlogged:
            self._sweep_later()
