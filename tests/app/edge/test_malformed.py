"""Malformed heads and forms, a few hundred drawn from a seed: every answer blames the request."""

import random
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed
from tests.app.search.test_search import SEARCH

_IMAGES = f"/v1/collections/{COLLECTION}/images"
_CHARSETS = (
    "undefined",
    "utf-8",
    "UTF8",
    "utf-16",
    "utf-16-le",
    "utf-7",
    "utf-32",
    "unicode_escape",
    "idna",
    "punycode",
    "raw_unicode_escape",
    "base64",
    "hex",
    "zip",
    "rot13",
    "mbcs",
    "none",
    "",
    "\x80",
    '"',
    "'",
    "x" * 10_000,
    "cp037",
)
_BOUNDARIES = (
    "x",
    "",
    '"x"',
    '"',
    "x" * 70,
    "x" * 71,
    "x" * 10_000,
    "\xe4",
    "a b",
    "--",
    "x;y",
    "x\x80",
    "\t",
    "'x'",
)
_TYPES = (
    "multipart/form-data",
    "Multipart/Form-Data",
    "multipart/mixed",
    "multipart/",
    "multipart/form-data ",
    "application/json",
    "application/json ",
    "application/problem+json",
    "application/x-www-form-urlencoded",
    "text/plain",
    "",
    "/",
    ";",
    "application",
    "\xe4/\xf6",
    "application/json/x",
    "a" * 10_000,
    "*/*",
    "image/png",
)
_JOINTS = (";", "; ", ";;", " ;", "; ;", ",", "\t;")
_CALLS = (
    ("POST", SEARCH),
    ("POST", _IMAGES),
    ("PUT", f"{_IMAGES}/image-1"),
    ("PATCH", f"{_IMAGES}/image-1"),
    ("POST", f"/v1/collections/{COLLECTION}/feedback"),
    ("POST", "/v1/collections"),
    ("POST", "/v1/jobs"),
)


@pytest.fixture(scope="module")
def local(on_either: Indexed) -> Iterator[TestClient]:
    """Who may write to a collection of its own."""
    application = create_app(on_either.settings)
    with TestClient(
        application,
        "http://127.0.0.1",
        raise_server_exceptions=False,
        client=("127.0.0.1", 50_000),
        headers=AS_ADMIN,
    ) as client:
        yield client


def _content_type(draw: random.Random) -> str:
    if draw.random() < 0.4:
        # Forms that can be read but for one thing.
        return f"multipart/form-data; boundary=x; charset={draw.choice(_CHARSETS)}"
    parts = [draw.choice(_TYPES) if draw.random() < 0.5 else "multipart/form-data"]
    for _ in range(draw.randrange(4)):
        name = draw.choice(("charset", "boundary", "boundary", "CHARSET", "boundary*", "x", ""))
        value = draw.choice(_CHARSETS if "harset" in name.lower() else _BOUNDARIES)
        parts.append(f"{draw.choice(_JOINTS)}{name}={value}")
    return "".join(parts)


def _disposition(draw: random.Random) -> bytes:
    name = draw.choice(
        (b"query", b"image", b"records", b"record", b"", b"\xff", b"\xed\xa0\x80", b"x" * 9_000)
    )
    if draw.random() < 0.5:
        name = draw.choice((b"query", b"records", b"record"))
        return b'Content-Disposition: form-data; name="' + name + b'"\r\n'
    kind = draw.choice((b"form-data", b"attachment", b"", b"form-data;;"))
    head = b"Content-Disposition: " + kind + b'; name="' + name + b'"'
    if draw.random() < 0.4:
        head += b'; filename="' + draw.choice((b"a.png", b"", b"\xff", b"..", b"a\\b")) + b'"'
    more = (
        b"",
        b"Content-Type: \xff\r\n",
        b"Content-Transfer-Encoding: zip\r\n",
        b"X" * 9_000 + b": 1\r\n",
        b": \r\n",
    )
    return head + b"\r\n" + draw.choice(more)


def _body(draw: random.Random) -> bytes:
    texts = (
        b"{}",
        b'{"text": "dogs"}',
        b"[]",
        b"[{}]",
        b'[{"id": "new"}]',
        b"",
        b"\xff",
        b"\xed\xa0\x80",
        b'"\\ud800"',
        b'{"text": "\\ud800"}',
        b"[" * 3_000,
        b"null",
        b"NaN",
        b"1e999",
        b"+2D-",
        b"\xef\xbb\xbf{}",
        b"\x00",
        b"\\ud800",
        b'{"texts": ["\\udfff"]}',
        "{}".encode("utf-16"),
        b'{"kind": "tidy", "kind": 3}',
        b"9" * 5_000,
    )
    if draw.random() < 0.3:
        return draw.choice(texts)
    parts = [b"--x\r\n" + _disposition(draw) + b"\r\n" + draw.choice(texts) for _ in range(draw.randrange(4))]
    body = b"\r\n".join([*parts, draw.choice((b"--x--", b"--x--\r\n", b"--x", b"", b"--y--"))])
    return body if draw.random() < 0.8 else body[: draw.randrange(len(body) + 1)]


