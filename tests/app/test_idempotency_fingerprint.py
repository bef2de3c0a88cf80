"""The fingerprint of a request with an idempotency key: of its content, and beside the event loop."""

import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from app import idempotency
from app.application import create_app
from app.idempotency import fingerprint
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed

WINDOW = 1 << 16


def _request(content_type: str) -> Request:
    headers = [(b"content-type", content_type.encode())]
    return Request(
        {"type": "http", "method": "POST", "path": "/a", "query_string": b"b=c", "headers": headers}
    )


def _expected(body: bytes, kind: bytes, boundary: bytes) -> str:
    content = body.replace(boundary, b"") if boundary else body
    parts = (b"POST", b"/a", b"b=c", kind, content)
    return hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in parts)).hexdigest()


@given(
    st.lists(st.sampled_from([b"--x-y", b"--x-", b"x", b"-", b"a" * (WINDOW - 3), b"a" * 7]), max_size=9),
)
def test_boundaries_are_left_out_wherever_they_stand(parts: list[bytes]) -> None:
    body = b"".join(parts)
    found = fingerprint(_request("multipart/form-data; boundary=--x-y"), body)
    assert found == _expected(body, b"multipart/form-data", b"--x-y")
    assert fingerprint(_request("application/json"), body) == _expected(body, b"application/json", b"")


@pytest.fixture
def service(own: Indexed) -> Iterator[TestClient]:
    with TestClient(create_app(own.settings), "http://localhost", headers=AS_ADMIN) as running:
        yield running


def test_a_large_body_is_hashed_beside_the_event_loop(
    service: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def watched(*args: Any) -> str:
        threads.append(threading.current_thread().name)
        return fingerprint(*args)

    monkeypatch.setattr(idempotency, "fingerprint", watched)
    body = {"query": {"text": "a"}, "hit": "image-1", "relevant": True, "unknown": "x" * 200_000}
    path = f"/v1/collections/{COLLECTION}/feedback"
    service.post(path, json=body, headers={"Idempotency-Key": "large"})
    assert len(threads) == 1
    assert threads[0].startswith("read")
