"""Bounds of requests on the wire: heads, bodies and connections are ended while they grow, and say why."""

import asyncio
import io
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from app.edge.protocol import ConnectionLimits, HeadLimits
from app.edge.server import LimitsError, allow_descriptors, require_limits
from tests.app.raw_http import PATIENCE, Running, echo, problem_of, serving, statuses
from tests.e2e.work import COMMAND

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /b HTTP/1.1\r\nHost: x\r\n"
LAST = b"Connection: close\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
QUICK = ConnectionLimits(head_s=0.4, stall_s=0.4, body_s=1.0, leave_s=0.3)


def send(*parts: bytes, limits: ConnectionLimits | None = None, app: ASGIApp = echo) -> bytes:
    async def run() -> bytes:
        async with serving(app, limits) as server:
            return await server.exchange(*parts)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("parts", "status", "slug"),
    [
        ([GET, *[b"X-%d: " % n + b"a" * 4000 + b"\r\n" for n in range(20)]], 431, "head-too-large"),
        ([GET + b"X: " + b"a" * 70_000 + b"\r\n" + LAST], 431, "head-too-large"),
        ([GET + b"X: ", b"a" * 300_000], 431, "head-too-large"),
        ([GET + b"X: 1\r\n" * 101 + LAST], 431, "head-too-large"),
        ([GET, b"a:\r\n" * 120], 431, "head-too-large"),
        ([b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"], 414, "uri-too-long"),
        ([b"GET /" + b"a" * 5000, b"a" * 5000], 414, "uri-too-long"),
        ([b"\x16\x03\x01 no HTTP"], 400, "bad-request"),
        ([b"GET /a HTTP/1.1\r\n\r\n"], 400, "bad-request"),
        ([CHUNKED + b"\r\n0\r\n", b"X: 1\r\n" * 200, b"\r\n"], 431, "head-too-large"),
        ([CHUNKED + b"\r\n0\r\n" + b"X: 1\r\n" * 200 + b"\r\n"], 431, "head-too-large"),
        ([CHUNKED + b"\r\n0\r\nX: ", b"a" * 20_000], 431, "head-too-large"),
        ([CHUNKED + b"\r\n1;", b"a" * 20_000], 431, "head-too-large"),
        ([CHUNKED + b"\r\n" + b"1\r\na\r\n" * 2000], 400, "bad-request"),
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
    found, document = problem_of(send(*parts))
    assert (found, document["type"]) == (status, f"urn:recoquest:{slug}")


@pytest.mark.parametrize(
    "parts",
    [
        [GET + b"X: 1\r\n" * 98 + LAST],
        [bytes([byte]) for byte in GET + LAST],
        [b"GET /a?" + b"b" * 8000 + b" HTTP/1.1\r\nHost: x\r\n" + LAST],
        [b"GET /a HTTP/1.0\r\n\r\n"],
        [GET + b"Upgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n"],
        [b"GET http://y/a HTTP/1.1\r\nHost: x\r\n" + LAST],
    ],
    ids=["fields", "bytes", "url", "old", "websocket", "whole address"],
)
def test_a_request_within_the_bounds_is_answered(parts: list[bytes]) -> None:
    answer = send(*parts)
    assert statuses(answer) == [200]
    assert answer.endswith(b"/a 0;")


def test_bodies_of_both_kinds_pass_whole() -> None:
    lines = b'{"a":\n1}\n' * 30_000
    known = POST + b"Content-Length: %d\r\n" % len(lines) + LAST + lines
    assert send(known).endswith(b"/b %d;" % len(lines))
    chunks = b"".join(b"%x\r\n" % len(part) + part + b"\r\n" for part in (b"x" * 100, b"y" * 70_000) * 20)
    trailers = b"0\r\n" + b"X: 1\r\n" * 50 + b"\r\n"
    assert send(CHUNKED + LAST + chunks + trailers).endswith(b"/b %d;" % (70_100 * 20))


def test_requests_in_a_row_are_answered_in_their_order() -> None:
    many = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(30))
    answer = send(many + POST + b"Content-Length: 3\r\n\r\nabc" + GET + LAST)
    assert statuses(answer) == [200] * 32
    expected = [b"/%d 0;" % number for number in range(30)] + [b"/b 3;", b"/a 0;"]
    places = [answer.index(body) for body in expected]
    assert places == sorted(places)


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
    known = POST + upgrade + b"Content-Length: 3\r\n\r\nabc"
    chunked = CHUNKED + upgrade + b"\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"
    parts = (GET + upgrade + b"\r\n", known[:-2], known[-2:], chunked, GET + LAST)
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


def test_callers_who_go_amid_a_body_keep_no_place() -> None:
    async def run() -> None:
        async with serving(echo) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(POST + b"Content-Length: 100\r\n\r\nabc")
            await asyncio.sleep(0.1)
            assert len(server.connections) == 1
            writer.close()
            async with asyncio.timeout(PATIENCE):
                while len(server.connections):
                    await asyncio.sleep(0.01)
            assert not server.connections._leaving

    asyncio.run(run())


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
def test_what_takes_too_long_is_ended(parts: list[bytes], reason: str, status: int | None) -> None:
    async def run() -> tuple[bytes, Running]:
        async with serving(echo, QUICK) as server:
            return await server.exchange(*parts), server

    answer, server = asyncio.run(run())
    assert server.ended[reason] == 1
    assert len(server.connections) == 0
    assert (status is None) == (answer == b"")
    if status is not None:
        assert problem_of(answer)[0] == status


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without reading the body, as who is not allowed to send one is answered."""
    close = [(b"connection", b"close")] if scope["path"] == "/close" else []
    await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"2"), *close]})
    await send({"type": "http.response.body", "body": b"no"})


def test_an_answer_before_the_body_reaches_a_caller_that_sends_it_whole() -> None:
    async def run() -> list[bytes]:
        async with serving(refuse, QUICK) as server:
            sent = b"Content-Length: 3000000\r\n\r\n" + b"x" * 3_000_000
            kept = await server.exchange(POST + sent + GET + LAST)
            closed = await server.exchange(b"POST /close HTTP/1.1\r\nHost: x\r\n" + sent)
            return [kept, closed]

    kept, closed = asyncio.run(run())
    assert statuses(kept) == [403, 403]
    assert statuses(closed) == [403]


def test_a_body_that_goes_on_after_its_answer_is_ended() -> None:
    async def run() -> int:
        sent = 0
        async with serving(refuse, ConnectionLimits(body_s=PATIENCE)) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(CHUNKED + b"\r\n")
            piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
            with pytest.raises(ConnectionError):
                while sent < 500 << 20:
                    writer.write(piece)
                    await writer.drain()
                    sent += len(piece)
            writer.close()
        return sent

    assert asyncio.run(run()) < 100 << 20


def test_an_answer_that_nobody_reads_is_given_up() -> None:
    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(10_000):
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def run() -> Running:
        async with serving(endless, ConnectionLimits(answer_s=0.3)) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(GET + b"\r\n")
            await until(lambda: server.ended["answer-unread"] == 1)
            await until(lambda: len(server.connections) == 0)
            writer.close()
            return server

    asyncio.run(run())


def test_connections_without_a_request_give_their_places_to_those_with_one() -> None:
    async def run() -> Running:
        async with serving(echo, ConnectionLimits(connections=8)) as server:
            silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(8)]
            for _, writer in silent[-4:]:
                writer.write(GET)
            await until(lambda: len(server.connections) == 6)
            for _ in range(5):
                assert statuses(await server.exchange(GET + LAST)) == [200]
            for _, writer in silent:
                writer.close()
            return server

    ended = asyncio.run(run()).ended
    assert ended["replaced"] >= 2
    assert ended["refused"] == 0


def test_more_connections_at_work_than_allowed_are_refused_and_said_in_the_log_once(
    json_log: io.StringIO,
) -> None:
    async def run() -> Running:
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
            return server

    assert asyncio.run(run()).ended["refused"] == 20
    lines = [json.loads(line) for line in json_log.getvalue().splitlines()]
    told = [line for line in lines if line["event"] == "connections were ended"]
    assert len(told) <= 3
    assert told[0]["level"] == "warning"
    assert 0 < told[0]["refused"] <= 20


@pytest.mark.parametrize(
    ("hard", "allowed", "connections"), [(8192, 1000 + 768, 1000), (512, 512, 512 - 192)]
)
def test_the_process_may_open_as_many_files_as_its_connections_need(
    hard: int, allowed: int, connections: int
) -> None:
    script = (
        "import resource; from app.edge.server import allow_descriptors; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard})); print(allow_descriptors(1000)); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-2:] == [str(connections), str(allowed)]
    assert ("too few files" in ended.stdout + ended.stderr) is (allowed < 1768)


@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("-n 64", "recoquest: This process may open 64 files and needs at least 256: raise the limit"),
        ("-n 255", "recoquest: This process may open 255 files and needs at least 256: raise the limit"),
        ("-v 1500000", "recoquest: This process may use 1.4 GiB of memory addresses and needs at least 4"),
        ("-d 1000000", "recoquest: This process may use 1.0 GiB of memory addresses and needs at least 2"),
    ],
)
def test_limits_that_are_too_low_are_told_at_the_start(
    command: str, limit: str, sentence: str, tmp_path: Path
) -> None:
    start = shlex.join([*COMMAND, command, "--home", str(tmp_path / "home")])
    ended = subprocess.run(
        ["bash", "-c", f"ulimit {limit} && exec {start}"], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert ended.stderr.replace("\n", " ").startswith(sentence)
    assert not (tmp_path / "home").exists()


def test_too_little_free_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.edge.server.free_memory", lambda: 400 * 2**20)
    with pytest.raises(LimitsError, match=r"^0\.39 GiB of memory are free, and 0\.75 GiB are needed"):
        require_limits()
    monkeypatch.setattr("app.edge.server.free_memory", lambda: 2**30)
    require_limits()


@pytest.mark.slow
def test_a_thousand_dribbling_connections_keep_nobody_out() -> None:
    # Both ends of each connection are of this process.
    allow_descriptors(2 * 1024)

    async def dribble(port: int, end: float) -> None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET + b"X: ")
            while time.monotonic() < end and not writer.is_closing():
                await asyncio.sleep(0.2)
                writer.write(b"a")
            writer.close()
        except ConnectionError:
            pass

    async def run() -> list[list[int]]:
        async with serving(echo) as server:
            end = time.monotonic() + 4
            dribbling = [asyncio.create_task(dribble(server.port, end)) for _ in range(1000)]
            await until(lambda: server.ended["replaced"] >= 1000 - 768)
            answers = []
            while time.monotonic() < end:
                answers.append(statuses(await server.exchange(GET + LAST)))
            assert len(server.connections) <= 1024
            await asyncio.gather(*dribbling)
            return answers

    answers = asyncio.run(run())
    assert answers
    assert all(answer == [200] for answer in answers)


def test_an_endless_head_takes_no_more_than_its_bound() -> None:
    async def run() -> int:
        sent = 0
        async with serving(echo, ConnectionLimits(head=HeadLimits(size=1 << 16))) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(GET + b"X: ")
            with pytest.raises(ConnectionError):
                while sent < 200 << 20:
                    writer.write(b"a" * 65_536)
                    await writer.drain()
                    sent += 65_536
            assert server.ended["malformed"] == 1
            writer.close()
        return sent

    # The rest was thrown away while the caller could still read of its refusal.
    assert asyncio.run(run()) < 200 << 20


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.02)


@pytest.mark.slow
def test_bodies_that_come_a_byte_at_a_time_keep_no_check_of_health_out() -> None:
    async def run() -> None:
        async with serving(echo, ConnectionLimits(connections=8, body_s=PATIENCE)) as server:
            start = b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n"
            writers = []
            for _ in range(30):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(start)
                writers.append(writer)
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

    asyncio.run(run())


def test_a_check_of_health_that_comes_in_two_parts_is_answered_under_a_crowd() -> None:
    async def run() -> list[bytes]:
        done = asyncio.Event()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] == "/slow":
                await done.wait()
            await echo(scope, receive, send)

        async with serving(slow, ConnectionLimits(connections=4)) as server:
            writers = []
            for _ in range(4):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
                writers.append(writer)
            await until(lambda: len(server.connections) == 4)
            answers = [
                await server.exchange(b"GET /" + path + b" HTTP/1.1\r\nHo", b"st: x\r\n" + LAST)
                for path in (b"livez", b"other")
            ]
            done.set()
            for writer in writers:
                writer.close()
        return answers

    assert [statuses(answer) for answer in asyncio.run(run())] == [[200], [503]]


def test_a_refusal_is_read_where_many_are_just_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.edge.protocol._MAX_LEAVING", 0)
    assert statuses(send(b"GET /a HTTP/1.1\r\n\r\n")) == [400]
