"""A service at many times its capacity: refusals, answers, memory, and the time until it is well again.

Run `python -m tests.benchmarks.overload --home HOME --collection NAME`; without a home it makes a small
collection with a small encoder. For texts, and then for images of one to two megapixels, it first measures
the capacity with clients that wait for each answer. Then it sends a multiple of the capacity; some clients
are slow and some leave. Times are from the first byte sent to the last byte received.
"""

import argparse
import asyncio
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

import numpy as np
import typer
from PIL import Image

from tests.access import OPEN_ENVIRONMENT
from tests.hostile.case import form
from tests.hostile.home import make_home
from tests.hostile.watch import watched

_RUN: Final = "from app.cli.main import run; run()"
_CLOSED_LOOP_CLIENTS: Final = 24
_MAX_CONNECTIONS: Final = 400
_SLOW_SHARE: Final = 0.02
_LEAVING_SHARE: Final = 0.05
_GIVEN_UP_S: Final = 40.0
_REFUSED: Final = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_WORDS: Final = ("a", "two", "dog", "boat", "snow", "man", "red", "child", "runs", "water", "ball", "near")

# Goals of the service: refusals at once, and well again soon.
_REFUSAL_GOAL_S: Final = 0.2
_RECOVERY_GOAL_S: Final = 5.0


@dataclass
class Figures:
    """Times by status, and what came to no answer."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)

    def note(self, status: int, seconds: float) -> None:
        self.seconds.setdefault(status, []).append(seconds)

    def of(self, *statuses: int) -> list[float]:
        return sorted(second for status in statuses for second in self.seconds.get(status, ()))


@dataclass
class Sender:
    """Sends prepared requests over a pool of connections."""

    port: int
    requests: list[bytes]
    figures: Figures
    draw: random.Random
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)
    open: int = 0

    async def send(self, *, odd: bool = True) -> None:
        """Send one request, and note the end of it."""
        if not self.idle and self.open >= _MAX_CONNECTIONS:
            self.figures.ends["no connection free here"] += 1
            return
        started = time.monotonic()
        try:
            async with asyncio.timeout(_GIVEN_UP_S):
                await self._send(self.draw.random() if odd else 1.0, started)
        except TimeoutError:
            self.figures.ends["hung"] += 1
        except (OSError, asyncio.IncompleteReadError):
            self.figures.ends["connection broke"] += 1

    async def _send(self, chance: float, started: float) -> None:
        while self.idle:
            reader, writer = self.idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                break
            self._close(writer)
        else:
            self.open += 1
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except BaseException:
                self.open -= 1
                raise
        kept = False
        try:
            kept = await self._exchange(reader, writer, chance, started)
        finally:
            if kept:
                self.idle.append((reader, writer))
            else:
                self._close(writer)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: float, started: float
    ) -> bool:
        """Send and read; whether the connection can carry another request."""
        content = self.draw.choice(self.requests)
        if chance < _SLOW_SHARE:
            half = len(content) // 2
            writer.write(content[:half])
            await asyncio.sleep(2.0)
            content = content[half:]
        writer.write(content)
        if _SLOW_SHARE <= chance < _SLOW_SHARE + _LEAVING_SHARE:
            await asyncio.sleep(self.draw.uniform(0, 0.3))
            self.figures.ends["left"] += 1
            return False
        with suppress(OSError):
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if length:
            await reader.readexactly(int(length[1]))
        status = int(head.split(None, 2)[1])
        if chance >= _SLOW_SHARE:
            self.figures.note(status, time.monotonic() - started)
        else:
            self.figures.ends["slow"] += 1
        return b"connection: close" not in head.lower()

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self.open -= 1
        writer.transport.abort()


def main() -> int:
    """Measure and print; status 1 when a goal is missed."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        home, collection = arguments.home, arguments.collection
        if home is None:
            home, collection = make_home(Path(folder), None).home, "photos"
        good = True
        for kind in arguments.kinds.split(","):
            with _service(home, Path(folder) / "log") as (process, port):
                requests = _requests(kind, collection)
                good &= asyncio.run(_measure(kind, requests, process.pid, port, arguments))
    return int(not good)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--home", type=Path, help="home folder to serve")
    parser.add_argument("--collection", default="photos", help="collection to search")
    parser.add_argument("--kinds", default="text,image", help="text, image")
    parser.add_argument("--seconds", type=float, default=300, help="how long the overload lasts")
    parser.add_argument("--factor", type=float, default=10, help="times the capacity")
    return parser.parse_args()


async def _measure(
    kind: str, requests: list[bytes], pid: int, port: int, arguments: argparse.Namespace
) -> bool:
    capacity = await _capacity(port, requests)
    alone = await _alone(port, requests)
    figures = Figures()
    with watched(pid, port) as looked:
        sender = Sender(port, requests, figures, random.Random(1))
        await _open_loop(sender, capacity * arguments.factor, arguments.seconds)
    recovery = await _recovery(port, requests, 3 * alone + 0.05)
    return _print(
        kind, capacity, alone, arguments.factor, figures, looked.livez_s, looked.memory_bytes, recovery
    )


