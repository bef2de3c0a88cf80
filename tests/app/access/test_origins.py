"""Pages of other sites are refused, unless the settings allow them."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from app.access.hosts import Authority, is_own_origin
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.search.test_search import SEARCH, problem

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
    asked = {
        "origin": _VIEWER,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
        "sec-fetch-site": "cross-site",
    }
    assert shared.options(SEARCH, headers=asked).headers["access-control-allow-origin"] == _VIEWER
    problem(client.options(SEARCH, headers=asked), 403, "foreign-page")
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
