"""Heads and requests in a row as a real server takes them: each is answered in its turn."""

import asyncio
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from app.application import create_app
from tests.app.conftest import COLLECTION, Indexed
from tests.app.raw_http import PATIENCE, echo, serving
from tests.browser.service import running

_CONTENT = f"/v1/collections/{COLLECTION}/images/image-1/content"


@pytest.fixture(scope="module")
def address(indexed: Indexed) -> Iterator[httpx.URL]:
    """Where the service listens."""
    with running(create_app(indexed.settings)) as url:
        yield httpx.URL(url)


def _ask(address: httpx.URL, head: str) -> bytes:
    """Send a head, and read to the end of the connection."""
    with socket.create_connection((address.host, address.port or 80), timeout=20) as connection:
        connection.sendall(head.encode("latin-1"))
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
    return received


def test_a_check_without_a_host_in_old_http_is_answered(address: httpx.URL) -> None:
    assert _ask(address, "GET /livez HTTP/1.0\r\n\r\n").split()[1] == b"200"


@pytest.mark.parametrize(
    "path", ["/v1/collections", _CONTENT, "/page/search/page.js", "/metrics", "/nothing"]
)
def test_after_the_headers_for_head_comes_the_next_answer(address: httpx.URL, path: str) -> None:
    head = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = "OPTIONS /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    first, _, rest = _ask(address, head + head + last).partition(b"\r\n\r\n")
    second, _, rest = rest.partition(b"\r\n\r\n")
    assert first.split()[1] == second.split()[1] == (b"404" if path == "/nothing" else b"200")
    assert b"content-length: " in first
    assert b"content-length: 0\r\n" not in first
    assert rest.startswith(b"HTTP/1.1 204")
    assert b"allow: GET, HEAD, OPTIONS" in rest


def test_a_refused_body_does_not_spoil_the_next_request(address: httpx.URL) -> None:
    with httpx.Client(base_url=address, timeout=20) as client:
        for _ in range(3):
            refused = client.post(
                f"/v1/collections/{COLLECTION}/search",
                json={"text": "x" * 500_000},
                headers={"Origin": "https://evil.example.org"},
            )
            assert refused.status_code == 403
            assert client.get("/livez").status_code == 200


GET = b"GET /a HTTP/1.1\r\nHost: x\r\n"
LAST = b"Connection: close\r\n\r\n"


def test_requests_that_crowds_send_in_one_go_keep_nobody_out() -> None:
    crowd, each = 100, 40
    answered: list[str] = []

    async def working(scope: Scope, receive: Receive, send: Send) -> None:
        time.sleep(0.0005)
        answered.append(scope["path"])
        await echo(scope, receive, send)

    def before_a_newcomer(port: int) -> int:
        with ExitStack() as open_ones:
            for _ in range(crowd):
                one = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
                one.sendall((GET + b"\r\n") * each)
            newcomer = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
            newcomer.sendall(b"GET /new HTTP/1.1\r\nHost: x\r\n" + LAST)
            assert newcomer.recv(65_536)
        return answered.index("/new")

    async def run() -> int:
        async with serving(working) as server:
            return await asyncio.to_thread(before_a_newcomer, server.port)

    # The loop of the service: asyncio's own accepts all that wait in one turn.
    assert uvloop.run(run()) < crowd * each / 4


def test_requests_in_a_row_whose_caller_has_gone_raise_nothing() -> None:
    asked: list[str] = []
    raised: list[dict[str, Any]] = []

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await echo(scope, receive, send)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        async with serving(noting) as server:
            for _ in range(8):
                with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as caller:
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    caller.sendall((GET + b"\r\n") * 20)
            async with asyncio.timeout(PATIENCE):
                while len(server.connections) or len(asked) < 8:
                    await asyncio.sleep(0.01)

    uvloop.run(run())
    assert not raised


def _shed(scope: Scope, _: bool) -> bytes | None:
    return b"HTTP/1.1 503 Busy\r\ncontent-length: 5\r\n\r\nshed;" if scope["path"] == "/shed" else None


def test_what_follows_a_shed_request_is_answered_in_its_order() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/slow"):
            await asyncio.sleep(0.2)
        await echo(scope, receive, send)

    def get(path: bytes, rest: bytes = b"\r\n") -> bytes:
        return b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + rest

    # The requests behind the shed one are parsed in a second piece.
    begin = get(b"/slow1") + get(b"/shed", b"X: ")
    first = begin + b"a" * (8192 - len(begin) - 4) + b"\r\n\r\n"

    async def run() -> bytes:
        async with serving(slow, shed=_shed) as server:
            return await server.exchange(first + get(b"/slow3") + get(b"/fast4") + get(b"/fast5", LAST))

    answer = uvloop.run(run())
    places = [
        answer.index(body) for body in (b"/slow1 0;", b"shed;", b"/slow3 0;", b"/fast4 0;", b"/fast5 0;")
    ]
    assert places == sorted(places)


def test_idle_time_does_not_end_a_request_that_came_with_a_shed_one() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(1.5)
        await echo(scope, receive, send)

    async def run() -> bytes:
        async with serving(slow, shed=_shed, keep_alive_s=1) as server:
            return await server.exchange(b"GET /shed HTTP/1.1\r\nHost: x\r\n\r\n" + GET + LAST)

    assert uvloop.run(run()).endswith(b"/a 0;")
