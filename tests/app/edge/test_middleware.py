"""Bounds of bodies, parts of files, and HEAD, OPTIONS and refused methods of every address."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.admission import Admission, BodyTooLargeError, Stages
from app.edge.middleware import Methods
from app.edge.operations import OPERATION, Operation
from app.settings import Settings
from tests.app.conftest import COLLECTION, Indexed
from tests.app.search.test_search import SEARCH, problem

FORM = b"multipart/form-data; boundary=x"


class Reader:
    """An application that reads its body to the end."""

    def __init__(self) -> None:
        self.read: int | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.read = 0
        more = True
        while more:
            message = await receive()
            self.read += len(message["body"])
            more = message["more_body"]


def ask(reader: Reader, chunks: list[bytes], *headers: tuple[bytes, bytes]) -> list[Message]:
    """Send a body in chunks and return what was answered."""
    waiting: Iterator[bytes] = iter(chunks)
    left = len(chunks)
    sent: list[Message] = []

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": next(waiting), "more_body": left > 0}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", OPERATION: Operation(None, "write"), "headers": list(headers)}
    small = Settings().model_copy(update={"max_body_bytes": 100, "max_json_bytes": 10})
    asyncio.run(Admission(reader, Stages(small, lambda _: None))(scope, receive, send))
    return sent


@pytest.mark.parametrize(
    ("kind", "length", "passes"),
    [
        (b"application/json", b"10", True),
        (b"application/json", b"11", False),
        (b"application/json", b"9" * 5000, False),
        (FORM, b"100", True),
        (FORM, b"101", False),
    ],
)
def test_a_declared_length_over_the_limit_of_its_kind_is_refused_before_anything_is_read(
    kind: bytes, length: bytes, passes: bool
) -> None:
    reader = Reader()
    body = b"x" * min(int(length[:3]), 200)
    sent = ask(reader, [body[:4], body[4:]], (b"content-type", kind), (b"content-length", length))
    if passes:
        assert (sent, reader.read) == ([], int(length))
    else:
        assert (sent[0]["status"], reader.read) == (413, None)
        assert (b"connection", b"close") in sent[0]["headers"]


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"5")], [(b"content-length", b"many")]])
def test_what_arrives_is_counted_whatever_was_declared(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(BodyTooLargeError) as caught:
        ask(Reader(), [b"x" * 6, b"x" * 5], *headers)
    assert caught.value.status_code == 413


_CONTENT = f"/v1/collections/{COLLECTION}/images/image-1/content"
_PATHS = (_CONTENT, "/page/search/page.js", "/")


@pytest.mark.parametrize("path", _PATHS)
def test_a_part_of_a_file_is_answered(client: TestClient, path: str) -> None:
    whole = client.get(path).content
    for text, part in (
        ("bytes=0-9", whole[:10]),
        ("BYTES=5-", whole[5:]),
        ("bytes=-7", whole[-7:]),
        (f"bytes=2-{10**17}", whole[2:]),
        (f"bytes=-{10**17}", whole),
        ("bytes= 0-0 ,", whole[:1]),
        (f"bytes=0-4,{10**9}-", whole[:5]),
    ):
        answer = client.get(path, headers={"range": text})
        assert (answer.status_code, answer.content) == (206, part), text
        assert answer.headers["content-range"].endswith(f"/{len(whole)}")


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize(
    "text",
    ["", "bytes", "bytes=", "bytes=-", "bytes=,", "bytes=a-b", "bytes=5-2", "bytes=0-1,x", "bytes=0-1,5-2",
     "items=0-1", "bytes=0", "bytes=--1", "bytes=1-2-3", "bytes=0x1-0x2", "bytes=\u0661-\u0662",
     "bytes=1 - 2", "bytes=" + ",".join("0-0" for _ in range(9)), "bytes=" + "9" * 5_000 + "-",
     "bytes=" + "," * 50_000],
)  # fmt: skip
def test_a_range_without_sense_is_ignored(client: TestClient, path: str, text: str) -> None:
    whole = client.get(path)
    answer = client.get(path, headers={b"Range": text.encode("utf-8")})
    assert (answer.status_code, answer.content) == (200, whole.content)


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize("text", ["bytes=1000000-", "bytes=-0", "bytes=1000000-1000001,2000000-"])
def test_a_part_outside_of_a_file_is_a_problem(client: TestClient, path: str, text: str) -> None:
    size = len(client.get(path).content)
    answer = client.get(path, headers={"range": text})
    document = problem(answer, 416, "range-not-satisfiable")
    assert answer.headers["content-range"] == f"bytes */{size}"
    assert f"{size:,} bytes" in document["detail"]


def test_several_parts_are_bounded_in_number(client: TestClient) -> None:
    answer = client.get(_CONTENT, headers={"range": "bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14"})
    assert answer.status_code == 206
    assert answer.headers["content-type"].startswith("multipart/byteranges")
    assert len(answer.content) == int(answer.headers["content-length"])


def test_a_part_of_another_version_is_the_whole(client: TestClient) -> None:
    whole = client.get(_CONTENT)
    for tag, status in ((whole.headers["etag"], 206), ('"other"', 200), ("W/" + whole.headers["etag"], 200)):
        assert client.get(_CONTENT, headers={"range": "bytes=0-1", "if-range": tag}).status_code == status


def test_only_get_has_parts(client: TestClient) -> None:
    head = client.head(_CONTENT, headers={"range": "bytes=0-1"})
    assert (head.status_code, "content-range" in head.headers) == (200, False)
    assert client.head(_CONTENT, headers={"range": "bytes=1000000-"}).status_code == 200
    assert client.get("/v1/collections", headers={"range": "bytes=0-1"}).status_code == 200
    two = client.get(_CONTENT, headers=[("range", "bytes=0-1"), ("range", "bytes=3-4")])
    assert two.status_code == 200


@pytest.mark.slow
def test_no_range_is_answered_with_a_defect(client: TestClient, indexed: Indexed) -> None:
    draw = random.Random(24)
    pieces = ("bytes", "=", "-", ",", " ", "0", "1", "7", "99999999", "\t", "a", "*", "/", ";", "\x80")
    whole = indexed.image_bytes(1)
    for _ in range(300):
        tail = "".join(draw.choices(pieces, k=draw.randrange(12)))
        answer = client.get(_CONTENT, headers={b"Range": f"bytes={tail}".encode("latin-1")})
        assert answer.status_code in (200, 206, 416), tail
        if answer.status_code == 200:
            assert answer.content == whole


_IMAGE = f"/v1/collections/{COLLECTION}/images/image-1"


@pytest.mark.parametrize(
    "path",
    ["/", "/room", "/operate", "/docs", "/docs/start.js", "/docs/assets/swagger-ui.css", "/openapi.json",
     "/livez", "/readyz", "/page/search/page.js", "/page/none.js", "/v1/collections",
     f"/v1/collections/{COLLECTION}", f"/v1/collections/{COLLECTION}/generations", "/v1/collections/none",
     "/v1/models", "/v1/models/none", _IMAGE, f"{_IMAGE}/thumbnail", f"{_IMAGE}/content",
     f"{_IMAGE}/rendition", f"{_IMAGE}x/content", "/v1/jobs", "/nothing"],
)  # fmt: skip
def test_head_answers_as_get_without_a_body(client: TestClient, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code
    assert head.content == b""
    for answer in (got, head):
        for varying in ("x-request-id", "date", "server-timing"):
            answer.headers.pop(varying, None)
    if got.status_code < 400:
        assert dict(head.headers) == dict(got.headers)
    else:
        assert head.headers["content-type"] == got.headers["content-type"]
    if "content-length" in got.headers and got.status_code == 200:
        assert int(head.headers["content-length"]) == len(got.content)


def test_head_tells_whether_a_copy_is_current(client: TestClient) -> None:
    etag = client.head(f"{_IMAGE}/content").headers["etag"]
    assert client.head(f"{_IMAGE}/content", headers={"if-none-match": etag}).status_code == 304


def test_head_of_figures_has_no_body(client: TestClient) -> None:
    answer = client.head("/metrics")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 1_000
    assert 'operation="get_metrics"' in client.get("/metrics").text


def test_head_of_a_stream_without_an_end_ends(service: TestClient) -> None:
    # No worker does it.
    service.post("/v1/jobs", json={"kind": "tidy"})
    answer = service.head("/v1/jobs/1/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", "GET, HEAD, OPTIONS"),
        ("/page/search/page.js", "GET, HEAD, OPTIONS"),
        ("/openapi.json", "GET, HEAD, OPTIONS"),
        ("/v1/collections", "GET, HEAD, OPTIONS, POST"),
        (f"/v1/collections/{COLLECTION}", "DELETE, GET, HEAD, OPTIONS, PATCH"),
        (SEARCH, "OPTIONS, POST"),
        (_IMAGE, "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        (f"{_IMAGE}/content", "GET, HEAD, OPTIONS"),
        ("/v1/jobs/1/cancel", "OPTIONS, POST"),
    ],
)
def test_an_address_tells_which_methods_it_takes(client: TestClient, path: str, allowed: str) -> None:
    answer = client.options(path)
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, allowed, b"")
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "BREW"):
        if method not in allowed.split(", "):
            refused = client.request(method, path)
            problem(refused, 405, "method-not-allowed")
            assert refused.headers["allow"] == allowed


def test_an_address_without_anything_takes_no_method(client: TestClient) -> None:
    problem(client.options("/nothing"), 404, "not-found")
    problem(client.options("/v1/nothing"), 404, "not-found")


def test_a_large_file_is_not_read_for_its_headers() -> None:
    """What would follow the headers is asked for once at most."""
    made: list[int] = []

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(1_000):
            made.append(number)
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    sent: list[Message] = []
    ask_for_headers(large, sent)
    assert len(made) == 1
    assert [message.get("body") for message in sent] == [None, b""]


def test_a_mistake_before_the_headers_is_not_hidden() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise OSError("the disk is gone")

    sent: list[Message] = []
    with pytest.raises(OSError, match="the disk is gone"):
        ask_for_headers(broken, sent)
    assert sent == []


def ask_for_headers(application: ASGIApp, sent: list[Message]) -> None:
    """Send HEAD to an application and append what it answers."""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(Methods(application)({"type": "http", "method": "HEAD", "headers": []}, receive, send))
