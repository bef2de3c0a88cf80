"""Around every request: its id, times, trace and line in the log, and an answer when the service errs."""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

import structlog
from opentelemetry.propagate import extract
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    TracerProvider,
    format_trace_id,
    set_span_in_context,
)
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.concurrency import Part, collected_timings
from app.edge.logging import let_go, where
from app.edge.metrics import Metrics
from app.edge.problems import DEFECT, STOPPING, Kind, problem_response
from training.common.errors import RecoquestError

REQUEST_ID_HEADER = "X-Request-ID"

_CLIENT_CLOSED_REQUEST = 499
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class RequestContext:
    """ASGI middleware, outside of all that can err.

    A log line names the operation, never the path or the query: both may hold what belongs to a patient.

    Attributes:
        wrong_site: Returns why a request is refused for its origin or its host name.
        audit: Records an answer that is about to begin; returns another one to send instead.
        add_headers: Adds headers to the start of an answer.
        origins: Their pages may read the times of an answer.
    """

    app: ASGIApp
    metrics: Metrics
    wrong_site: Callable[[Scope], tuple[Kind, str] | None]
    audit: Callable[[Scope, int], Awaitable[Response | None]]
    add_headers: Callable[[Scope, Message], None]
    origins: Collection[str] = ()
    tracer: Tracer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        headers = Headers(scope=scope)
        request_id = headers.get(REQUEST_ID_HEADER, "")
        if not _ACCEPTABLE_ID.fullmatch(request_id):
            request_id = secrets.token_hex(16)
        scope.setdefault("state", {}).update(request_id=request_id, started=started)
        traceparent, span = headers.get("traceparent"), None
        trace_id = None if traceparent is None else trace_id_of(traceparent)
        if self.tracer is not None:
            parent = extract({"traceparent": traceparent}) if trace_id else None
            span = self.tracer.start_span("request", context=parent, kind=SpanKind.SERVER)
            trace_id = format_trace_id(span.get_span_context().trace_id)
        named = {"request_id": request_id}
        if trace_id is not None:
            named["trace_id"] = trace_id
        status, replaced = 0, False

        async def forward(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                added = MutableHeaders(scope=message)
                added[REQUEST_ID_HEADER] = request_id
                if timings.spans:
                    added["Server-Timing"] = timings.header()
                    origin = headers.get("origin", "")
                    if origin in self.origins:
                        added["Timing-Allow-Origin"] = origin
                self.add_headers(scope, message)
            await send(message)

        async def audited(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start":
                other = await self.audit(scope, message["status"])
                if other is not None:
                    replaced = True
                    await other(scope, receive, forward)
            if not replaced:
                await forward(message)

        with structlog.contextvars.bound_contextvars(**named), collected_timings() as timings:
            problem: Kind | None = None
            try:
                wrong = self.wrong_site(scope)
                answer = self.app if wrong is None else problem_response(*wrong, scope=scope)
                await answer(scope, receive, audited)
            except ClientDisconnect:
                status = _CLIENT_CLOSED_REQUEST
            except asyncio.CancelledError:
                # Only a stopping server cancels whole requests.
                problem = STOPPING
            except Exception as error:  # noqa: BLE001 - the last place where a defect can become an answer
                _log.error("defect", error=type(error).__name__, at=where(error))
                let_go(error)
                problem = DEFECT
            if problem is not None and not status:
                await problem_response(problem, "", scope=scope)(scope, receive, forward)
            seconds, endpoint = time.perf_counter() - started, scope.get("endpoint")
            operation = getattr(endpoint, "__name__", "none" if endpoint is None else "static")
            self.metrics.answered(operation, status, seconds)
            _log.info("answered", operation=operation, status=status, ms=round(seconds * 1000, 2))
            if self.tracer is not None and span is not None:
                _end_span(self.tracer, span, operation, status, timings.spans)


def milliseconds_since_arrival(scope: Scope) -> float:
    """Time since the request reached the service."""
    started = scope.get("state", {}).get("started")
    return (time.perf_counter() - started) * 1000 if isinstance(started, float) else 0.0


_FIRST_DEFECT: Final = 500
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)


class TelemetryError(RecoquestError):
    """Traces that cannot be sent as the settings ask."""


def open_provider(endpoint: str) -> TracerProvider:
    """Send traces to a collector in the background, by OTLP over HTTP.

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
    provider = SdkProvider(resource=Resource.create({"service.name": "recoquest"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider


def trace_id_of(traceparent: str) -> str | None:
    """Return the trace id of a caller's header (W3C Trace Context); None if there is none."""
    match = _TRACEPARENT.fullmatch(traceparent)
    return match[1] if match else None


def _end_span(
    tracer: Tracer, span: Span, operation: str, status: int, parts: Iterable[tuple[Part, int, int]]
) -> None:
    """End the span of a request, with a child for each of its parts.

    Neither address nor query is recorded: both may contain patient data.
    """
    below = set_span_in_context(span)
    for part, started, ended in parts:
        tracer.start_span(part, context=below, start_time=started).end(ended)
    span.update_name(operation)
    span.set_attributes({"recoquest.operation": operation, "http.response.status_code": status})
    if status >= _FIRST_DEFECT:
        span.set_status(StatusCode.ERROR)
    span.end()
