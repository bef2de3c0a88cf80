"""HTTP on the wire: bounds of requests, requests in a row, and bytes that arrive whole and in order."""

import asyncio
import io
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from app.application import create_app
from app.edge.protocol import ConnectionLimits, HeadLimits, LingeringTransport
from app.edge.server import allow_descriptors
from tests.app.conftest import COLLECTION, Indexed
from tests.app.raw_http import PATIENCE, Running, echo, problem_of, serving, statuses
from tests.browser.service import running

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /b HTTP/1.1\r\nHost: x\r\n"
LAST = b"Connection: close\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
QUICK = ConnectionLimits(head_s=0.4, stall_s=0.4, body_s=1.0, leave_s=0.3)

pytestmark = pytest.mark.anyio


def send(*parts: bytes, limits: ConnectionLimits | None = None, app: ASGIApp = echo) -> bytes:
    async def run() -> bytes:
        async with serving(app, limits) as server:
            return await server.exchange(*parts)

    return asyncio.run(run())


async def begin(server: Running, content: bytes) -> asyncio.StreamWriter:
    """Open a connection and send the first bytes of it."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(content)
    return writer


@pytest.mark.parametrize(
    ("parts", "status", "slug"),
    [
        ([GET, *[b"X-%d: " % n + b"a" * 4000 + b"\r\n" for n in range(20)]], 431, "head-too-large"),
        ([GET + b"X: " + b"a" * 65_502 + b"\r\n" + LAST], 431, "head-too-large"),
        ([GET + b"X: ", b"a" * 300_000], 431, "head-too-large"),
        ([GET + b"X: 1\r\n" * 99 + LAST], 431, "head-too-large"),
        ([GET, b"a:\r\n" * 120], 431, "head-too-large"),
        ([b"GET /" + b"a" * 8192 + b" HTTP/1.1\r\nHost: x\r\n\r\n"], 414, "uri-too-long"),
        ([b"GET /" + b"a" * 5000, b"a" * 5000], 414, "uri-too-long"),
        ([b"\x16\x03\x01 no HTTP"], 400, "bad-request"),
        ([b"GET /a HTTP/1.1\r\n\r\n"], 400, "bad-request"),
        ([CHUNKED + b"\r\n0\r\n", b"X: 1\r\n" * 200, b"\r\n"], 431, "head-too-large"),
        ([CHUNKED + b"\r\n0\r\n" + b"X: 1\r\n" * 101 + b"\r\n"], 431, "head-too-large"),
        ([CHUNKED + b"\r\n0\r\nX: ", b"a" * 20_000], 431, "head-too-large"),
        ([CHUNKED + b"\r\n1;", b"a" * 20_000], 431, "head-too-large"),
        ([CHUNKED + b"\r\n" + b"1\r\na\r\n" * 1000 + b"0\r\n\r\n"], 400, "bad-request"),
        ([CHUNKED + b"\r\n" + (b"3f\r\n" + b"a" * 63 + b"\r\n") * 1001], 400, "bad-request"),
        ([CHUNKED + b"\r\nno number\r\n"], 400, "bad-request"),
        ([GET + b"Host: y\r\n" + LAST], 400, "bad-request"),
        ([b"GET ftp://x/a HTTP/1.1\r\nHost: x\r\n\r\n"], 400, "bad-request"),
        ([POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"], 400, "bad-request"),
        ([b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"], 400, "bad-request"),
        ([CHUNKED + b"Content-Length: 1\r\n\r\n0\r\n\r\n"], 400, "bad-request"),
    ],
)
def test_a_request_over_a_bound_is_refused_while_it_arrives(
    parts: list[bytes], status: int, slug: str
) -> None:
    result, document = problem_of(send(*parts))
    assert (result, document["type"]) == (status, f"urn:recoquest:{slug}")


@pytest.mark.parametrize(
    "parts",
    [
        [GET + b"X: 1\r\n" * 98 + LAST],
        [bytes([byte]) for byte in GET + LAST],
        [GET + b"X: " + b"a" * 65_501 + b"\r\n" + LAST],
        [b"GET /a?" + b"b" * 8189 + b" HTTP/1.1\r\nHost: x\r\n" + LAST],
        [b"GET /a HTTP/1.0\r\n\r\n"],
        [GET + b"Upgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n"],
        [b"GET http://y/a HTTP/1.1\r\nHost: x\r\n" + LAST],
    ],
    ids=["fields", "bytes", "size", "url", "old", "websocket", "whole address"],
)
def test_a_request_within_the_bounds_is_answered(parts: list[bytes]) -> None:
    answer = send(*parts)
    assert statuses(answer) == [200]
    assert answer.endswith(b"/a 0;")


def test_bodies_of_both_kinds_pass_whole() -> None:
    lines = b'{"a":\n1}\n' * 30_000
    bounded = POST + b"Content-Length: %d\r\n" % len(lines) + LAST + lines
    assert send(bounded).endswith(b"/b %d;" % len(lines))
    chunks = b"".join(b"%x\r\n" % len(part) + part + b"\r\n" for part in (b"x" * 100, b"y" * 70_000) * 20)
    trailers = b"0\r\n" + b"X: 1\r\n" * 100 + b"\r\n"
    assert send(CHUNKED + LAST + chunks + trailers).endswith(b"/b %d;" % (70_100 * 20))
    few, many = b"1\r\na\r\n" * 999, (b"40\r\n" + b"a" * 64 + b"\r\n") * 2000
    assert send(CHUNKED + LAST + few + trailers).endswith(b"/b 999;")
    assert send(CHUNKED + LAST + many + trailers).endswith(b"/b 128000;")


def test_requests_in_a_row_are_answered_in_their_order() -> None:
    many = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(30))
    answer = send(many + POST + b"Content-Length: 3\r\n\r\nabc" + GET + LAST)
    assert statuses(answer) == [200] * 32
    expected = [b"/%d 0;" % number for number in range(30)] + [b"/b 3;", b"/a 0;"]
    positions = [answer.index(body) for body in expected]
    assert positions == sorted(positions)


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (b"no HTTP\r\n\r\n", 400),
        (GET + b"a:\r\n" * 200, 431),
        (GET + b"a:\r\n" * 20_000, 431),
        (CHUNKED + b"\r\nno number\r\n", 400),
        (POST + b"Content-Length: 9\r\n\r\nab", 408),
    ],
)
def test_what_follows_a_request_at_work_is_refused_after_its_answer(second: bytes, status: int) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/a":
            await asyncio.sleep(0.2)
        await echo(scope, receive, send)

    answer = send(GET + b"\r\n" + second, limits=QUICK, app=slow)
    assert statuses(answer) == [200, status]


def test_a_connection_whose_caller_asks_for_another_protocol_goes_on() -> None:
    upgrade = b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAM\r\n"
    bounded = POST + upgrade + b"Content-Length: 3\r\n\r\nabc"
    chunked = CHUNKED + upgrade + b"\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"
    parts = (GET + upgrade + b"\r\n", bounded[:-2], bounded[-2:], chunked, GET + LAST)
    for answer in (send(*parts), send(b"".join(parts))):
        assert statuses(answer) == [200] * 4
        assert b"/b 3;" in answer
        assert b"/b 4;" in answer


def test_trailers_are_no_header_fields() -> None:
    seen: list[list[tuple[bytes, bytes]]] = []

    async def reading(scope: Scope, receive: Receive, send: Send) -> None:
        await echo(scope, receive, send)
        seen.append(scope["headers"])

    trailers = b"0\r\nAuthorization: Bearer key\r\nX-Last: 1\r\n\r\n"
    assert statuses(send(CHUNKED + LAST + b"1\r\na\r\n" + trailers, app=reading)) == [200]
    assert [name for name, _ in seen[0]] == [b"host", b"transfer-encoding", b"connection"]


def test_values_come_without_blanks_and_with_the_site_of_a_whole_address() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def reading(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(scope["headers"]))
        await echo(scope, receive, send)

    blanks = b"GET /a HTTP/1.1\r\nHost: x \r\nAuthorization:\tBearer key \t\r\n\r\n"
    every = b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"
    whole = b"GET http://y:8000/a?b=c HTTP/1.1\r\nHost: x\r\n" + LAST
    assert statuses(send(blanks + every + whole, app=reading)) == [200] * 3
    assert [headers[b"host"] for headers in seen] == [b"x", b"x", b"y:8000"]
    assert seen[0][b"authorization"] == b"Bearer key"


def test_an_answer_of_unknown_length_ends_with_the_connection_of_an_old_caller() -> None:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one, ", b"two"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    head, _, body = send(b"GET /a HTTP/1.0\r\n\r\n", app=stream).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body == b"one, two"
    assert send(GET + LAST, app=stream).endswith(b"5\r\none, \r\n3\r\ntwo\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "leaving"), [(POST + b"Content-Length: 100\r\n\r\nabc", 0), (b"GET /a HTTP/1.1\r\n\r\n", 1)]
)
async def test_callers_who_go_amid_a_body_or_are_refused_keep_no_place(sent: bytes, leaving: int) -> None:
    async with serving(echo) as server:
        writer = await begin(server, sent)
        await asyncio.sleep(0.1)
        assert (len(server.connections), len(server.connections._leaving)) == (1 - leaving, leaving)
        writer.close()
        await until(lambda: not (len(server.connections) or server.connections._leaving))


@pytest.mark.parametrize(
    ("parts", "reason", "status"),
    [
        ([], "head-timeout", None),
        ([GET, *[b"a"] * 200], "head-timeout", 408),
        ([POST + b"Content-Length: 10\r\n\r\nab"], "body-timeout", 408),
        ([POST + b"Content-Length: 1000\r\n\r\n", *[b"a"] * 200], "body-timeout", 408),
        ([CHUNKED + b"\r\n", *[b"1\r\na\r\n"] * 200], "body-timeout", 408),
    ],
    ids=["silent", "dribbled head", "stalled body", "dribbled body", "dribbled chunks"],
)
async def test_what_takes_too_long_is_ended(parts: list[bytes], reason: str, status: int | None) -> None:
    async with serving(echo, QUICK) as server:
        answer = await server.exchange(*parts)
    assert server.ended[reason] == 1
    assert len(server.connections) == 0
    assert (status is None) == (answer == b"")
    if status is not None:
        assert problem_of(answer)[0] == status


def test_a_request_has_the_time_that_the_documentation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.edge.protocol._SWEEP_S", 1e6)

    async def run(sent: bytes, allowed_s: int, limits: ConnectionLimits) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        async with serving(echo, limits) as server:
            writer = await begin(server, sent)
            await until(lambda: any(one._bytes_since == len(sent) for one in server.connections._open))
            (connection,) = server.connections._open
            for now, ended in ((begun + allowed_s, 0), (clock() + allowed_s + 0.01, 1)):
                connection.look(now)
                assert server.ended.total() == ended
            writer.close()

    body = POST + b"Content-Length: 327680\r\n\r\n"
    for sent, allowed_s, stall_s in ((b"", 10, 10.0), (body, 10, 10.0), (body, 30 + 10, 1e6)):
        asyncio.run(run(sent, allowed_s, ConnectionLimits(stall_s=stall_s)))


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without reading the body, as who is not allowed to send one is answered."""
    close = [(b"connection", b"close")] if scope["path"] == "/close" else []
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"2"), *close]})
    await send({"type": "http.response.body", "body": b"no"})


