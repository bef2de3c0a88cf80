"""The service answers under its own names only."""

import asyncio
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Scope

from app.access.hosts import AllowedHosts, Authority, parse_authority
from app.settings import Settings, SettingsError, load_settings
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.search.test_search import SEARCH, problem


@pytest.mark.parametrize(
    "path",
    ["/", "/operate", "/docs", "/openapi.json", "/page/search/page.js", "/livez", "/readyz", "/metrics",
     f"/v1/collections/{COLLECTION}/images/image-1/content", SEARCH],
)  # fmt: skip
@pytest.mark.parametrize(
    "host",
    ["evil.example.org", "evil.example.org:8000", "192.168.0.7", "testserver", ".".join(["a" * 60] * 4)],
)
def test_under_another_name_nothing_is_answered(client: TestClient, path: str, host: str) -> None:
    """A page whose own name was rebound to this machine reads nothing."""
    for method in ("GET", "POST", "OPTIONS"):
        answer = client.request(method, path, headers={"host": host})
        assert "RECOQUEST_ALLOWED_HOSTS" in problem(answer, 421, "unknown-host")["detail"]
        assert len(answer.content) < 500


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "localhost.", "a.localhost", "127.0.0.1:9", "[::1]:8000", "127.8.0.1",
     "[::ffff:127.0.0.1]", "localhost:"],
)  # fmt: skip
def test_local_names_are_always_answered(client: TestClient, host: str) -> None:
    assert client.get("/livez", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["", "[::1", "::1", "[::1]x", "[]", "[127.0.0.1]", "a b", "user@localhost", "localhost:x",
     "localhost:65536", "localhost:80:80", "localhost/", "http://localhost", "localhost,localhost",
     "loc\u00e4l", "%6cocalhost",
     "localhost\t", "[fe80::1%25eth0]", "a" * 254, "." , "localhost:-1", "localhost:" + "0" * 5000],
)  # fmt: skip
def test_a_host_that_cannot_be_read_is_refused(client: TestClient, host: str) -> None:
    headers = {b"Host": host.encode("utf-8")}
    answer = client.get("/v1/collections", headers=headers)
    problem(answer, 400, "bad-host")
    assert len(answer.content) < 1_000


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [
        ("1.1", [], 400),
        ("1.1", [b"localhost", b"localhost"], 400),
        ("1.1", [b"localhost", b"evil.example.org"], 400),
        ("1.0", [b"evil.example.org"], 421),
        ("1.0", [], 200),
    ],
)
def test_there_is_one_host(client: TestClient, version: str, hosts: list[bytes], status: int) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        "method": "GET",
        "scheme": "http",
        "path": "/livez",
        "raw_path": b"/livez",
        "query_string": b"",
        "headers": [(b"host", host) for host in hosts],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    application: Any = client.app
    asyncio.run(application(scope, receive, send))
    assert sent[0]["status"] == status


@pytest.mark.parametrize(
    ("names", "listens_on", "host", "answered"),
    [
        ("images.example.org", "127.0.0.1", "images.example.org", True),
        ("images.example.org", "127.0.0.1", "IMAGES.example.org.:8443", True),
        ("images.example.org", "127.0.0.1", "other.example.org", False),
        ("images.example.org", "127.0.0.1", "a.images.example.org", False),
        (".example.org", "127.0.0.1", "a.b.example.org", True),
        ("*.example.org", "127.0.0.1", "a.example.org", True),
        ("*.example.org", "127.0.0.1", "example.org", False),
        ("*.example.org", "127.0.0.1", "evilexample.org", False),
        ("*", "127.0.0.1", "anything.example.com", True),
        ("10.0.0.7", "127.0.0.1", "10.0.0.7:80", True),
        (None, "127.0.0.1", "10.0.0.7", False),
        (None, "::1", "[2001:db8::1]", False),
        (None, "localhost", "10.0.0.7", False),
        (None, "0.0.0.0", "10.0.0.7", True),
        (None, "::", "[2001:db8::1]:8000", True),
        (None, "0.0.0.0", "evil.example.org", False),
        (None, "10.0.0.7", "10.0.0.7", True),
        (None, "images.lan", "images.lan", True),
        (None, "images.lan", "other.lan", False),
    ],
)
def test_names_of_the_service(names: str | None, listens_on: str, host: str, answered: bool) -> None:
    parsed = parse_authority(host)
    assert parsed is not None
    assert AllowedHosts((names,) if names else (), listens_on).has(parsed) is answered


def test_an_authority_is_a_name_and_a_port() -> None:
    assert parse_authority("Images.Example.org:8443") == Authority("images.example.org", 8443)
    assert parse_authority("[2001:DB8::1]") == Authority("2001:db8::1", None)
    assert parse_authority("localhost:") == Authority("localhost", None)


def test_the_settings_name_the_hosts(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(indexed, allowed_hosts=("images.example.org",)) as client:
        for host, status in (("images.example.org", 200), ("evil.example.org", 421)):
            assert client.get("/livez", headers={"host": host}).status_code == status
    for name in ("https://a.org", "a.org:8000", "a b", "a.org/", "*a.org", "a.org:", "ä.org", "a..*"):
        monkeypatch.setenv("RECOQUEST_ALLOWED_HOSTS", f"b.org, {name}")
        with pytest.raises(SettingsError, match="RECOQUEST_ALLOWED_HOSTS"):
            load_settings()
    several = "*, .a.org ,*.b.org,images,10.0.0.7,[2001:db8::1],2001:db8::2"
    monkeypatch.setenv("RECOQUEST_ALLOWED_HOSTS", several)
    assert len(Settings().allowed_hosts) == 7
