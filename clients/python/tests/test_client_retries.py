"""Requests that are sent again, against a real server on loopback that refuses, cuts and waits."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest

from recoquest_client import (
    AccessError,
    AnswerError,
    AsyncClient,
    BusyError,
    Client,
    NewImage,
    NotFoundError,
    PreconditionError,
    ProblemError,
    Retry,
    UnreachableError,
    UploadProgress,
    operations,
)
from recoquest_client.files import batches
from recoquest_client.retry import Attempts, retry_after
from tests.answering import answering

FAST = Retry(times=3, first_s=0.01, longest_s=2.0)
JOB = {"id": 3, "kind": "tidy", "state": "queued", "later": "unknown to this version"}
PAGE: dict[str, Any] = {"hits": [], "query": {"limit": 10}, "next_cursor": None, "new_field": 1}


@dataclass
class Reply:
    """An answer; status 0: the connection is cut instead, after the request was read."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    lines: bytes | None = None


@dataclass
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Failing:
    """A server that gives prepared answers in order, and keeps what it received."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Failing]:
    failing = Failing()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            failing.received.append(Received(self.command, self.path, dict(self.headers), body))
            reply = failing.replies.pop(0)
            self.close_connection = True
            if reply.status == 0:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            content = reply.lines if reply.lines is not None else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            if reply.lines is None:
                self.send_header("Content-Length", str(len(content)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

    with answering(Handler) as listening:
        failing.url = f"http://127.0.0.1:{listening.server_port}"
        yield failing


Do = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def do(request: pytest.FixtureRequest, server: Failing) -> Do:
    """Calls a method of either client."""

    def by_client(name: str, *arguments: Any, **keywords: Any) -> Any:
        with Client(server.url, "key", retry=FAST, timeout=5) as client:
            found = getattr(client, name)(*arguments, **keywords)
            return list(found) if isinstance(found, Iterator) else found

    async def by_async_client(name: str, *arguments: Any, **keywords: Any) -> Any:
        async with AsyncClient(server.url, "key", retry=FAST, timeout=5) as client:
            found = getattr(client, name)(*arguments, **keywords)
            return [one async for one in found] if hasattr(found, "__aiter__") else await found

    if request.param == "sync":
        return by_client
    return lambda *arguments, **keywords: asyncio.run(by_async_client(*arguments, **keywords))


@pytest.mark.parametrize(
    "reply", [Reply(429), Reply(503), Reply(0), Reply(409, headers={"Retry-After": "0"})]
)
def test_a_search_is_sent_again_as_it_was(do: Do, server: Failing, reply: Reply) -> None:
    server.replies = [reply, reply, Reply(body=PAGE)]
    assert do("search", "c", "a dog", images=[b"picture"], limit=3).hits == ()
    first, *others = server.received
    assert len(others) == 2
    assert b"picture" in first.body
    # But for the boundary, which a search may change.
    assert {len(one.body) for one in others} == {len(first.body)}


def test_retry_after_is_waited_for(do: Do, server: Failing) -> None:
    server.replies = [Reply(429, headers={"Retry-After": "1"}), Reply(body={"collections": []})]
    began = time.monotonic()
    assert do("collections") == ()
    assert time.monotonic() - began >= 1.0


def test_attempts_are_bounded_and_the_last_problem_is_raised(do: Do, server: Failing) -> None:
    problem = {
        "type": "urn:recoquest:too-many-requests",
        "title": "The service is busy",
        "status": 429,
        "detail": "More requests are at work.",
        "help": "/docs/problems#too-many-requests",
        "request_id": "abc",
        "errors": [{"field": "text", "message": "Too long."}],
    }
    server.replies = [Reply(429, problem)] * 4
    with pytest.raises(BusyError, match="More requests are at work") as raised:
        do("search", "c", "a dog")
    assert (len(server.received), server.replies) == (4, [])
    error = raised.value
    assert (error.type, error.status, error.request_id) == (problem["type"], 429, "abc")
    assert (error.help, error.errors[0].field) == (problem["help"], "text")


def test_a_pause_longer_than_allowed_is_not_waited_for(do: Do, server: Failing) -> None:
    server.replies = [Reply(503, headers={"Retry-After": "3"})]
    with pytest.raises(BusyError):
        do("collections")


def test_a_post_that_begins_something_brings_one_key_for_all_attempts(do: Do, server: Failing) -> None:
    server.replies = [Reply(0), Reply(503), Reply(409, headers={"Retry-After": "0"}), Reply(202, JOB)]
    assert do("start_job", "tidy").id == 3
    keys = {one.headers["Idempotency-Key"] for one in server.received}
    assert (len(keys), len(server.received)) == (1, 4)
    server.replies = [Reply(202, JOB)]
    do("start_job", "tidy")
    assert server.received[-1].headers["Idempotency-Key"] not in keys


def test_an_upload_that_broke_is_sent_again_byte_by_byte(do: Do, server: Failing, tmp_path: Any) -> None:
    file = tmp_path / "large.png"
    file.write_bytes(bytes(range(256)) * 1024)
    answer = {"results": [{"id": "a", "status": "created"}, {"id": "b", "status": "refused"}]}
    server.replies = [Reply(0), Reply(207, answer)]
    told: list[UploadProgress] = []
    images = [NewImage("a", file, {"texts": ["one"]}), NewImage("b", b"none")]
    outcome = do("upload", "c", images, progress=told.append)
    assert (outcome.written, [one.id for one in outcome.refused]) == (1, ["b"])
    first, again = server.received
    assert first.body == again.body
    assert file.read_bytes() in first.body
    size = file.stat().st_size + 4
    assert told[-1] == UploadProgress(2, 2, size, size)
    assert max(one.sent for one in told) == size
    # Pieces, not the file at once.
    assert len({one.sent for one in told}) > 3


@pytest.mark.parametrize(
    ("name", "arguments", "keywords"),
    [
        ("delete", ("c", "a"), {}),
        ("update", ("c", "a"), {"etag": '"x"', "labels": []}),
        ("put", ("c", NewImage("a", b"x")), {"only_new": True}),
    ],
)
def test_a_change_whose_outcome_is_unknown_is_not_sent_again(
    do: Do, server: Failing, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    server.replies = [Reply(0)]
    with pytest.raises(UnreachableError, match="Whether it was done is unknown"):
        do(name, *arguments, **keywords)
    assert len(server.received) == 1


def test_an_update_without_a_condition_is_sent_again(do: Do, server: Failing) -> None:
    server.replies = [Reply(0), Reply(body={"id": "a", "status": "replaced", "etag": '"x"'})]
    assert do("update", "c", "a", report=None).status == "replaced"
    assert [json.loads(one.body) for one in server.received] == [{"report": None}] * 2


def test_a_service_that_is_not_there_is_named_after_all_attempts(server: Failing) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        client = Client(f"http://127.0.0.1:{bound.getsockname()[1]}", retry=FAST)
        with client, pytest.raises(UnreachableError, match="list_collections"):
            client.collections()


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFoundError), (412, PreconditionError), (500, ProblemError)]
)
def test_problems_are_errors_and_are_not_sent_again(
    do: Do, server: Failing, status: int, kind: type[ProblemError]
) -> None:
    server.replies = [Reply(status, {"type": "urn:recoquest:x", "detail": "So."}, {"ETag": '"now"'})]
    with pytest.raises(kind, match="So") as raised:
        do("update", "c", "a", etag='"old"', labels=["x"])
    assert raised.value.etag == '"now"'


def test_answers_of_others_are_told_apart(do: Do, server: Failing) -> None:
    server.replies = [Reply(lines=b"<html>Log in</html>"), Reply(body={"collections": [{}]})]
    with pytest.raises(AnswerError, match="not JSON"):
        do("collections")
    with pytest.raises(AnswerError, match="has no name"):
        do("collections")
    server.replies = [Reply(502, lines=b"<h1>Bad gateway</h1>")]
    with pytest.raises(ProblemError, match="answered 502: <h1>Bad gateway</h1>"):
        do("collections")


def events(*states: dict[str, Any], cut: bytes = b"") -> Reply:
    text = ": ping\n\n" + "".join(f"event: job\ndata: {json.dumps({**JOB, **state})}\n\n" for state in states)
    return Reply(lines=text.encode() + cut, headers={"Content-Type": "text/event-stream"})


def test_a_stream_is_joined_again_after_breaks_and_tells_news_once(do: Do, server: Failing) -> None:
    running = {"state": "running"}
    server.replies = [
        events({}, running, cut=b"event: job\ndata: {"),
        Reply(0),
        Reply(503),
        events(running, {"state": "done", "result": {"removed": 1}}),
    ]
    assert [job.state for job in do("stream", 3)] == ["queued", "running", "done"]
    assert server.replies == []


@pytest.mark.parametrize("operation", ["stream", "wait"])
def test_a_problem_in_a_stream_is_raised_as_itself(do: Do, server: Failing, operation: str) -> None:
    document = {
        "type": "urn:recoquest:key-ended", "title": "The key is no longer valid", "status": 401,
        "detail": "The key a1 of 'viewer' is revoked.", "help": "/docs/problems#key-ended", "errors": [],
        "request_id": "r-1",
    }  # fmt: skip
    told = f"event: problem\ndata: {json.dumps(document)}\n\n".encode()
    server.replies = [events({}, {"state": "running"}, cut=told)]
    with pytest.raises(AccessError, match="is revoked") as raised:
        do(operation, 3)
    assert (raised.value.type, raised.value.status) == ("urn:recoquest:key-ended", 401)
    assert raised.value.request_id == "r-1"
    assert server.replies == []


@pytest.mark.parametrize("data", ["[]", '{"title": "x"}', '{"status": "x"}', "{"])
def test_a_problem_that_is_none_is_an_answer_of_another(do: Do, server: Failing, data: str) -> None:
    server.replies = [events({}, cut=f"event: problem\ndata: {data}\n\n".encode())]
    with pytest.raises(AnswerError):
        do("stream", 3)


def test_waiting_ends_where_a_stream_breaks_without_news(do: Do, server: Failing) -> None:
    server.replies = [events({})] * 4
    with pytest.raises(UnreachableError, match="ended early"):
        do("wait", 3)


def test_waiting_ends_in_time(do: Do, server: Failing) -> None:
    server.replies = [events({}), *[events({})] * 3]
    with pytest.raises(TimeoutError, match="Job 3 has not ended in time"):
        do("wait", 3, timeout=0.0)


def test_pauses_double_up_to_the_longest() -> None:
    retry = Retry(times=5, first_s=1, longest_s=4)
    attempts = Attempts(operations.list_collections(), retry, draw=lambda: 1.0)
    busy = httpx2.Response(503)
    assert [attempts.after_answer(busy) for _ in range(6)] == [1, 2, 4, 4, 4, None]


def test_retry_after_is_a_number_or_a_date() -> None:
    def asked(text: str) -> float | None:
        return retry_after(httpx2.Response(503, headers={"Retry-After": text}))

    assert (asked("7"), asked(""), asked("soon"), asked("-1")) == (7, None, None, None)
    assert asked("Fri, 01 Jan 2021 00:00:00 GMT") == 0
    later = datetime.now(timezone.utc) + timedelta(seconds=90)
    assert 80 < (asked(format_datetime(later, usegmt=True)) or 0) <= 90


def test_images_are_grouped_by_number_size_and_id() -> None:
    def grouped(*images: NewImage) -> list[list[str]]:
        return [[image.id for image in batch] for batch in batches(images, files=3, size=10)]

    small = [NewImage(str(number), b"1") for number in range(4)]
    assert grouped(*small) == [["0", "1", "2"], ["3"]]
    assert grouped(NewImage("a", b"x" * 8), NewImage("b", b"x" * 3)) == [["a"], ["b"]]
    assert grouped(NewImage("a", b"x" * 99), small[0]) == [["a"], ["0"]]
    assert grouped(small[0], small[0]) == [["0"], ["0"]]
    assert grouped() == []
