"""The service answers under its own names only, and only pages that the settings allow."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Scope

from app.access.hosts import AllowedHosts, Authority, is_own_origin, parse_authority
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
    assert parse_authority(f"{'a' * 253}:65535") == Authority("a" * 253, 65_535)


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


_IMAGES = f"/v1/collections/{COLLECTION}/images"
_VIEWER = "https://viewer.example.org"
_ELEMENT = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
_LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.fixture(scope="module")
def shared(indexed: Indexed) -> Iterator[TestClient]:
    """The service with a page of another site that may call it."""
    with serve(indexed, key=False, cors_origins=(_VIEWER,)) as client:
        yield client


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example.org", "http://localhost:3000", "http://127.0.0.1", "null", "",
     "http://[", "http://[::1", "localhost", "file://", "http://localhost/", "http://user@localhost",
     "https://viewer.example.org.evil.org", "http://localhost:x", "chrome-extension://abc", "ht\u00e4tp://x"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/collections", "/metrics", "/v1/models", f"{_IMAGES}/image-1/content"])
def test_a_foreign_origin_reads_nothing(
    client: TestClient, shared: TestClient, origin: str, path: str
) -> None:
    headers = {b"Origin": origin.encode("utf-8")}
    for service in (client, shared):
        problem(service.get(path, headers=headers), 403, "foreign-page")


@pytest.mark.parametrize("site", [None, "same-site", "cross-site"])
def test_a_foreign_page_does_not_search(client: TestClient, site: str | None) -> None:
    headers = {"origin": "http://localhost:3000"} | ({} if site is None else {"sec-fetch-site": site})
    document = problem(client.post(SEARCH, json={"text": "two dogs"}, headers=headers), 403, "foreign-page")
    assert "RECOQUEST_CORS_ORIGINS" in document["detail"]
    # A form of another page, which asks nobody before.
    files = {"image": ("a.png", b"x")}
    problem(client.post(SEARCH, files=files, headers=headers), 403, "foreign-page")


@pytest.mark.parametrize(
    ("origin", "site"),
    [
        ("http://localhost", "same-origin"),
        ("http://LOCALHOST:80", "same-origin"),
        ("http://localhost", None),
        ("http://LOCALHOST:80", None),
        # Behind a proxy that sends another host.
        ("https://images.example.org", "same-origin"),
    ],
)
def test_the_services_own_page_searches(client: TestClient, origin: str, site: str | None) -> None:
    headers = {"origin": origin, "sec-fetch-mode": "cors"} | ({"sec-fetch-site": site} if site else {})
    assert client.post(SEARCH, json={"text": "two dogs"}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1/collections", f"{_IMAGES}/image-1/thumbnail", "/page/search/page.js", "/metrics"]
)
def test_elements_of_foreign_pages_load_nothing(client: TestClient, path: str) -> None:
    problem(client.get(path, headers=_ELEMENT), 403, "foreign-page")
    assert client.get(path, headers={**_ELEMENT, "sec-fetch-site": "same-origin"}).status_code == 200
    assert client.get(path, headers={**_ELEMENT, "sec-fetch-site": "none"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/page/image-search.js", 200),
        (f"{_IMAGES}/image-1/thumbnail", 200),
        (f"{_IMAGES}/image-1/content", 200),
        (f"{_IMAGES}/image-1/rendition", 403),
        (f"{_IMAGES}/image-1", 403),
        ("/v1/collections", 403),
        ("/metrics", 403),
        ("/livez", 403),
    ],
)
def test_elements_of_an_embedding_page_load_files_and_pictures(
    shared: TestClient, path: str, status: int
) -> None:
    assert shared.get(path, headers=_ELEMENT).status_code == status
    assert shared.head(path, headers=_ELEMENT).status_code == status
    # A script that reads the answer gives its origin.
    assert shared.get(path, headers=_ELEMENT | {"sec-fetch-mode": "cors"}).status_code == 403
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors", "origin": _VIEWER}
    assert shared.get(path, headers=headers).headers["access-control-allow-origin"] == _VIEWER


def test_links_of_other_sites_lead_to_the_pages_and_not_to_data(client: TestClient) -> None:
    for path in ("/", "/?text=dogs", "/room", "/operate", "/docs", "/page/search/page.js"):
        assert client.get(path, headers=_LINK).status_code == 200, path
    for path in ("/v1/collections", f"{_IMAGES}/image-1/content", "/metrics", "/openapi.json"):
        problem(client.get(path, headers=_LINK), 403, "foreign-page")
        assert client.get(path, headers={**_LINK, "sec-fetch-site": "none"}).status_code == 200, path
    # A form of another site is not taken for a link.
    headers = {**_LINK, "origin": "https://evil.example.org"}
    problem(client.post("/", headers=headers), 403, "foreign-page")


def test_a_page_that_may_call_asks_before_and_searches(client: TestClient, shared: TestClient) -> None:
    preflight = {
        "origin": _VIEWER,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
        "sec-fetch-site": "cross-site",
    }
    assert shared.options(SEARCH, headers=preflight).headers["access-control-allow-origin"] == _VIEWER
    problem(client.options(SEARCH, headers=preflight), 403, "foreign-page")
    headers = {"origin": _VIEWER, "sec-fetch-site": "cross-site"}
    assert shared.post(SEARCH, json={"text": "two dogs"}, headers=headers).status_code == 200
    twice = [("origin", _VIEWER), ("origin", _VIEWER)]
    problem(shared.get("/v1/collections", headers=twice), 403, "foreign-page")


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("http://localhost:8000", Authority("localhost", 8000), True),
        ("https://images.example.org", Authority("images.example.org", None), True),
        ("https://images.example.org", Authority("images.example.org", 443), True),
        ("https://images.example.org", Authority("images.example.org", 80), False),
        ("http://[::1]:8000", Authority("::1", 8000), True),
        ("http://localhost:8000", Authority("localhost", 8001), False),
        ("ftp://localhost", Authority("localhost", None), False),
        ("null", Authority("null", None), False),
    ],
)
def test_an_origin_is_compared_by_name_and_port(origin: str, host: Authority, own: bool) -> None:
    assert is_own_origin(origin, host) is own
