"""HEAD, OPTIONS and refused methods tell the truth about every address."""

import asyncio
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Scope

from app.application import create_app
from app.edge.middleware import Methods
from app.engine import open_engine
from index.catalogue.jobs import add_job
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed
from tests.app.search.test_search import SEARCH, problem

_IMAGE = f"/v1/collections/{COLLECTION}/images/image-1"
_LOCAL = ("127.0.0.1", 50_000)


@pytest.mark.parametrize(
    "path",
    ["/", "/room", "/operate", "/docs", "/docs/start.js", "/docs/assets/swagger-ui.css", "/openapi.json",
     "/livez", "/readyz", "/page/search/page.js", "/page/none.js", "/v1/collections",
     f"/v1/collections/{COLLECTION}", f"/v1/collections/{COLLECTION}/generations", "/v1/collections/none",
     "/v1/models", "/v1/models/none", _IMAGE, f"{_IMAGE}/thumbnail", f"{_IMAGE}/content",
     f"{_IMAGE}x/content", "/v1/jobs", "/nothing"],
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


@pytest.fixture
def with_a_job(own: Indexed) -> Iterator[TestClient]:
    """A service on this machine with one job that never ends."""
    engine = open_engine(own.settings)
    with engine.home.catalogue.write() as session:
        add_job(session, "tidy", [])
    engine.close()
    with TestClient(create_app(own.settings), "http://localhost", client=_LOCAL, headers=AS_ADMIN) as client:
        yield client


def test_head_of_a_stream_without_an_end_ends(with_a_job: TestClient) -> None:
    answer = with_a_job.head("/v1/jobs/1/events")
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


def test_the_description_names_no_method_twice(client: TestClient) -> None:
    operations = [
        operation["operationId"]
        for path in client.get("/openapi.json").json()["paths"].values()
        for operation in path.values()
    ]
    assert len(operations) == len(set(operations))


def test_a_large_file_is_not_read_for_its_headers() -> None:
    """What would follow the headers is asked for once at most."""
    made: list[int] = []

    async def large(scope: Scope, receive: object, send: object) -> None:
        assert callable(send)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(1_000):
            made.append(number)
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    sent: list[Message] = []

    async def collect(message: Message) -> None:
        sent.append(message)

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    asyncio.run(Methods(large)({"type": "http", "method": "HEAD"}, nothing, collect))
    assert len(made) == 1
    assert [message.get("body") for message in sent] == [None, b""]


def test_a_mistake_before_the_headers_is_not_hidden() -> None:
    async def broken(scope: Scope, receive: object, send: object) -> None:
        raise OSError("the disk is gone")

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    async def drop(message: Message) -> None:
        raise AssertionError(message)

    with pytest.raises(OSError, match="the disk is gone"):
        asyncio.run(Methods(broken)({"type": "http", "method": "HEAD"}, nothing, drop))


def test_head_is_for_whom_get_is_for(client: TestClient) -> None:
    assert client.head("/v1/jobs").status_code == client.get("/v1/jobs").status_code == 401