async def test_an_answer_before_the_body_reaches_a_caller_that_sends_it_whole() -> None:
    async with serving(refuse, QUICK) as server:
        sent = b"Content-Length: 3000000\r\n\r\n" + b"x" * 3_000_000
        assert statuses(await server.exchange(POST + sent + GET + LAST)) == [403, 403]
        assert statuses(await server.exchange(b"POST /close HTTP/1.1\r\nHost: x\r\n" + sent)) == [403]


async def send_until_refused(writer: asyncio.StreamWriter, piece: bytes, most: int) -> int:
    """Send a piece again and again until the server ends the connection; return how much was sent."""
    sent = 0
    with pytest.raises(ConnectionError):
        while sent < most:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
    writer.close()
    return sent


async def test_a_body_that_goes_on_after_its_answer_is_ended() -> None:
    async with serving(refuse, ConnectionLimits(body_s=PATIENCE)) as server:
        writer = await begin(server, CHUNKED + b"\r\n")
        piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        assert await send_until_refused(writer, piece, 500 << 20) < 100 << 20


async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(10_000):
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with serving(endless, ConnectionLimits(answer_s=0.3)) as server:
        writer = await begin(server, GET + b"\r\n")
        await until(lambda: server.ended["answer-unread"] == 1)
        await until(lambda: len(server.connections) == 0)
        writer.close()