async def _capacity(port: int, requests: list[bytes]) -> float:
    """Answers a second when each client waits for its answer."""
    figures = Figures()
    sender = Sender(port, requests, figures, random.Random(0))
    for seconds in (3.0, 8.0):
        figures.seconds.clear()
        end = time.monotonic() + seconds
        await asyncio.gather(*(_one_after_another(sender, end) for _ in range(_CLOSED_LOOP_CLIENTS)))
    return len(figures.of(HTTPStatus.OK)) / 8.0


async def _one_after_another(sender: Sender, end: float) -> None:
    while time.monotonic() < end:
        await sender.send(odd=False)
        # A refused client waits a little, as it is told to.
        await asyncio.sleep(0.001)


async def _alone(port: int, requests: list[bytes]) -> float:
    figures = Figures()
    sender = Sender(port, requests, figures, random.Random(2))
    for _ in range(30):
        await sender.send(odd=False)
    return float(np.median(figures.of(HTTPStatus.OK)))


async def _open_loop(sender: Sender, rate: float, seconds: float) -> None:
    """Send so many a second, whatever comes back."""
    sending: set[asyncio.Task[None]] = set()
    started, sent = time.monotonic(), 0
    while (passed := time.monotonic() - started) < seconds:
        for _ in range(int(passed * rate) - sent):
            task = asyncio.create_task(sender.send())
            sending.add(task)
            task.add_done_callback(sending.discard)
        sent = int(passed * rate)
        await asyncio.sleep(0.005)
    await asyncio.gather(*sending)
    for _, writer in sender.idle:
        writer.transport.abort()


async def _recovery(port: int, requests: list[bytes], normal_s: float) -> float:
    """Seconds from the end of the overload to three normal answers in a row."""
    figures, started, good = Figures(), time.monotonic(), 0
    sender = Sender(port, requests, figures, random.Random(3))
    while good < 3 and time.monotonic() - started < _GIVEN_UP_S:
        before = len(figures.of(HTTPStatus.OK))
        asked = time.monotonic()
        await sender.send(odd=False)
        answered = len(figures.of(HTTPStatus.OK)) > before
        good = good + 1 if answered and time.monotonic() - asked < normal_s else 0
    return time.monotonic() - started


def _print(
    kind: str,
    capacity: float,
    alone: float,
    factor: float,
    figures: Figures,
    livez: list[float],
    memory: list[int],
    recovery: float,
) -> bool:
    answers, refusals = figures.of(HTTPStatus.OK), figures.of(*_REFUSED)
    others = {
        status: len(found) for status, found in figures.seconds.items() if status not in (200, *_REFUSED)
    }
    typer.echo(
        f"{kind}: {capacity:.0f} answers a second, {alone * 1000:.0f} ms alone; {factor:g} times as many sent"
    )
    typer.echo(f"  answers   {_spread(answers)}")
    typer.echo(f"  refusals  {_spread(refusals)}")
    typer.echo(f"  others    {others or 'none'}; {dict(figures.ends)}")
    typer.echo(f"  /livez    {_spread(sorted(livez))}")
    typer.echo(f"  memory    {memory[0] / 1e6:.0f} MB before, {max(memory) / 1e6:.0f} MB at most")
    typer.echo(f"  normal again after {recovery:.1f} s")
    prompt = not refusals or float(np.median(refusals)) <= _REFUSAL_GOAL_S
    return prompt and not figures.ends["hung"] and recovery <= _RECOVERY_GOAL_S


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    low, high = (1000 * float(np.percentile(seconds, share)) for share in (50, 99))
    return f"{len(seconds):7,}  p50 {low:8.1f} ms  p99 {high:8.1f} ms  most {1000 * seconds[-1]:8.1f} ms"


def _requests(kind: str, collection: str) -> list[bytes]:
    draw = random.Random(kind)
    path = f"/v1/collections/{collection}/search"
    bodies = [_text(draw) if kind == "text" else _image(draw) for _ in range(24)]
    return [
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
        for body, content_type in bodies
    ]


def _text(draw: random.Random) -> tuple[bytes, str]:
    words = " ".join(draw.choice(_WORDS) for _ in range(draw.randint(5, 14)))
    return json.dumps({"text": words}).encode(), "application/json"


def _image(draw: random.Random) -> tuple[bytes, str]:
    """A JPEG of one to two megapixels with as much detail as a photograph."""
    width = draw.randint(1200, 1600)
    noise = np.random.default_rng(draw.getrandbits(32)).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    picture = Image.fromarray(noise).resize((width, width * 3 // 4), Image.Resampling.BICUBIC)
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=88)
    return form([("image", out.getvalue())])


@contextmanager
def _service(home: Path, log: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", _RUN, "serve", "--port", "0", "--home", str(home)],
            stderr=file,
            env={**os.environ, **OPEN_ENVIRONMENT, "RECOQUEST_LOG_LEVEL": "warning"},
        )
    try:
        yield process, _port_once_ready(log)
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


def _port_once_ready(log: Path) -> int:
    for _ in range(600):
        first, ended, _ = log.read_text().partition("\n")
        if ended:
            port = int(first.rpartition(":")[2])
            if asyncio.run(_is_ready(port)):
                return port
        time.sleep(0.2)
    raise TimeoutError("the service did not become ready")


async def _is_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.startswith(b"HTTP/1.1 200")


if __name__ == "__main__":
    sys.exit(main())
