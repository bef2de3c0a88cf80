"""A closed loop of keep-alive HTTP clients in one thread, which leaves the cores to the service."""

import os
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

_TIMEOUT_S = 60.0
_CHUNK = 1 << 16
_END_OF_HEAD = b"\r\n\r\n"


@dataclass(slots=True)
class Outcome:
    """Answers of a closed loop: their statuses, and the seconds of each that was 200.

    `cpu_s` and `own_cpu_s` are processor time of the service and of the clients.
    """

    cpu_s: float = 0.0
    own_cpu_s: float = 0.0
    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        """Good answers a second."""
        return self.statuses[200] / self.seconds

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of the service's processor time for each answer."""
        return 1000 * self.cpu_s / max(1, self.statuses.total())


def run_load(
    address: tuple[str, int], process: int, requests: Sequence[bytes], clients: int, seconds: float
) -> Outcome:
    """Let clients send requests for some seconds, each its next one when it has its answer.

    Args:
        address: Of the service.
        process: Id of its process.
        requests: Whole HTTP requests, taken in turn.
        clients: Connections.
        seconds: How long new requests are sent.

    Raises:
        TimeoutError: No answer came for a minute.
    """
    outcome, turn = Outcome(), cycle(requests)
    with selectors.DefaultSelector() as selector:
        begin, cpu, own = time.perf_counter(), cpu_seconds(process), time.process_time()
        connections = [Client(socket.create_connection(address, _TIMEOUT_S)) for _ in range(clients)]
        for client in connections:
            client.ask(next(turn))
            selector.register(client.socket, selectors.EVENT_READ, client)
        try:
            _converse(selector, turn, begin + seconds, outcome)
        finally:
            for client in connections:
                client.socket.close()
        outcome.seconds = time.perf_counter() - begin
        outcome.cpu_s, outcome.own_cpu_s = cpu_seconds(process) - cpu, time.process_time() - own
    return outcome


def descendants(process: int) -> list[int]:
    """Return a process and all that it has started, directly or not."""
    found = [process]
    for one in found:
        # One that has just ended has nothing left to tell.
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def cpu_seconds(process: int) -> float:
    """Processor time that a process and its descendants, which decode and encode, have taken.

    That of descendants that have ended is included.
    """
    ticks = 0
    for one in descendants(process):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_bytes(process: int) -> int:
    """Memory of a process and its descendants, where pages that they share count once (PSS)."""
    kilobytes = 0
    for one in descendants(process):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 1024 * kilobytes


def _converse(selector: selectors.BaseSelector, turn: Iterator[bytes], end: float, outcome: Outcome) -> None:
    while selector.get_map():
        ready = selector.select(_TIMEOUT_S)
        if not ready:
            raise TimeoutError("The service gave no answer for a minute.")
        for key, _ in ready:
            client: Client = key.data
            status = client.read()
            if status is None:
                continue
            outcome.statuses[status] += 1
            if status == 200:
                outcome.times.append(time.perf_counter() - client.asked)
            if time.perf_counter() < end:
                client.ask(next(turn))
            else:
                selector.unregister(client.socket)


class Client:
    """One connection, which has at most one request under way; `body` is that of the last whole answer."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self.asked = 0.0
        self.body = b""
        self._got = b""

    def ask(self, request: bytes) -> None:
        """Send a whole HTTP request."""
        self._got = b""
        self.asked = time.perf_counter()
        self.socket.sendall(request)

    def read(self) -> int | None:
        """Read what has come; the status once the answer is whole."""
        received = self.socket.recv(_CHUNK)
        if not received:
            raise ConnectionError("The service closed a connection in the middle of an answer.")
        self._got += received
        head, found, self.body = self._got.partition(_END_OF_HEAD)
        if not found:
            return None
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        return int(lines[0].split()[1]) if len(self.body) >= length else None
