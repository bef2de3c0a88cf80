"""Around every request: its id, its time, its line in the log, and an answer when the service errs."""

import asyncio
import re
import time
import uuid
from dataclasses import dataclass

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.problem_kinds import DEFECT, STOPPING, Kind
from app.http.problems import problem_response
from app.observability.logging import where
from app.observability.metrics import Metrics
from app.observability.tracebacks import let_go

REQUEST_ID_HEADER = "X-Request-ID"

_CLIENT_CLOSED_REQUEST = 499
_ACCEPTABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class RequestContext:
    """ASGI middleware, outside of all that can err.

    A log line names the operation, never the path or the query: both may hold what belongs to a patient.
    """

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = _request_id(scope)
        scope.setdefault("state", {}).update(request_id=request_id, started=started)
        tracked = _TrackedSend(send, request_id)
        with structlog.contextvars.bound_contextvars(request_id=request_id):
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

    async def _answer(self, kind: Kind, scope: Scope, receive: Receive, send: "_TrackedSend") -> None:
        """Answer with a problem unless an answer has begun."""
        if not send.status:
            response = problem_response(kind, "", request_id=send.request_id)
            await response(scope, receive, send)

    def _report(self, scope: Scope, status: int, seconds: float) -> None:
        operation = _operation(scope)
        self.metrics.answered(operation, status, seconds)
        _log.info("answered", operation=operation, status=status, ms=round(seconds * 1000, 2))


@dataclass(slots=True)
class _TrackedSend:
    send: Send
    request_id: str
    status: int = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            MutableHeaders(scope=message)[REQUEST_ID_HEADER] = self.request_id
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
