"""Malformed heads and forms, a few hundred drawn from a seed: every answer blames the request."""

import json
import random
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

from app.edge.schemas import refuse_lone_surrogates
from app.encoding.queue import EncodingQueue
from app.search.read_search import parsed
from tests.app.conftest import COLLECTION
from tests.app.search.test_search import SEARCH, problem

_IMAGES = f"/v1/collections/{COLLECTION}/images"
_CHARSETS = (
    "undefined", "utf-8", "UTF8", "utf-16", "utf-16-le", "utf-7", "utf-32", "unicode_escape", "idna",
    "punycode", "raw_unicode_escape", "base64", "hex", "zip", "rot13", "mbcs", "none", "", "\x80", '"', "'",
    "x" * 10_000, "cp037",
)  # fmt: skip
_BOUNDARIES = (
    "x", "", '"x"', '"', "x" * 70, "x" * 71, "x" * 10_000, "\xe4", "a b", "--", "x;y", "x\x80", "\t", "'x'",
)  # fmt: skip
_TYPES = (
    "multipart/form-data", "Multipart/Form-Data", "multipart/mixed", "multipart/", "multipart/form-data ",
    "application/json", "application/json ", "application/problem+json", "application/x-www-form-urlencoded",
    "text/plain", "", "/", ";", "application", "\xe4/\xf6", "application/json/x", "a" * 10_000, "*/*",
    "image/png",
)  # fmt: skip
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
        b"", b"Content-Type: \xff\r\n", b"Content-Transfer-Encoding: zip\r\n", b"X" * 9_000 + b": 1\r\n",
        b": \r\n",
    )  # fmt: skip
    return head + b"\r\n" + draw.choice(more)


def _body(draw: random.Random) -> bytes:
    texts = (
        b"{}", b'{"text": "dogs"}', b"[]", b"[{}]", b'[{"id": "new"}]', b"", b"\xff", b"\xed\xa0\x80",
        b'"\\ud800"', b'{"text": "\\ud800"}', b"[" * 3_000, b"null", b"NaN", b"1e999", b"+2D-",
        b"\xef\xbb\xbf{}", b"\x00", b"\\ud800", b'{"texts": ["\\udfff"]}', "{}".encode("utf-16"),
        b'{"kind": "tidy", "kind": 3}', b"9" * 5_000,
    )  # fmt: skip
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
        "Host", "Origin", "Range", "If-Range", "If-None-Match", "Authorization", "Accept", "Sec-Fetch-Site",
        "Content-Type", "Content-Length", "X-Request-ID", "Access-Control-Request-Method", "Forwarded", "Via",
        "Accept-Encoding", "Transfer-Encoding", "Cookie", "If-Modified-Since",
    )  # fmt: skip
    values = (
        "http://[", "[::1", "null", "", "\xff", "bytes=0-", "bytes=\xb2-", "W/", '"', "*", "Bearer",
        "Bearer \xe4", "Basic a", "x" * 20_000, "-1", "1e9", "\x7f", "cross-site", "a,b", "GET",
        "localhost:99999", "chunked", "\xa0", "9" * 30,
    )  # fmt: skip
    paths = (
        "/", "/v1/collections", f"{_IMAGES}/image-1/content", f"{_IMAGES}/%ff%00", "/page/search/page.js",
        "/page/%00", "/v1/models/%ed%a0%80", "/v1/jobs?limit=\ud7ff&state=%ff", SEARCH, "/docs/assets/..%2f",
        "/metrics", f"/v1/collections/{'x' * 5_000}",
    )  # fmt: skip
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


_FEEDBACK = f"/v1/collections/{COLLECTION}/feedback"
_HALF = "\ud800"


