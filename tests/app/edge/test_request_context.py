"""Times in headers, traces of callers in the log, and spans for OpenTelemetry."""

import io
import json
import sys
from collections.abc import Iterator

import httpx2
import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from app.application import create_app
from app.edge.request_context import TelemetryError, trace_id_of
from app.settings import Settings
from tests.app.conftest import COLLECTION, Indexed, serve

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SEARCH = f"/v1/collections/{COLLECTION}/search"
PAGE = "https://viewer.example.org"


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture(scope="module")
def traced(indexed: Indexed, exporter: InMemorySpanExporter) -> Iterator[TestClient]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = indexed.settings.model_copy(update={"cors_origins": (PAGE,)})
    with TestClient(create_app(settings, tracer_provider=provider), "http://localhost") as client:
        yield client


def test_answers_say_how_long_their_parts_took(client: TestClient, indexed: Indexed) -> None:
    def parts(answer: httpx2.Response) -> dict[str, float]:
        exported = [each.partition(";dur=") for each in answer.headers["Server-Timing"].split(", ")]
        return {name: float(ms) for name, _, ms in exported}

    # The first search may wait until the encoder is loaded.
    assert client.post(SEARCH, json={"text": "a boat"}).status_code == 200
    text = parts(client.post(SEARCH, json={"text": "a boat at sea"}))
    assert {"encode", "search", "catalogue"} <= set(text) <= {"queue", "encode", "search", "catalogue"}
    files = {"image": ("x.png", indexed.image_bytes(3), "image/png")}
    answer = client.post(SEARCH, files=files)
    image = parts(answer)
    assert {"queue", "decode", "encode", "search"} <= set(image)
    assert sum(image.values()) <= answer.json()["took_ms"]["total"] + 5
    assert "Server-Timing" not in client.get("/livez").headers


def test_pages_that_may_ask_may_read_times(traced: TestClient) -> None:
    for origin, allowed in ((PAGE, PAGE), (None, None)):
        headers = {} if origin is None else {"Origin": origin}
        answer = traced.post(SEARCH, json={"text": "a boat"}, headers=headers)
        assert answer.headers.get("Timing-Allow-Origin") == allowed
        assert "Server-Timing" in answer.headers


def _named(spans: tuple[ReadableSpan, ...]) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans}


def test_a_request_is_a_span_below_its_callers_with_its_parts(
    traced: TestClient, exporter: InMemorySpanExporter
) -> None:
    exporter.clear()
    secret = "patient Meier"
    headers = {"traceparent": TRACEPARENT}
    answer = traced.post(SEARCH, json={"text": secret}, params={"note": secret}, headers=headers)
    assert answer.status_code == 200
    spans = exporter.get_finished_spans()
    request = _named(spans)["search_images"]
    assert request.kind is SpanKind.SERVER
    assert request.parent is not None
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    assert {"encode", "search", "catalogue"} <= set(_named(spans))
    for span in spans:
        if span is not request:
            assert span.parent is not None
            assert span.parent.span_id == request.context.span_id
            assert None not in (request.start_time, span.end_time, request.end_time)
            times = [request.start_time or 0, span.end_time or 0, (request.end_time or 0) + 5_000_000]
            assert times == sorted(times)
    exported = " ".join(span.to_json() for span in spans)
    assert "Meier" not in exported
    assert COLLECTION not in exported


def test_a_request_without_a_trace_begins_one(traced: TestClient, exporter: InMemorySpanExporter) -> None:
    for traceparent in (None, "nonsense", f"00-{'0' * 32}-{PARENT}-01"):
        exporter.clear()
        headers = {} if traceparent is None else {"traceparent": traceparent}
        assert traced.get("/v1/collections/nobody", headers=headers).status_code == 404
        span = _named(exporter.get_finished_spans())["get_collection"]
        assert span.parent is None
        assert span.attributes is not None
        assert span.attributes["http.response.status_code"] == 404


def test_the_log_names_the_callers_trace_and_the_request_id_stays(
    indexed: Indexed, json_log: io.StringIO
) -> None:
    with serve(indexed, key=False) as client:
        headers = {"traceparent": TRACEPARENT, "X-Request-ID": "mine"}
        assert client.get("/livez", headers=headers).headers["X-Request-ID"] == "mine"
        client.get("/livez", headers={"traceparent": "00-x-y-01"})
    lines = [json.loads(line) for line in json_log.getvalue().splitlines()]
    first, second = (line for line in lines if line["event"] == "answered")
    assert (first["request_id"], first["trace_id"]) == ("mine", TRACE)
    assert "trace_id" not in second


@pytest.mark.parametrize(
    "header",
    ["", "00", f"ff-{TRACE}-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{PARENT}-01"],
)
def test_headers_that_name_no_trace(header: str) -> None:
    assert trace_id_of(header) is None
    assert trace_id_of(TRACEPARENT) == TRACE


def test_a_collector_without_the_extra_is_told_in_a_sentence(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    settings = Settings(home=indexed.settings.home, traces_url="http://localhost:4318/v1/traces")
    with pytest.raises(TelemetryError, match=r"pip install recoquest\[telemetry\]"):
        create_app(settings)
