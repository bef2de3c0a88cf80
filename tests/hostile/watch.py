"""How the service fares meanwhile: its memory, and how long `/livez` takes for somebody else.

Run `python -m tests.hostile.watch PORT` as a process of its own, so that nothing the attacker's process does
delays a look. It ends at the end of its standard input, and prints every time that it measured, in seconds.
"""

import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_EVERY_S: Final = 0.1
_GIVEN_UP_S: Final = 30.0
_LIVE: Final = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass
class Watched:
    """Figures of a while."""

    livez_s: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)


@contextmanager
def watched(pid: int, port: int) -> Iterator[Watched]:
    """Watch a service until the block ends; the figures are there then."""
    figures, stop = Watched(), threading.Event()
    looker = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.watch", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    sampler = threading.Thread(target=_sample, args=(pid, figures.memory_bytes, stop))
    sampler.start()
    try:
        yield figures
    finally:
        stop.set()
        sampler.join()
        output, _ = looker.communicate(timeout=2 * _GIVEN_UP_S)
        figures.livez_s.extend(json.loads(output))


def memory_of_tree(pid: int) -> int:
    """Bytes that a process and its descendants have resident, pages that they share counted once each."""
    page, total, waiting = 4096, 0, [pid]
    while waiting:
        process = waiting.pop()
        try:
            resident, shared = (Path(f"/proc/{process}/statm").read_text().split()[n] for n in (1, 2))
            for thread in Path(f"/proc/{process}/task").iterdir():
                waiting += [int(child) for child in (thread / "children").read_text().split()]
        except OSError:
            continue
        total += page * (int(resident) - (0 if process == pid else int(shared)))
    return total


def _sample(pid: int, sizes: list[int], stop: threading.Event) -> None:
    while not stop.wait(_EVERY_S):
        sizes.append(memory_of_tree(pid))


def _look(port: int) -> float:
    """Seconds that `/livez` takes on a connection of its own."""
    started = time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_GIVEN_UP_S) as connection:
            connection.sendall(_LIVE)
            answer = b""
            while more := connection.recv(4096):
                answer += more
    except OSError:
        return _GIVEN_UP_S
    return time.monotonic() - started if answer.startswith(b"HTTP/1.1 200") else _GIVEN_UP_S


def _main() -> None:
    times = []
    while not select.select([sys.stdin], [], [], _EVERY_S)[0]:
        times.append(_look(int(sys.argv[1])))
    sys.stdout.write(json.dumps(times))


if __name__ == "__main__":
    _main()
