"""Request heads that have no end, come byte by byte, or are none."""

import random
from collections.abc import Iterator
from typing import Final

from tests.hostile.case import SEARCH, STALL_S, Case, request

_LIVE: Final = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
_CHUNKED: Final = (
    f"POST {SEARCH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Transfer-Encoding: chunked\r\n\r\n"
).encode()
# Sent at most so often, 16 MB in all: the service is to hang up long before.
_REPEATS: Final = 256
_BLOCK: Final = 65_536

_HOSTS: Final = (
    "evil.example",
    "[::1",
    "localhost:99999999",
    "localhost@evil.example",
    "",
    " ",
    "127.0.0.1.nip.example:80",
    "a" * 5_000,
)
_ORIGINS: Final = (
    "http://evil.example",
    "http://[",
    "null",
    "file://",
    "http://localhost.evil.example",
    "\xff",
)
_FORMS: Final = (
    "multipart/form-data; boundary=x; charset=undefined",
    "multipart/form-data",
    "multipart/form-data; boundary=" + "b" * 10_000,
    "application/json; charset=undefined",
    "multipart/form-data; boundary=\xe9",
    ";;;",
    "multipart/form-data; boundary=",
)
_ODD_HEADS: Final = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /livez\r\n\r\n",
    b"\r\n" * 1_000 + _LIVE + b"\r\n",
    b"GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"\0" * 1_000 + b"\r\n\r\n",
    _LIVE + b"Content-Length: -1\r\n\r\n",
    _LIVE + b"Content-Length: 99999999999999999999999\r\n\r\n",
    _LIVE + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    _LIVE + b"Host: localhost\r\n\r\n",
    _LIVE + b"X-Folded: a\r\n b\r\n\tc\r\nConnection: close\r\n\r\n",
    _LIVE + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    _LIVE + b"X: \xff\xfe\x00\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n",
    (_LIVE + b"\r\n") * 1_000,
)


def hostile_heads(draw: random.Random) -> Iterator[Case]:
    """Cases without end, each kind in turn."""
    while True:
        yield from _endless()
        yield from _slow(draw)
        yield from _odd(draw)


def _endless() -> Iterator[Case]:
    starts = {
        "value": (_LIVE + b"X-Long: ", b"a" * _BLOCK),
        "name": (_LIVE, b"a" * _BLOCK),
        "headers": (_LIVE, b"a:\r\n" * (_BLOCK // 4)),
        "url": (b"GET /", b"a" * _BLOCK),
        "method": (b"", b"A" * _BLOCK),
        "trailers": (_CHUNKED + b"0\r\n", b"a:\r\n" * (_BLOCK // 4)),
        "chunk extension": (_CHUNKED + b"1;", b"a" * _BLOCK),
        "chunk size": (_CHUNKED, b"0" * _BLOCK),
        "blank lines": (b"", b"\r\n" * (_BLOCK // 2)),
        "tiny chunks": (_CHUNKED, b"1\r\n \r\n" * (_BLOCK // 6)),
    }
    for name, (start, block) in starts.items():
        yield Case(f"endless {name}", (start, block), repeat=_REPEATS, closes=True)


def _slow(draw: random.Random) -> Iterator[Case]:
    head = request("POST", SEARCH, b"", {"Content-Type": "application/json", "Content-Length": "1000"})
    dribble: list[bytes | float] = []
    for byte in draw.sample(range(65, 91), 12):
        dribble += [bytes((byte,)), 1.0]
    yield Case("silent", (b"", STALL_S), closes=True, limit_s=STALL_S)
    yield Case("half a head", (_LIVE, STALL_S), closes=True, limit_s=STALL_S)
    yield Case("dribbling head", (_LIVE, *dribble, STALL_S), closes=True, limit_s=STALL_S)
    yield Case("stalled body", (head, STALL_S), closes=True, limit_s=STALL_S)
    yield Case("dribbling body", (head, *dribble, STALL_S), closes=True, limit_s=STALL_S)
    yield Case("leaves in its head", (_LIVE,), leave=True)
    yield Case("leaves in its body", (head, b"{"), leave=True)
    row = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400
    yield Case("leaves amid requests in a row", (row, 3.0), leave=True)


def _odd(draw: random.Random) -> Iterator[Case]:
    for number, head in enumerate(_ODD_HEADS):
        yield Case(f"odd head {number}", (head,), closes=True, limit_s=STALL_S)
    for host in _HOSTS:
        yield Case(f"host {host[:30]!r}", (request("GET", "/v1/collections", host=host),), closes=True)
    for origin in _ORIGINS:
        sent = request(
            "POST", SEARCH, b'{"text":"a"}', {"Origin": origin, "Content-Type": "application/json"}
        )
        yield Case(f"origin {origin!r}", (sent,), closes=True)
    for kind in _FORMS:
        sent = request("POST", SEARCH, b"--x\r\n\r\n{}", {"Content-Type": kind})
        yield Case(f"content type {kind[:40]!r}", (sent,), closes=True)
    for method in ("HEAD", "OPTIONS", "TRACE", "CONNECT", "PATCH", "QUERY"):
        yield Case(f"method {method}", (request(method, "/v1/collections"),), closes=True)
    noise = draw.randbytes(draw.randint(1, 5_000)) + b"\r\n\r\n"
    yield Case("noise", (noise,), closes=True, limit_s=STALL_S)
    ranges = "bytes=" + ",".join(f"{n}-{n}" for n in range(draw.randint(1, 900)))
    path = "/v1/collections/photos/images/image-1/content"
    yield Case("ranges", (request("GET", path, headers={"Range": ranges}),))
