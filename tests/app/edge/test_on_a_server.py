"""Heads as a real server passes them on: byte by byte over a socket."""

import socket
from collections.abc import Iterator

import httpx
import pytest

from app.application import create_app
from tests.app.conftest import COLLECTION, Indexed
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


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("Host: localhost\r\n", 200),
        ("Host: [::1]:8000\r\n", 200),
        ("Host: evil.example.org\r\n", 421),
        ("Host: [::1\r\n", 400),
        ("Host: a b\r\n", 400),
        ("Host:\r\n", 400),
        ("", 400),
        ("Host: localhost\r\nHost: localhost\r\n", 400),
        ("Host: localhost\r\nOrigin: http://[\r\n", 403),
        ("Host: localhost\r\nOrigin: null\r\n", 403),
        ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
    ],
)
def test_who_may_ask_is_judged_by_the_head(address: httpx.URL, lines: str, status: int) -> None:
    answer = _ask(address, f"GET /v1/collections HTTP/1.1\r\nConnection: close\r\n{lines}\r\n")
    assert int(answer.split()[1]) == status


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
