"""Idempotency-Key: requests that are sent again, also after a cut connection or a restart, are done once."""

import hashlib
import socket
import threading
import time
import uuid
from contextlib import closing
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from starlette.requests import Request

from app import idempotency
from app.application import create_app
from app.idempotency import fingerprint
from app.jobs.queue import give_job
from index.catalogue.jobs import Job
from index.idempotency import LEASE
from index.keys.api_keys import Role, create_key
from index.writes.live import put_images
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.test_uploads import IMAGES, picture, problem
from tests.browser.service import running

FEEDBACK = f"/v1/collections/{COLLECTION}/feedback"
TIDY = b'{"kind": "tidy"}'


def as_admin(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=20, headers=AS_ADMIN)


def new_key() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}


def give(client: TestClient, headers: dict[str, str], **body: Any) -> Response:
    return client.post("/v1/jobs", json={"kind": "tidy", **body}, headers=headers)


def number_of_jobs(client: TestClient | httpx.Client) -> int:
    return len(client.get("/v1/jobs", params={"limit": 1000}).json()["jobs"])


def test_the_same_request_gets_the_first_answer_and_is_not_done_again(local: TestClient) -> None:
    key, before = new_key(), number_of_jobs(local)
    first, again = give(local, key), give(local, key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.content == first.content
    for name in ("location", "content-type"):
        assert again.headers[name] == first.headers[name]
    assert ("Idempotency-Replayed" in first.headers, again.headers["Idempotency-Replayed"]) == (False, "true")
    assert number_of_jobs(local) == before + 1
    assert give(local, new_key()).json()["id"] != first.json()["id"]


def test_a_key_with_another_request_is_refused(local: TestClient) -> None:
    key = new_key()
    assert give(local, key).status_code == 202
    before = number_of_jobs(local)
    other = give(local, key, kind="duplicates", collection=COLLECTION)
    assert "draw a new key" in problem(other, 422, "idempotency-key-reused")["detail"]
    problem(local.post("/v1/jobs/1/cancel", headers=key), 422, "idempotency-key-reused")
    assert number_of_jobs(local) == before


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\xe9", "a\tb"])
def test_a_key_that_is_none_is_refused(local: TestClient, key: str) -> None:
    before = number_of_jobs(local)
    headers = [(b"Content-Type", b"application/json"), (b"Idempotency-Key", key.encode("latin-1"))]
    answer = local.post("/v1/jobs", content=TIDY, headers=headers)
    assert problem(answer, 422, "invalid-request")["errors"][0]["field"] == "Idempotency-Key"
    assert number_of_jobs(local) == before


def test_the_longest_key_is_taken(local: TestClient) -> None:
    key = {"Idempotency-Key": "~" * 255}
    assert give(local, key).json() == give(local, key).json()


def test_a_refused_request_keeps_no_key(local: TestClient) -> None:
    key = new_key()
    problem(give(local, key, kind="duplicates", collection="none"), 404, "unknown-collection")
    assert give(local, key).status_code == 202


def test_what_is_sent_while_the_first_is_answered_waits(
    local: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = give_job

    def slow(*args: Any, **kwargs: Any) -> Job:
        begun.set()
        assert go_on.wait(20)
        return real(*args, **kwargs)

    monkeypatch.setattr("app.jobs.schemas.give_job", slow)
    key, answers = new_key(), []
    first = threading.Thread(target=lambda: answers.append(give(local, key)))
    first.start()
    assert begun.wait(20)
    waiting = give(local, key)
    assert "still being answered" in problem(waiting, 409, "request-in-progress")["detail"]
    assert waiting.headers["Retry-After"] == "1"
    go_on.set()
    first.join()
    assert give(local, key).json() == answers[0].json()


def test_uploads_and_collections_are_answered_again(local: TestClient) -> None:
    def send(key: dict[str, str], content: bytes) -> Response:
        # The client draws a new boundary for each form.
        files = {"image": ("x.png", content, "image/png")}
        return local.post(IMAGES, files=files, data={"records": '[{"id": "sent"}]'}, headers=key)

    key = new_key()
    first = send(key, picture(1))
    assert first.json()["results"][0]["status"] == "created"
    assert send(key, picture(1)).content == first.content
    problem(send(key, picture(2)), 422, "idempotency-key-reused")
    assert send(new_key(), picture(1)).json()["results"][0]["status"] == "unchanged"
    new, key = {"name": "again", "same_model_as": COLLECTION}, new_key()
    made = local.post("/v1/collections", json=new, headers=key)
    assert made.status_code == 201
    assert local.post("/v1/collections", json=new, headers=key).content == made.content
    problem(local.post("/v1/collections", json=new), 409, "collection-exists")


def test_callers_without_rights_learn_no_answer(on_either: Indexed) -> None:
    secret = SecretStr("a key of sixteen letters")
    key = new_key()
    with serve(on_either, admin_key=secret) as client:
        bearer = {"Authorization": f"Bearer {secret.get_secret_value()}"}
        first = give(client, {**key, **bearer})
        assert first.status_code == 202
        assert give(client, key).status_code == 401
        assert give(client, {**key, **bearer}).json() == first.json()


def test_names_of_requests_belong_to_their_caller_whatever_else_is_sent(on_either: Indexed) -> None:
    key, judge = new_key(), frozenset[Role]({"judge"})
    with on_either.write() as session:
        made = [create_key(session, name, {COLLECTION: judge}, days=1).text for name in ("one", "two")]
    one, two = ({"Authorization": f"Bearer {text}"} for text in made)
    with serve(on_either) as client:
        for hit, credentials in (("image-1", AS_ADMIN), ("image-2", one), ("image-3", two)):
            judgement = {"query": {"text": "a boat"}, "hit": hit, "relevant": True}
            answer = client.post(FEEDBACK, json=judgement, headers={**key, **credentials})
            assert (answer.status_code, answer.json()["hit"]) == (200, hit)
            assert "Idempotency-Replayed" not in answer.headers
        # What a load balancer adds makes nobody another caller.
        again = client.post(FEEDBACK, json=judgement, headers={**key, **two, "Cookie": "node=7"})
        assert again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.slow
def test_a_cut_connection_starts_no_second_job(own: Indexed) -> None:
    key = uuid.uuid4().hex
    head = (
        "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: {AS_ADMIN['Authorization']}\r\n"
        f"Idempotency-Key: {key}\r\nContent-Length: {len(TIDY)}\r\n\r\n"
    ).encode()
    with running(create_app(own.settings)) as url:
        address = httpx.URL(url)
        # Cut within the head, within the body, and at once behind it: time and again, with the same key.
        for sent in (head[:50], head + TIDY[:4], *[head + TIDY] * 5):
            connection = socket.create_connection((address.host, address.port or 80), timeout=20)
            with closing(connection):
                connection.sendall(sent)
        with as_admin(url) as client:
            answer = _until_answered(client, key)
            assert (answer.status_code, answer.headers["Idempotency-Replayed"]) == (202, "true")
            assert number_of_jobs(client) == 1
    # Another process knows the answer too.
    with running(create_app(own.settings)) as url, as_admin(url) as client:
        again = _until_answered(client, key)
        assert (again.content, again.headers["Location"]) == (answer.content, answer.headers["Location"])
        assert number_of_jobs(client) == 1


def _until_answered(client: httpx.Client, key: str) -> httpx.Response:
    """Send the request until its answer is there, as clients do."""
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    deadline = time.monotonic() + LEASE.total_seconds()
    while True:
        answer = client.post("/v1/jobs", content=TIDY, headers=headers)
        # The first one may not have been read yet when this came.
        if answer.status_code != 409 and (
            "Idempotency-Replayed" in answer.headers or time.monotonic() > deadline
        ):
            return answer
        assert answer.status_code in (202, 409), answer.text
        time.sleep(0.1)


def test_an_upload_whose_caller_has_gone_is_answered_later(
    own: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key it would be given up; with one, the work continues for a caller who sends it again."""
    begun, go_on = threading.Event(), threading.Event()
    real = put_images

    def slow(*args: Any, **named: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return real(*args, **named)

    monkeypatch.setattr("app.images.uploads.put_images", slow)
    files = {"image": ("x.png", picture(3), "image/png")}
    form = httpx.Request("POST", "http://localhost", data={"records": '[{"id": "gone"}]'}, files=files)
    body, headers = form.read(), {**form.headers, **AS_ADMIN, **new_key()}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with running(create_app(own.settings)) as url, as_admin(url) as client:
        address = httpx.URL(url)
        connection = socket.create_connection((address.host, address.port or 80), timeout=20)
        with closing(connection):
            connection.sendall(f"POST {IMAGES} HTTP/1.1\r\n{head}\r\n".encode() + body)
            assert begun.wait(20)
        assert client.post(IMAGES, content=body, headers=headers).status_code == 409
        # Time for the service to see that its caller has gone.
        time.sleep(0.3)
        go_on.set()
        deadline = time.monotonic() + 20
        while (again := client.post(IMAGES, content=body, headers=headers)).status_code == 409:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (again.status_code, again.headers["Idempotency-Replayed"]) == (200, "true")
        assert again.json()["results"][0]["status"] == "created"


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


@given(st.lists(st.sampled_from([b"--x-y", b"--x-", b"x", b"-", b"a" * (WINDOW - 3), b"a" * 7]), max_size=9))
def test_boundaries_are_left_out_wherever_they_stand(parts: list[bytes]) -> None:
    body = b"".join(parts)
    result = fingerprint(_request("multipart/form-data; boundary=--x-y"), body)
    assert result == _expected(body, b"multipart/form-data", b"--x-y")
    assert fingerprint(_request("application/json"), body) == _expected(body, b"application/json", b"")


def test_a_large_body_is_hashed_beside_the_event_loop(
    service: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def watched(*args: Any) -> str:
        threads.append(threading.current_thread().name)
        return fingerprint(*args)

    monkeypatch.setattr(idempotency, "fingerprint", watched)
    body = {"query": {"text": "a"}, "hit": "image-1", "relevant": True, "unknown": "x" * 200_000}
    service.post(FEEDBACK, json=body, headers={"Idempotency-Key": "large"})
    (thread,) = threads
    assert thread.startswith("read")