@pytest.mark.parametrize("seed", range(8))
def test_no_malformed_body_is_answered_with_a_defect(local: TestClient, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        method, path = draw.choice(_CALLS)
        content_type, body = _content_type(draw), _body(draw)
        headers = {b"Content-Type": content_type.encode("latin-1")}
        answer = local.request(method, path, content=body, headers=headers)
        assert answer.status_code < 500, (method, path, content_type[:200], body[:300], answer.text)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert len(answer.content) < 4_000
        else:
            assert answer.status_code in (200, 201, 202)


@pytest.mark.parametrize("seed", range(3))
def test_no_malformed_head_is_answered_with_a_defect(local: TestClient, seed: int) -> None:
    draw = random.Random(seed)
    names = (
        "Host",
        "Origin",
        "Range",
        "If-Range",
        "If-None-Match",
        "Authorization",
        "Accept",
        "Sec-Fetch-Site",
        "Content-Type",
        "Content-Length",
        "X-Request-ID",
        "Access-Control-Request-Method",
        "Forwarded",
        "Via",
        "Accept-Encoding",
        "Transfer-Encoding",
        "Cookie",
        "If-Modified-Since",
    )
    values = (
        "http://[",
        "[::1",
        "null",
        "",
        "\xff",
        "bytes=0-",
        "bytes=\xb2-",
        "W/",
        '"',
        "*",
        "Bearer",
        "Bearer \xe4",
        "Basic a",
        "x" * 20_000,
        "-1",
        "1e9",
        "\x7f",
        "cross-site",
        "a,b",
        "GET",
        "localhost:99999",
        "chunked",
        "\xa0",
        "9" * 30,
    )
    paths = (
        "/",
        "/v1/collections",
        f"{_IMAGES}/image-1/content",
        f"{_IMAGES}/%ff%00",
        "/page/search/page.js",
        "/page/%00",
        "/v1/models/%ed%a0%80",
        "/v1/jobs?limit=\ud7ff&state=%ff",
        SEARCH,
        "/docs/assets/..%2f",
        "/metrics",
        f"/v1/collections/{'x' * 5_000}",
    )
    for _ in range(150):
        headers = {
            draw.choice(names).encode(): draw.choice(values).encode("latin-1")
            for _ in range(draw.randrange(1, 5))
        }
        method, path = draw.choice(("GET", "HEAD", "OPTIONS", "POST", "DELETE", "PATCH")), draw.choice(paths)
        answer = local.request(method, path, headers=headers)
        assert answer.status_code < 500, (method, path, headers, answer.text)
        assert len(answer.content) < 1_000_000


@pytest.mark.parametrize("parameters", ["charset=undefined", "charset=", "charset=\xe4", f"x={'y' * 10_000}"])
def test_json_is_utf_8_whatever_is_said_of_it(local: TestClient, parameters: str) -> None:
    headers = {b"Content-Type": f"application/json; {parameters}".encode("latin-1")}
    assert local.post(SEARCH, content=b'{"text": "dogs"}', headers=headers).status_code == 200
    changed = local.patch(f"{_IMAGES}/image-2", content=b'{"group": "g"}', headers=headers)
    assert changed.status_code == 200, changed.text


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("multipart/form-data; boundary=x; charset=undefined", 415),
        ("multipart/form-data; boundary=x; charset=utf-7", 415),
        ("multipart/form-data; boundary=x; charset=\x00", 415),
        ("multipart/form-data; boundary=x; charset=none-such", 415),
        ("multipart/form-data; boundary=x; charset=utf-8", 200),
        ("multipart/form-data; boundary=x; charset=ISO-8859-1", 200),
        ("multipart/form-data; boundary=x", 200),
        ('multipart/form-data; boundary="x"', 200),
        (f"multipart/form-data; boundary={'x' * 10_000}", 400),
        ("multipart/form-data; boundary=\xe4", 400),
        ("multipart/form-data; boundary=", 400),
        ("multipart/form-data", 400),
        ("multipart/form-data; charset=undefined", 400),
        ("multipart/mixed; boundary=x", 415),
    ],
)
def test_a_form_is_refused_by_its_content_type(local: TestClient, content_type: str, status: int) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="query"\r\n\r\n{"text": "dogs"}\r\n--x--\r\n'
    answer = local.post(SEARCH, content=body, headers={b"Content-Type": content_type.encode("latin-1")})
    assert answer.status_code == status, answer.text
    assert len(answer.content) < 20_000
