"""A client that sends hostile cases over raw connections and writes down what came of each."""

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from tests.hostile.case import Case

# An answer that is larger than this is itself a fault.
_MAX_BYTES: Final = 1 << 20
_WITH_REASON: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_FIRST_SERVER_ERROR: Final = 500
# A case that the service neither answers nor closes is given up.
_GIVEN_UP_S: Final = 60.0


@dataclass(frozen=True)
class Outcome:
    """The end of one case.

    Attributes:
        status: Of the first answer; None: the connection ended without one.
        seconds: From the last byte that was sent to the end.
        answer: All bytes that came back.
        open: The service had neither answered nor closed the connection when it was given up.
    """

    case: Case
    status: int | None
    seconds: float
    answer: bytes
    open: bool = False

    def fault(self) -> str:
        """The broken promise, in words; empty when there is none."""
        if self.case.leave:
            return ""
        name, status = self.case.name, self.status
        if self.open:
            return f"{name}: neither answered nor closed after {_GIVEN_UP_S:.0f} s"
        if self.seconds > self.case.limit_s:
            return f"{name}: {status} after {self.seconds:.1f} s"
        if status is None:
            return "" if self.case.closes else f"{name}: closed without an answer"
        if len(self.answer) >= _MAX_BYTES:
            return f"{name}: an answer of over {_MAX_BYTES:,} bytes"
        if status >= _FIRST_SERVER_ERROR and not (status in _WITH_REASON and self._has_reason()):
            return f"{name}: {status}: {self.answer[-300:]!r}"
        return ""

    def _has_reason(self) -> bool:
        with contextlib.suppress(ValueError):
            problem: Any = json.loads(self.answer.partition(b"\r\n\r\n")[2])
            return isinstance(problem, dict) and bool(problem.get("detail"))
        return False


async def send_all(cases: Sequence[Case], port: int, at_once: int) -> list[Outcome]:
    """Send cases, so many at a time."""
    places = asyncio.Semaphore(at_once)

    async def one(case: Case) -> Outcome:
        async with places:
            return await _send(case, port)

    return list(await asyncio.gather(*(one(case) for case in cases)))


async def _send(case: Case, port: int) -> Outcome:
    started = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return Outcome(case, None, time.monotonic() - started, b"")
    reading = asyncio.create_task(_read(reader))
    try:
        with contextlib.suppress(OSError):
            started = await _write(case, writer, reading)
        if case.leave:
            return Outcome(case, None, 0.0, b"")
        await asyncio.wait([reading], timeout=_GIVEN_UP_S)
        seconds = time.monotonic() - started
        answer = reading.result() if reading.done() else b""
        return Outcome(case, _status(answer), seconds, answer, open=not reading.done())
    finally:
        reading.cancel()
        writer.transport.abort()


async def _write(case: Case, writer: asyncio.StreamWriter, reading: "asyncio.Task[bytes]") -> float:
    """Send the parts of a case; the time from which an answer is awaited: that of the last byte."""
    sent = time.monotonic()
    for part in case.parts[:-1] if case.repeat > 1 else case.parts:
        if isinstance(part, bytes):
            writer.write(part)
            await _drain(writer, reading)
            sent = time.monotonic()
        else:
            await asyncio.wait([reading], timeout=part)
        if reading.done():
            return sent
    block = case.parts[-1]
    for _ in range(case.repeat if case.repeat > 1 and isinstance(block, bytes) else 0):
        assert isinstance(block, bytes)
        writer.write(block)
        await _drain(writer, reading)
        sent = time.monotonic()
        if reading.done():
            break
    return sent


async def _drain(writer: asyncio.StreamWriter, reading: "asyncio.Task[bytes]") -> None:
    """Wait until the service takes more, or has ended the connection."""
    draining = asyncio.ensure_future(writer.drain())
    await asyncio.wait([draining, reading], timeout=_GIVEN_UP_S, return_when=asyncio.FIRST_COMPLETED)
    if draining.done():
        draining.result()
    else:
        draining.cancel()


async def _read(reader: asyncio.StreamReader) -> bytes:
    answer = bytearray()
    with contextlib.suppress(OSError):
        while len(answer) < _MAX_BYTES and (more := await reader.read(65_536)):
            answer += more
    return bytes(answer)


def _status(answer: bytes) -> int | None:
    words = answer[:32].split(None, 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else None