async def test_connections_without_a_request_give_their_places_to_those_with_one() -> None:
    async with serving(echo, ConnectionLimits(connections=8)) as server:
        silent = [await begin(server, content) for content in [b""] * 4 + [GET] * 4]
        await until(lambda: len(server.connections) == 6)
        for _ in range(5):
            assert statuses(await server.exchange(GET + LAST)) == [200]
        for writer in silent:
            writer.close()
    assert server.ended["replaced"] >= 2
    assert server.ended["refused"] == 0


async def test_more_connections_at_work_than_allowed_are_refused_and_said_in_the_log_once(
    json_log: io.StringIO,
) -> None:
    opened = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await opened.wait()
        await echo(scope, receive, send)

    async with serving(slow, ConnectionLimits(connections=8)) as server:
        busy = [asyncio.create_task(server.exchange(GET + LAST)) for _ in range(8)]
        await until(lambda: len(server.connections) == 8)
        await asyncio.sleep(0.1)
        for _ in range(20):
            answer = await server.exchange(GET + LAST)
            status, document = problem_of(answer)
            assert (status, document["type"]) == (503, "urn:recoquest:too-many-connections")
            assert b"retry-after: 1" in answer.lower()
        await until(lambda: "connections were ended" in json_log.getvalue())
        opened.set()
        for answer in await asyncio.gather(*busy):
            assert statuses(answer) == [200]
        assert statuses(await server.exchange(GET + LAST)) == [200]
    assert server.ended["refused"] == 20
    lines = [json.loads(line) for line in json_log.getvalue().splitlines()]
    entries = [line for line in lines if line["event"] == "connections were ended"]
    assert len(entries) <= 3
    assert entries[0]["level"] == "warning"
    assert 0 < entries[0]["refused"] <= 20


