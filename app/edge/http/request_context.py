"""Around every request: its id, its time, its line in the log, and an answer when the service errs."""

import asyncio
import re
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass

import structlog
from opentelemetry.trace import Tracer, format_trace_id
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.concurrency.timings import Timings, collected_timings
from app.edge.http.problem_kinds import DEFECT, STOPPING, Kind
from app.edge.http.problems import problem_response
from app.edge.observability.logging import where
from app.edge.observability.metrics import Metrics
from app.edge.observability.tracebacks import let_go
from app.edge.observability.tracing import begin_span, end_span, trace_id_of

REQUEST_ID_HEADER = "X-Request-ID"

_CLIENT_CLOSED_REQUEST = 499
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class RequestContext:
    """ASGI middleware, outside of all that can err.

    A log line names the operation, never the path or the query: both may hold what belongs to a patient.

    Args:
        app: The application inside.
        metrics: Told of every answer.
        origins: Origins of other sites whose pages may read the times of an answer.
        tracer: Begins the spans of traces; None: there are none.
    """

    app: ASGIApp
    metrics: Metrics
    origins: Collection[str] = ()
    tracer: Tracer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        request_id = _request_id(scope)
        scope.setdefault("state", {}).update(request_id=request_id, started=started)
        headers = Headers(scope=scope)
        traceparent = headers.get("traceparent", "")
        span = None if self.tracer is None else begin_span(self.tracer, traceparent)
        named = {"request_id": request_id}
        trace_id = (
            trace_id_of(traceparent) if span is None else format_trace_id(span.get_span_context().trace_id)
        )
        if trace_id is not None:
            named["trace_id"] = trace_id
        origin = headers.get("origin", "")
        with structlog.contextvars.bound_contextvars(**named), collected_timings() as timings:
            tracked = _TrackedSend(send, request_id, timings, origin if origin in self.origins else None)
            try:
                await self.app(scope, receive, tracked)
            except ClientDisconnect:
                tracked.status = _CLIENT_CLOSED_REQUEST
            except asyncio.CancelledError:
                # Only a server that ends cancels a request as a whole.
                await self._answer(STOPPING, scope, receive, tracked)
            except Exception as error:  # noqa: BLE001 - the last place where a defect can become an answer
                _log.error("defect", error=type(error).__name__, at=where(error))
                let_go(error)
                await self._answer(DEFECT, scope, receive, tracked)
            self._report(scope, tracked.status, time.perf_counter() - started)
            if self.tracer is not None and span is not None:
                end_span(self.tracer, span, _operation(scope), tracked.status, timings.spans)

    async def _answer(self, kind: Kind, scope: Scope, receive: Receive, send: "_TrackedSend") -> None:
        """Answer with a problem unless an answer has begun."""
        if not send.status:
            response = problem_response(kind, "", scope=scope)
            await response(scope, receive, send)

    def _report(self, scope: Scope, status: int, seconds: float) -> None:
        operation = _operation(scope)
        self.metrics.answered(operation, status, seconds)
        _log.info("answered", operation=operation, status=status, ms=round(seconds * 1000, 2))


@dataclass(slots=True)
class _TrackedSend:
    send: Send
    request_id: str
    timings: Timings
    reader: str | None = None
    status: int = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID_HEADER] = self.request_id
            parts = self.timings.milliseconds()
            if parts:
                headers["Server-Timing"] = ", ".join(f"{name};dur={ms:.2f}" for name, ms in parts.items())
                if self.reader is not None:
                    headers["Timing-Allow-Origin"] = self.reader
        await self.send(message)


def milliseconds_since_arrival(scope: Scope) -> float:
    """Time since the request reached the service."""
    started = scope.get("state", {}).get("started")
    return (time.perf_counter() - started) * 1000 if isinstance(started, float) else 0.0


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
    return given if _ACCEPTABLE_ID.fullmatch(given) else uuid.uuid4().hex


def _operation(scope: Scope) -> str:
    endpoint = scope.get("endpoint")
    name = getattr(endpoint, "__name__", None)
    if isinstance(name, str):
        return name
    return "static" if endpoint is not None else "none"
