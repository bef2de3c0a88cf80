"""Traces of requests for OpenTelemetry: off unless a collector is named and the extra is installed."""

import re
from collections.abc import Iterable
from typing import Final

from opentelemetry.propagate import extract
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider, set_span_in_context

from app.concurrency.timings import Part
from training.common.errors import RecoquestError

_NAME: Final = "recoquest"
_FIRST_DEFECT: Final = 500
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)


class TelemetryError(RecoquestError):
    """Traces that cannot be sent as the settings ask."""


def open_provider(endpoint: str) -> TracerProvider:
    """Send traces to a collector, in the background.

    Args:
        endpoint: URL that takes OTLP over HTTP, such as `http://localhost:4318/v1/traces`.

    Raises:
        TelemetryError: The extra is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as SdkProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise TelemetryError(
            "RECOQUEST_TRACES_URL names a collector, and what sends traces is not installed: "
            "`pip install recoquest[telemetry]`, or leave the setting out."
        ) from error
    provider = SdkProvider(resource=Resource.create({"service.name": _NAME}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider


def tracer_of(provider: TracerProvider | None) -> Tracer | None:
    """Return what begins the spans of the service."""
    return None if provider is None else provider.get_tracer(_NAME)


def trace_id_of(traceparent: str) -> str | None:
    """Return the trace that a caller's header names (W3C Trace Context); None where it names none."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1] if found else None


def begin_span(tracer: Tracer, traceparent: str) -> Span:
    """Begin the span of a request, below that of its caller."""
    parent = extract({"traceparent": traceparent}) if trace_id_of(traceparent) else None
    return tracer.start_span("request", context=parent, kind=SpanKind.SERVER)


def end_span(
    tracer: Tracer, span: Span, operation: str, status: int, parts: Iterable[tuple[Part, int, int]]
) -> None:
    """End the span of a request, with a child for each of its parts.

    Neither address nor query is told: both may hold what belongs to a patient.

    Args:
        tracer: The one that began the span.
        span: The span of the request.
        operation: Its name from now on.
        status: Status of the answer.
        parts: Name, start and end of each, in nanoseconds since 1970.
    """
    below = set_span_in_context(span)
    for part, started, ended in parts:
        tracer.start_span(part, context=below, start_time=started).end(ended)
    span.update_name(operation)
    span.set_attributes({"recoquest.operation": operation, "http.response.status_code": status})
    if status >= _FIRST_DEFECT:
        span.set_status(StatusCode.ERROR)
    span.end()
