"""Messages of worker processes: whole in any pieces, bounded, and never waited for beyond a deadline."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from training.common.workers import BrokenMessageError, receive, send

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
