"""Wrong keys, counted by who sends them: whoever guesses waits longer and longer."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final, Literal

import structlog
from starlette.requests import HTTPConnection

# Slips that cost nothing: of one client, and of all clients of one proxy.
_FREE: Final = 5
_FREE_OF_A_PROXY: Final = 50
# The wait doubles with each further wrong key, up to this.
_MAX_WAIT_S: Final = 30.0
_DOUBLINGS: Final = 5
_FORGOTTEN_AFTER_S: Final = 600.0
_MAX_ADDRESSES: Final = 4_096
_MAX_ADDRESS_LENGTH: Final = 64
_LOGGED_EVERY_S: Final = 5.0
# The holder of one IPv6 address holds all of its /64 network.
_OWN_BITS: Final = 64

Refusal = Literal["wrong", "too-early"]

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Guesser:
    free: int
    wrong: int = 0
    last: float = -math.inf

    def wait(self, now: float) -> float:
        """Seconds until its next key is looked at."""
        over = self.wrong - self.free
        if over < 0:
            return 0.0
        return max(0.0, self.last + min(2.0 ** min(over, _DOUBLINGS), _MAX_WAIT_S) - now)


class BruteForceLimiter:
    """Slows guesses of keys down, by the client's address.

    Behind a proxy all clients have its address, so they are told apart by the last address in
    `X-Forwarded-For`, which the proxy itself has written. Who invents such addresses is counted by the own
    one, too.

    Args:
        count: Told of every key that was wrong, or came too early to be looked at.
        clock: Seconds that never go back.
    """

    def __init__(self, count: Callable[[Refusal], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._clock = clock
        self._total = 0
        self._guessers: OrderedDict[str, _Guesser] = OrderedDict()
        self._logged_at = -math.inf
        self._logged = 0

    def wait_s(self, clients: Sequence[str]) -> int:
        """Return after how many seconds another guess of these clients is looked at; 0: now."""
        now = self._clock()
        known = [self._guessers[client] for client in clients if client in self._guessers]
        wait = math.ceil(max((guesser.wait(now) for guesser in known), default=0.0))
        if wait:
            self._refused("too-early", now)
        return wait

    def was_wrong(self, clients: Sequence[str]) -> None:
        """Count a wrong key for the client, and for its proxy, if that is the last of them."""
        now = self._clock()
        for place, client in enumerate(clients):
            guesser = self._guessers.pop(client, None)
            if guesser is None or now - guesser.last > _FORGOTTEN_AFTER_S:
                guesser = _Guesser(_FREE_OF_A_PROXY if place else _FREE)
            guesser.wrong += 1
            guesser.last = now
            self._guessers[client] = guesser
        while len(self._guessers) > _MAX_ADDRESSES:
            self._guessers.popitem(last=False)
        self._refused("wrong", now)

    def _refused(self, reason: Refusal, now: float) -> None:
        """Count a key, and tell the log of all since its last line, once in a few seconds at most."""
        self._count(reason)
        self._total += 1
        if now - self._logged_at >= _LOGGED_EVERY_S:
            _log.warning("wrong keys", count=self._total - self._logged, since_start=self._total)
            self._logged_at, self._logged = now, self._total


def clients_of(request: HTTPConnection) -> list[str]:
    """Return who sends a request: its address, or the address behind a proxy and then the proxy's."""
    peer = _network("" if request.client is None else request.client.host)
    forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return [f"{peer} for {_network(forwarded)}", peer] if forwarded else [peer]


def _network(address: str) -> str:
    if address.count(":") == 1:
        # Some proxies write the port as well, which changes with each connection.
        address = address.partition(":")[0]
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:_MAX_ADDRESS_LENGTH]
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return f"{IPv6Address(int(parsed) >> _OWN_BITS << _OWN_BITS)}/{_OWN_BITS}"
    return str(parsed)