@pytest.mark.slow
async def test_a_thousand_dribbling_connections_keep_nobody_out() -> None:
    # Both ends of each connection are of this process.
    allow_descriptors(2 * 1024)

    async def dribble(end: float) -> None:
        with suppress(ConnectionError):
            writer = await begin(server, GET + b"X: ")
            while time.monotonic() < end and not writer.is_closing():
                await asyncio.sleep(0.2)
                writer.write(b"a")
            writer.close()

    async with serving(echo) as server:
        end = time.monotonic() + 4
        dribbling = [asyncio.create_task(dribble(end)) for _ in range(1000)]
        await until(lambda: server.ended["replaced"] >= 1000 - 768)
        answers = []
        while time.monotonic() < end:
            answers.append(statuses(await server.exchange(GET + LAST)))
        assert len(server.connections) <= 1024
        await asyncio.gather(*dribbling)
    assert answers
    assert all(answer == [200] for answer in answers)


async def test_an_endless_head_takes_no_more_than_its_bound() -> None:
    async with serving(echo, ConnectionLimits(head=HeadLimits(size=1 << 16))) as server:
        writer = await begin(server, GET + b"X: ")
        # The rest was thrown away while the caller could still read of its refusal.
        assert await send_until_refused(writer, b"a" * 65_536, 200 << 20) < 200 << 20
        assert server.ended["malformed"] == 1


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_bodies_that_come_a_byte_at_a_time_keep_no_check_of_health_out() -> None:
    async with serving(echo, ConnectionLimits(connections=8, body_s=PATIENCE)) as server:
        start = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n"
        writers = []
        for _ in range(30):
            writers.append(await begin(server, start))
            await asyncio.sleep(0.01)
        for _ in range(8):
            for writer in writers:
                writer.write(b"x")
            live = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            assert statuses(await server.exchange(live)) == [200]
            await asyncio.sleep(0.2)
        other = b"GET /other HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert statuses(await server.exchange(other)) == [200]
        for writer in writers:
            writer.close()


