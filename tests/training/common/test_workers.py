"""Worker processes: their messages are bounded in size and time, and no thread waits for ever."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from training.common.workers import (
    BrokenMessageError,
    LossReason,
    Worker,
    WorkerLostError,
    WorkerPool,
    WorkerStartError,
    receive,
    send,
    socket_pair,
)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.mark.parametrize("size", [0, 1, 65_000, 65_536, 65_537, 3_000_001])
def test_a_message_arrives_whole(pair: Pair, size: int) -> None:
    header, body = {"task": "decode", "sides": [3, 4]}, bytes(range(256)) * (size // 256) + bytes(size % 256)
    for until in (None, time.monotonic() + 30.0):
        sender = threading.Thread(target=send, args=(pair[0], header, body))
        sender.start()
        assert receive(pair[1], size, until) == (header, bytearray(body))
        sender.join()


def test_a_message_that_comes_byte_by_byte_is_read(pair: Pair) -> None:
    def trickle() -> None:
        for byte in b"\0\0\0\7" + b"\0\0\0\0\0\0\0\3" + b'{"a":1}' + b"xyz":
            pair[0].sendall(bytes([byte]))
            time.sleep(0.001)

    sender = threading.Thread(target=trickle)
    sender.start()
    assert receive(pair[1], 3) == ({"a": 1}, bytearray(b"xyz"))
    sender.join()


@pytest.mark.parametrize(
    "wire",
    [
        # A header or a body that is too long, no JSON, no object, more than was announced, and an early end.
        b"\xff\xff\xff\xff" + bytes(8),
        b"\0\0\0\2" + b"\0\0\0\0\0\0\0\x0b" + b"{}" + bytes(11),
        b"\0\0\0\2" + bytes(8) + b"{]",
        b"\0\0\0\2" + bytes(8) + b"[]",
        b"\0\0\0\2" + bytes(8) + b"{}more",
        b"\0\0\0\2" + b"\0\0\0\0\0\0\0\x05" + b"{}123",
        b"",
    ],
)
def test_what_is_no_message_is_refused(pair: Pair, wire: bytes) -> None:
    pair[0].sendall(wire[:-1] if wire.endswith(b"123") else wire)
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises(BrokenMessageError):
        receive(pair[1], 10, time.monotonic() + 30.0)


def test_a_message_that_comes_byte_by_byte_is_given_up_at_the_deadline(pair: Pair) -> None:
    ended = threading.Event()

    def trickle() -> None:
        pair[0].sendall(b"\0\0\0\2" + b"\0\0\0\0\0\0\x27\x10" + b"{}")
        while not ended.wait(0.01):
            pair[0].sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    with pytest.raises(TimeoutError):
        receive(pair[1], 10_000, time.monotonic() + 0.3)
    ended.set()
    thread.join()


# Answers the first task with the beginning of a message.
_BEGINS = ("sh", "-c", r"head -c 1 > /dev/null; printf '\0\0\0\2' >&0; exec sleep 600")


class Starts:
    """Starts processes that are ready and never answer; `refuses` makes the system have no room."""

    def __init__(self, *command: str) -> None:
        self.command = command or ("sleep", "600")
        self.refuses = False

    def __call__(self) -> Worker:
        if self.refuses:
            raise WorkerStartError
        own, theirs = socket_pair()
        with theirs:
            send(theirs, {"outcome": "ready"})
            process = subprocess.Popen(self.command, stdin=theirs.fileno())
        return Worker(process.pid, os.pidfd_open(process.pid), own, process.wait)


def _take(pool: WorkerPool) -> LossReason | None:
    try:
        with pool.taken():
            return None
    except WorkerLostError as lost:
        return lost.reason


def test_a_thread_that_waits_is_told_when_no_other_process_starts() -> None:
    start, replaced = Starts(), list[LossReason]()
    pool = WorkerPool(start, 1, replaced.append)
    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(ValueError, match="lost"), pool.taken() as worker:
            waiting = thread.submit(_take, pool)
            time.sleep(0.2)
            start.refuses = True
            worker.kill("memory")
            raise ValueError("lost")
        assert waiting.result(30.0) == "crash"
    assert replaced == ["memory"]
    start.refuses = False
    assert _take(pool) is None
    pool.close()
    assert _take(pool) == "closed"


def test_closing_tells_those_that_wait_and_ends_all_processes() -> None:
    pool = WorkerPool(Starts(), 1, lambda _: None)

    def ask() -> LossReason | None:
        try:
            with pool.taken() as worker:
                worker.ask({}, b"", 0, time.monotonic() + 60.0)
        except WorkerLostError as lost:
            return lost.reason
        return None

    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(ask) for _ in range(3)]
        time.sleep(0.2)
        [worker] = pool.workers
        pool.close()
        assert [future.result(30.0) for future in waiting] == ["closed"] * 3
    assert not worker.is_alive
    assert pool.workers == []


def test_a_process_that_trickles_is_killed_at_the_deadline() -> None:
    replaced = list[LossReason]()
    pool = WorkerPool(Starts(*_BEGINS), 1, replaced.append)
    with pytest.raises(WorkerLostError, match="wall"), pool.taken() as worker:
        worker.ask({}, b"", 0, time.monotonic() + 1.0)
    assert replaced == ["wall"]
    pool.close()
