"""Rate-limits wrong keys, by the sender's address and by the first letters of the key."""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final, Literal

import structlog
from starlette.requests import HTTPConnection

# Different wrong keys that cost nothing: of one client, and of those that share a proxy or a prefix.
_FREE: Final = 5
_FREE_OF_MANY: Final = 50
# A drawn key begins with `rq_` and its identifier.
_PREFIX_LENGTH: Final = 15
_MAX_REMEMBERED: Final = 64
# The wait doubles with each further wrong key, up to this.
_MAX_WAIT_S: Final = 30.0
_DOUBLINGS: Final = 5
_FORGOTTEN_AFTER_S: Final = 600.0
_MAX_ADDRESSES: Final = 4_096
_MAX_ADDRESS_LENGTH: Final = 64
_LOGGED_EVERY_S: Final = 5.0
_MAX_LOGGED: Final = 5
# The holder of one IPv6 address holds all of its /64 network.
_OWN_BITS: Final = 64

Refusal = Literal["wrong", "too-early"]

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Guesser:
    free: int
    wrong: int = 0
    last: float = -math.inf
    # Hashes of its latest wrong keys.
    keys: set[int] = field(default_factory=set)

    def wait(self, now: float) -> float:
        """Seconds until its next new key is answered as wrong."""
        over = self.wrong - self.free
        if over < 0:
            return 0.0
        return max(0.0, self.last + min(2.0 ** min(over, _DOUBLINGS), _MAX_WAIT_S) - now)


class BruteForceLimiter:
    """Slows down guesses of keys; the caller has looked a key up before, so that a valid one never waits.

    A wrong key counts for its sender's address, for the proxy that the sender is behind, and for all senders
    of keys with the same first letters. The same wrong key counts once: a script with an old key guesses
    nothing. Clients of a proxy are told apart by the last address in `X-Forwarded-For`, which the proxy
    itself has written.

    Args:
        count: Told of every key that was wrong, or came too early after others.
        clock: Seconds that never go back.
    """

    def __init__(self, count: Callable[[Refusal], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._clock = clock
        self._total = 0
        self._guessers: OrderedDict[str, _Guesser] = OrderedDict()
        self._logged_at = -math.inf
        self._unlogged: Counter[str] = Counter()

    def wait_s(self, clients: Sequence[str], key: str) -> int:
        """Count a wrong key; return after how many seconds another may be sent, or 0: this one is just wrong.

        Args:
            clients: The sender as `clients_of` names it.
            key: The wrong key.
        """
        now, sent = self._clock(), hash(key)
        guessers = {}
        for place, name in enumerate((*clients, f"key {key[:_PREFIX_LENGTH]}")):
            known = self._guessers.get(name)
            if known is None or now - known.last > _FORGOTTEN_AFTER_S:
                known = _Guesser(_FREE_OF_MANY if place else _FREE)
            guessers[name] = known
        comes_again = sent in guessers[clients[0]].keys
        wait = 0 if comes_again else math.ceil(max(guesser.wait(now) for guesser in guessers.values()))
        self._refused("too-early" if wait else "wrong", clients[0], now)
        if not wait and not comes_again:
            self._remember(guessers, sent, now)
        return wait

    def _remember(self, guessers: dict[str, _Guesser], sent: int, now: float) -> None:
        for name, guesser in guessers.items():
            if sent not in guesser.keys:
                if len(guesser.keys) >= _MAX_REMEMBERED:
                    guesser.keys.clear()
                guesser.keys.add(sent)
                guesser.wrong += 1
                guesser.last = now
            self._guessers[name] = guesser
            self._guessers.move_to_end(name)
        while len(self._guessers) > _MAX_ADDRESSES:
            self._guessers.popitem(last=False)

    def _refused(self, reason: Refusal, client: str, now: float) -> None:
        """Count a key, and log all since the last line with their senders, at most once in a few seconds."""
        self._count(reason)
        self._total += 1
        self._unlogged[client] += 1
        if now - self._logged_at >= _LOGGED_EVERY_S:
            _log.warning(
                "wrong keys",
                count=self._unlogged.total(),
                since_start=self._total,
                addresses=dict(self._unlogged.most_common(_MAX_LOGGED)),
            )
            self._logged_at = now
            self._unlogged.clear()


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