async def test_a_check_of_health_that_comes_in_two_parts_is_answered_under_a_crowd() -> None:
    done = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await done.wait()
        await echo(scope, receive, send)

    async with serving(slow, ConnectionLimits(connections=4)) as server:
        writers = [await begin(server, b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(4)]
        await until(lambda: len(server.connections) == 4)
        for path, status in ((b"livez", 200), (b"other", 503)):
            answer = await server.exchange(b"GET /" + path + b" HTTP/1.1\r\nHo", b"st: x\r\n" + LAST)
            assert statuses(answer) == [status]
        done.set()
        for writer in writers:
            writer.close()


def test_a_refusal_is_read_where_many_are_just_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.edge.protocol._MAX_LEAVING", 0)
    assert statuses(send(b"GET /a HTTP/1.1\r\n\r\n")) == [400]


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
    requests: list[str] = []
    raised: list[dict[str, Any]] = []

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        requests.append(scope["path"])
        await echo(scope, receive, send)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        async with serving(noting) as server:
            for _ in range(8):
                with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as caller:
                    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    caller.sendall((GET + b"\r\n") * 20)
            async with asyncio.timeout(PATIENCE):
                while len(server.connections) or len(requests) < 8:
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
    positions = [
        answer.index(body) for body in (b"/slow1 0;", b"shed;", b"/slow3 0;", b"/fast4 0;", b"/fast5 0;")
    ]
    assert positions == sorted(positions)


def test_idle_time_does_not_end_a_request_that_came_with_a_shed_one() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(1.5)
        await echo(scope, receive, send)

    async def run() -> bytes:
        async with serving(slow, shed=_shed, keep_alive_s=1) as server:
            return await server.exchange(b"GET /shed HTTP/1.1\r\nHost: x\r\n\r\n" + GET + LAST)

    assert uvloop.run(run()).endswith(b"/a 0;")


class Recorded(asyncio.Transport):
    """A transport that records its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Note bytes."""
        self.calls.append(bytes(data))

    def write_eof(self) -> None:
        """Note an end."""
        self.calls.append("eof")

    def is_closing(self) -> bool:
        """Whether the call was recorded."""
        return not {"close", "abort"}.isdisjoint(self.calls)

    def close(self) -> None:
        """Note a close."""
        self.calls.append("close")

    def abort(self) -> None:
        """Note an abort."""
        self.calls.append("abort")


def transport_calls(*steps: bytes | str, may_close: bool = True) -> list[bytes | str]:
    """The writes and other calls that reach the wrapped transport, in order."""
    recorded = Recorded()

    async def run() -> None:
        transport = LingeringTransport(recorded, lambda: may_close)
        for step in steps:
            if isinstance(step, bytes):
                transport.write(step)
            else:
                getattr(transport, step)()
        await asyncio.sleep(0)

    asyncio.run(run())
    return recorded.calls


LARGE = bytes(1 << 20)


@pytest.mark.parametrize(
    ("steps", "may_close", "expected"),
    [
        ([b"head", b"body", b""], True, [b"headbody"]),
        ([b"head", LARGE, b"tail"], True, [b"head", LARGE, b"tail"]),
        ([b"answer", "close"], True, [b"answer", "close"]),
        ([b"answer", "write_eof"], True, [b"answer", "eof"]),
        ([b"answer", "close"], False, [b"answer"]),
        ([b"answer", "abort"], True, ["abort"]),
        ([b"400", "write_eof", b"100 Continue"], True, [b"400", "eof"]),
    ],
    ids=["joined", "large", "close", "end", "may not close", "abort", "after the end"],
)
def test_bytes_arrive_in_few_writes_and_all_before_the_end_but_for_an_abort(
    steps: list[bytes | str], may_close: bool, expected: list[bytes | str]
) -> None:
    assert transport_calls(*steps, may_close=may_close) == expected


def test_no_more_than_a_bound_is_held() -> None:
    parts = transport_calls(*[bytes(10_000)] * 100)
    assert sum(len(part) for part in parts) == 1_000_000
    assert max(len(part) for part in parts) <= 64 << 10
