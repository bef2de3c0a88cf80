"""The service as a whole: headers, other origins, logs, figures, unexpected errors, callers that leave."""

import asyncio
import io
import json
import threading
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.application import create_app
from index.engine import SearchEngine
from index.errors import CatalogueError, DiskFullError, StoreError, ViewError
from tests.app.conftest import COLLECTION, PATIENT, REPORT, Indexed, serve
from tests.app.search.test_search import SEARCH, page_of, problem, search_image, search_like
from training.common.errors import RecoquestError

QUERY = "unusual cardiomegaly words"


def test_collections_and_models_are_listed(client: TestClient) -> None:
    collection = client.get("/v1/collections").json()["collections"][0]
    assert (collection["name"], collection["count"]) == (COLLECTION, 24)
    assert {"age", "view", "id", "labels"} <= {field["name"] for field in collection["fields"]}
    model = client.get("/v1/models").json()["models"][0]
    assert model["name"] == collection["generation"]["model"] == "tiny-0"
    assert model["digest"] == collection["generation"]["digest"]
    assert (model["dim"], model["metrics"], model["collections"]) == (12, {"rsum": 1.5}, [COLLECTION])


def test_the_page_and_its_modules_are_served(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert client.get("/page/image-search.js").headers["content-type"].startswith("text/javascript")
    problem(client.get("/page/none.js"), 404, "not-found")
    problem(client.get("/page/..%2fservice.py"), 404, "not-found")


def test_answers_carry_headers_that_bind_a_browser(client: TestClient) -> None:
    for answer in (client.get("/"), client.get("/v1/collections"), client.get("/none"), client.get("/docs")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "unsafe" not in client.get("/").headers["content-security-policy"]
    assert client.get("/v1/collections").headers["cache-control"] == "no-store"


def test_other_origins_are_let_in_only_when_they_are_named(client: TestClient, indexed: Indexed) -> None:
    viewer = "https://viewer.example.org"
    headers = {"origin": viewer}
    named: dict[str, Any] = {"cors_origins": (viewer,), "frame_ancestors": (viewer,)}
    assert "access-control-allow-origin" not in client.get("/livez", headers=headers).headers
    with serve(indexed, key=False, **named, max_json_bytes=1024) as shared:
        answer = shared.get("/page/image-search.js", headers=headers)
        assert answer.headers["access-control-allow-origin"] == "https://viewer.example.org"
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
        assert "frame-ancestors https://viewer.example.org" in answer.headers["content-security-policy"]
        for method in ("PUT", "PATCH", "DELETE"):
            sent = {
                "access-control-request-method": method,
                "access-control-request-headers": "authorization, content-type, if-match, idempotency-key",
            }
            assert shared.options(SEARCH, headers=headers | sent).status_code == 200
        asked = "range, if-range, if-modified-since, if-none-match, cache-control, traceparent, tracestate"
        sent = {"access-control-request-method": "GET", "access-control-request-headers": asked}
        assert shared.options("/v1/collections", headers=headers | sent).status_code == 200
        told = shared.get("/v1/collections", headers=headers).headers["access-control-expose-headers"]
        assert "Content-Range, ETag, Link, Location, Retry-After, Server-Timing" in told
        # An image element sends no origin; its page's address tells it.
        for page, policy in (
            ("https://viewer.example.org/cases/7", "cross-origin"),
            ("https://viewer.example.org.evil.org/", "same-origin"),
            ("https://evil.example.org/?https://viewer.example.org", "same-origin"),
            ("", "same-origin"),
        ):
            loaded = shared.get("/page/image-search.js", headers={"referer": page})
            assert loaded.headers["cross-origin-resource-policy"] == policy
        # Errors can be read as well.
        refused = shared.post(SEARCH, json={"text": "x" * 2000}, headers=headers)
        problem(refused, 413, "content-too-large")
        assert refused.headers["access-control-allow-origin"] == "https://viewer.example.org"
        other = shared.get("/livez", headers={"origin": "https://evil.example.org"})
        assert "access-control-allow-origin" not in other.headers


def test_a_request_keeps_the_id_that_its_caller_gave(client: TestClient) -> None:
    assert client.get("/livez", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert client.get("/livez", headers={"x-request-id": "x" * 64}).headers["x-request-id"] == "x" * 64
    for bad in ("x" * 65, "a b", 'a"b'):
        assert client.get("/livez", headers={"x-request-id": bad}).headers["x-request-id"] != bad


def test_a_defect_is_answered_without_its_internals(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError(f"secret of {PATIENT}")

    monkeypatch.setattr("index.engine.SearchEngine.search", broken)
    with serve(indexed, key=False) as client:
        answer = client.post(SEARCH, json={"text": QUERY})
    document = problem(answer, 500, "internal-error")
    assert PATIENT not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    logged = capsys.readouterr()
    assert document["request_id"] in logged.out + logged.err
    assert "ValueError" in logged.out + logged.err
    assert PATIENT not in logged.out + logged.err


def test_the_log_is_json_and_holds_nothing_of_queries_or_patients(
    indexed: Indexed, json_log: io.StringIO
) -> None:
    name = f"{PATIENT} %237%3F"
    with serve(indexed, key=False) as client:
        page_of(client, text=QUERY, filter={"field": "id", "eq": PATIENT})
        client.post(SEARCH, json={"text": QUERY, "limit": 0})
        client.post(SEARCH, json={"text": QUERY, "filter": {"field": PATIENT, "eq": 1}})
        for path in ("", "/thumbnail", "/content"):
            assert client.get(f"/v1/collections/{COLLECTION}/images/{name}{path}").status_code == 200
        search_like(client, f"{PATIENT} #7?", words=QUERY, filter={"field": "id", "eq": PATIENT})
        client.get(f"/v1/collections/{COLLECTION}/images/{PATIENT}-none")
        search_image(client, b"no image", filter={"field": "id", "eq": PATIENT})
    lines = [json.loads(line) for line in json_log.getvalue().splitlines()]
    answered = [line for line in lines if line["event"] == "answered"]
    assert [line["operation"] for line in answered[:2]] == ["search_images", "search_images"]
    assert all({"request_id", "status", "ms", "timestamp", "level"} <= set(line) for line in answered)
    text = json.dumps(lines)
    for secret in (PATIENT, QUERY, REPORT, "cardiomegaly"):
        assert secret not in text


def test_figures_count_requests_batches_and_searches(indexed: Indexed) -> None:
    with serve(indexed, key=False) as client:
        client.post(SEARCH, json={"text": QUERY})
        client.post(SEARCH, json={"text": ""})
        client.get("/none")
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    figures = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert figures['recoquest_requests_total{operation="search_images",status="200"}'] == "1.0"
    assert figures['recoquest_requests_total{operation="search_images",status="422"}'] == "1.0"
    assert figures['recoquest_requests_total{operation="none",status="404"}'] == "1.0"
    assert figures['recoquest_encode_batch_size_count{kind="text"}'] == "1.0"
    assert figures["recoquest_search_seconds_count"] == "1.0"
    assert figures["recoquest_encode_queue_depth"] == "0.0"


def test_two_applications_in_one_process_count_for_themselves(indexed: Indexed) -> None:
    with serve(indexed, key=False) as one, serve(indexed, key=False) as other:
        one.get("/livez")
        assert 'operation="get_liveness"' in one.get("/metrics").text
        assert 'operation="get_liveness"' not in other.get("/metrics").text


def test_nothing_is_opened_before_the_service_starts(indexed: Indexed) -> None:
    home = indexed.settings.home / "never"
    assert isinstance(create_app(indexed.settings.model_copy(update={"home": home})), FastAPI)
    assert not home.exists()


def test_many_callers_at_once_get_their_own_answers(client: TestClient) -> None:
    texts = ["two dogs", "a boat at sea", "the heart is enlarged", "a red square"] * 6
    alone = {text: client.post(SEARCH, json={"text": text}).json()["hits"] for text in set(texts)}

    async def ask() -> list[Any]:
        calls = [asyncio.to_thread(client.post, SEARCH, json={"text": text}) for text in texts]
        return [answer.json() for answer in await asyncio.gather(*calls)]

    for text, page in zip(texts, asyncio.run(ask()), strict=True):
        for hit, expected in zip(page["hits"], alone[text], strict=True):
            assert hit["id"] == expected["id"]
            assert hit["score"] == pytest.approx(expected["score"], abs=1e-5)


@pytest.mark.parametrize(
    ("error", "status", "slug", "expected"),
    [
        (CatalogueError("disk I/O error"), 503, "catalogue-unavailable", True),
        (StoreError("No space left on device"), 500, "image-file-unavailable", True),
        (ViewError("cut short"), 503, "vectors-damaged", True),
        (RecoquestError(f"secret of {PATIENT}"), 500, "internal-error", False),
    ],
)
def test_the_log_has_the_reason_that_an_answer_keeps_back(
    indexed: Indexed,
    monkeypatch: pytest.MonkeyPatch,
    json_log: io.StringIO,
    error: RecoquestError,
    status: int,
    slug: str,
    expected: bool,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("index.engine.SearchEngine.search", broken)
    with serve(indexed, key=False) as client:
        answer = client.post(SEARCH, json={"text": QUERY})
    document = problem(answer, status, slug)
    assert str(error) not in answer.text
    lines = [json.loads(line) for line in json_log.getvalue().splitlines()]
    logged = next(line for line in lines if line["event"] == slug)
    assert logged["request_id"] == document["request_id"]
    assert logged["error"] == type(error).__name__
    assert logged["at"]
    assert (logged.get("reason") == str(error)) is expected
    assert expected or PATIENT not in json_log.getvalue()


def test_a_disk_too_full_to_read_from_is_not_said_to_take_no_writes(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        error = DiskFullError("the disk is full")
        error.writing = False
        raise error

    monkeypatch.setattr("index.engine.SearchEngine.search", broken)
    document = problem(client.post(SEARCH, json={"text": QUERY}), 507, "disk-full")
    assert "cannot be read" in document["detail"]
    assert "nothing was written" not in document["detail"]


def test_a_view_that_is_being_loaded_is_waited_for_before_the_catalogue_closes(
    own: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, never = threading.Event(), threading.Event()
    ended: list[bool] = []
    warm, close = SearchEngine.warm, SearchEngine.close

    def slow(engine: SearchEngine, generation: int) -> None:
        if not own.owns(engine):
            warm(engine, generation)
            return
        begun.set()
        # Long enough for a shutdown that does not wait to close what is needed here.
        never.wait(0.5)
        warm(engine, generation)
        ended.append(True)

    def note(engine: SearchEngine) -> None:
        if own.owns(engine):
            ended.append(False)
        close(engine)

    monkeypatch.setattr(SearchEngine, "warm", slow)
    monkeypatch.setattr(SearchEngine, "close", note)
    with serve(own, key=False):
        assert begun.wait(30)
    assert ended[-2:] == [True, False]