@pytest.fixture(autouse=True)
def nothing_is_encoded(local: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts with a half character never reach the encoder."""
    encode = EncodingQueue.encode_text

    async def watched(queue: EncodingQueue, text: str, **options: Any) -> Any:
        text.encode()
        return await encode(queue, text, **options)

    monkeypatch.setattr(EncodingQueue, "encode_text", watched)


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", SEARCH, {"text": f"two {_HALF}dogs"}, "text"),
        ("POST", SEARCH, {"text": "dogs", "keywords": "\udfff"}, "keywords"),
        ("POST", SEARCH, {"like": [{"text": "dogs"}, {"text": f"a{_HALF}"}]}, "like.1.text"),
        ("POST", SEARCH, {"unlike": [{"id": _HALF}], "text": "dogs"}, "unlike.0.id"),
        ("POST", SEARCH, {"text": "dogs", "filter": {"field": "view", "eq": _HALF}}, "filter.eq"),
        (
            "POST",
            SEARCH,
            {"text": "dogs", "filter": {"and": [{"field": _HALF, "eq": 1}]}},
            "filter.and.0.field",
        ),
        ("POST", SEARCH, {"text": "dogs", "filter": {"field": "view", "in": ["PA", _HALF]}}, "filter.in.1"),
        ("POST", SEARCH, {"text": "dogs", "group_by": _HALF}, "group_by"),
        ("POST", SEARCH, {"text": "dogs", "cursor": _HALF}, "cursor"),
        ("POST", SEARCH, {"text": "dogs", _HALF: 1}, "body"),
        ("PATCH", f"{_IMAGES}/image-1", {"texts": ["a dog", f"a{_HALF}"]}, "texts.1"),
        ("PATCH", f"{_IMAGES}/image-1", {"labels": [_HALF]}, "labels.0"),
        ("PATCH", f"{_IMAGES}/image-1", {"report": _HALF}, "report"),
        ("PATCH", f"{_IMAGES}/image-1", {"group": _HALF}, "group"),
        ("PATCH", f"{_IMAGES}/image-1", {"split": _HALF}, "split"),
        ("PATCH", f"{_IMAGES}/image-1", {"metadata": {"view": [_HALF]}}, "metadata.view.0"),
        ("PATCH", f"{_IMAGES}/image-1", {"metadata": {_HALF: 1}}, "metadata"),
        ("POST", _FEEDBACK, {"query": {"text": _HALF}, "hit": "image-1", "relevant": True}, "query.text"),
        ("POST", _FEEDBACK, {"query": {"text": "dogs"}, "hit": _HALF, "relevant": True}, "hit"),
        ("POST", "/v1/collections", {"name": _HALF, "model": "tiny-0"}, "name"),
        ("POST", "/v1/collections", {"name": "new", "model": _HALF}, "model"),
        ("POST", "/v1/jobs", {"kind": "retrain", "collection": _HALF}, "retrain.collection"),
        ("POST", "/v1/jobs", {"kind": _HALF}, "body"),
    ],
)
def test_half_of_a_character_is_refused_by_the_name_of_its_field(
    local: TestClient, method: str, path: str, body: dict[str, Any], field: str
) -> None:
    content = json.dumps(body)
    assert "\\ud" in content
    answer = local.request(method, path, content=content, headers={"Content-Type": "application/json"})
    problem(answer, 422, "invalid-request", field)


@pytest.mark.parametrize(
    ("method", "path", "name", "value", "field"),
    [
        ("POST", SEARCH, "query", {"text": _HALF}, "text"),
        ("POST", _IMAGES, "records", [{"id": "new"}, {"id": _HALF}], "records.1.id"),
        ("POST", _IMAGES, "records", [{"id": "new", "texts": ["a", _HALF]}], "records.0.texts.1"),
        ("PUT", f"{_IMAGES}/new", "record", {"metadata": {"view": _HALF}}, "record.metadata.view"),
    ],
)
def test_so_are_the_texts_of_forms(
    local: TestClient, method: str, path: str, name: str, value: Any, field: str
) -> None:
    answer = local.request(
        method, path, data={name: json.dumps(value)}, files={"image": ("a.png", b"no image")}
    )
    problem(answer, 422, "invalid-request", field)


def test_a_whole_character_of_two_halves_is_taken(local: TestClient) -> None:
    content = '{"texts": ["a \\ud83d\\udc15"]}'
    answer = local.patch(f"{_IMAGES}/image-2", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    assert local.get(f"{_IMAGES}/image-2").json()["texts"] == ["a \U0001f415"]


def test_the_place_of_a_half_is_named() -> None:
    refuse_lone_surrogates({"a": [1, None, {"b": "whole"}], "c": True})
    with pytest.raises(ValidationError) as caught:
        refuse_lone_surrogates({"a": [1, {"b": ["x", _HALF]}]})
    assert caught.value.errors()[0]["loc"] == ("a", 1, "b", 1)


@pytest.mark.parametrize("content", ["[" * 100_000, "{", '"\\ud800', "\ufeff"])
def test_what_is_no_json_stays_none(content: str) -> None:
    with pytest.raises(RequestValidationError) as caught:
        parsed(TypeAdapter(list[str]).validate_json, content, "body")
    assert caught.value.errors()[0]["type"] == "json_invalid"
