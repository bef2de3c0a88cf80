"""Messages to and from a decoding process: a JSON header and raw bytes, with their lengths."""

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, Final

_LENGTHS: Final = struct.Struct(">IQ")
_MAX_HEADER_BYTES: Final = 65_536
_PART_BYTES: Final = 1 << 20


class BrokenMessageError(Exception):
    """The other side has ended, or does not keep to the form of messages."""


def send(connection: socket.socket, header: Mapping[str, Any], body: bytes | memoryview = b"") -> None:
    """Write a message.

    Raises:
        OSError: The other side has ended, or the time-out of the connection has passed.
    """
    encoded = json.dumps(header).encode()
    connection.sendall(_LENGTHS.pack(len(encoded), len(body)) + encoded)
    if body:
        connection.sendall(body)


def receive(
    connection: socket.socket, max_bytes: int, until: float | None = None
) -> tuple[dict[str, Any], bytearray]:
    """Read a message.

    Args:
        connection: Socket to the other process.
        max_bytes: Maximum size of the body.
        until: Deadline for the whole message, on the clock of `time.monotonic`; None: no deadline.

    Raises:
        BrokenMessageError: The other side has ended, or this is no message.
        OSError: The connection is broken; a TimeoutError when it is too late.
    """
    header_bytes, body_bytes = _LENGTHS.unpack(_read(connection, _LENGTHS.size, until))
    if header_bytes > _MAX_HEADER_BYTES or body_bytes > max_bytes:
        raise BrokenMessageError
    try:
        header = json.loads(_read(connection, header_bytes, until))
    except (ValueError, RecursionError) as error:
        raise BrokenMessageError from error
    if not isinstance(header, dict):
        raise BrokenMessageError
    return header, _read(connection, body_bytes, until)


def _read(connection: socket.socket, count: int, until: float | None) -> bytearray:
    content = bytearray(count)
    view, place = memoryview(content), 0
    while place < count:
        if until is not None:
            # A timeout once set would count anew for each part that comes.
            connection.settimeout(max(0.001, until - time.monotonic()))
        got = connection.recv_into(view[place : place + _PART_BYTES])
        if not got:
            raise BrokenMessageError
        place += got
    return content
