"""Middlewares of HTTP: ranges of files, and HEAD and OPTIONS of every address."""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.operations import allowed_methods
from app.edge.problems import Kind, problem_response

_UNSATISFIABLE: Final = Kind(
    "range-not-satisfiable", "The file has no such part", HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
)
# Viewers request one or two; hundreds of small ones cost more than the whole file.
_MAX_RANGES: Final = 8
# Python takes quadratic time for a number of thousands of digits.
_RANGE: Final = re.compile(r"(?P<first>[0-9]{1,18})-(?P<last>[0-9]{0,18})|-(?P<suffix>[0-9]{1,18})")


@dataclass(slots=True)
class _Caught:
    """Passes an answer on, but keeps back one that there is no such range."""

    send: Send
    content_range: str | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == _UNSATISFIABLE.status:
            self.content_range = Headers(raw=message["headers"]).get("content-range")
        if self.content_range is None:
            await self.send(message)


def _ranges_of(scope: Scope) -> list[re.Match[str]]:
    """Return the ranges that a request asks for; none if its header must be ignored."""
    sent = Headers(scope=scope).getlist("range")
    if scope["method"] != "GET" or len(sent) != 1:
        return []
    unit, _, rest = sent[0].partition("=")
    if unit.strip().lower() != "bytes":
        return []
    parts = [part.strip(" \t") for part in rest.split(",", _MAX_RANGES)]
    matches = [_RANGE.fullmatch(part) for part in parts if part]
    # None of them ends before it begins.
    ranges = [
        part for part in matches if part and not (part["last"] and int(part["last"]) < int(part["first"]))
    ]
    return ranges if len(matches) == len(ranges) <= _MAX_RANGES else []


def _with_ranges(scope: Scope, ranges: list[re.Match[str]]) -> Scope:
    text = f"bytes={','.join(part[0] for part in ranges)}"
    scope["headers"] = [*scope["headers"], (b"range", text.encode())]
    return scope


def _is_inside(part: re.Match[str], size: int) -> bool:
    return int(part["suffix"]) > 0 if part["suffix"] else int(part["first"]) < size


class _NothingMoreError(OSError):
    """Ends an answer to a request for headers alone, as a closed connection would."""


@dataclass(slots=True)
class Methods:
    """ASGI middleware for what any address takes.

    It answers HEAD as GET without its body, and OPTIONS with the methods there are. Valid ranges of a GET are
    passed on, and unsatisfiable ones are answered with 416 (RFC 9110, section 14).
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if "range" in Headers(scope=scope):
            await self._answer_parts(scope, receive, send)
        elif scope["method"] == "HEAD":
            await self._answer_head(scope, receive, send)
        elif scope["method"] == "OPTIONS" and (allowed := allowed_methods(scope["app"], scope)):
            headers = {"Allow": ", ".join(allowed)}
            await Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _answer_parts(self, scope: Scope, receive: Receive, send: Send) -> None:
        ranges = _ranges_of(scope)
        # In the scope itself: the log and the audit trail look there for the operation.
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"range"]
        if not ranges:
            await self(scope, receive, send)
            return
        before, caught = dict(scope), _Caught(send)
        await self.app(_with_ranges(scope, ranges), receive, caught)
        if caught.content_range is None:
            return
        size = int(caught.content_range.rpartition("/")[2])
        inside = [part for part in ranges if _is_inside(part, size)]
        if inside and len(inside) < len(ranges):
            # The framework refuses all for one that is outside. Routing begins again.
            scope.update(before)
            await self.app(_with_ranges(scope, inside), receive, send)
            return
        detail = f"The file has {size:,} bytes: ask for bytes before its end, or leave Range out."
        content_range = {"Content-Range": caught.content_range}
        refusal = problem_response(_UNSATISFIABLE, detail, scope=scope, headers=content_range)
        await refusal(scope, receive, send)

    async def _answer_head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the route answer GET up to the end of its headers."""
        # The server goes by the method of its own scope.
        inner = {**scope, "method": "GET"}
        headers = _HeadersOnly(send, inner, scope)
        try:
            await self.app(inner, receive, headers)
        except Exception as error:
            if not (headers.sent and _is_end(error)):
                raise
        finally:
            headers.tell()


@dataclass(slots=True)
class _HeadersOnly:
    send: Send
    inner: Scope
    outer: Scope
    sent: bool = False

    def tell(self) -> None:
        """Report the operation and its parameters to the log and the audit trail."""
        # What routing finds.
        for name in ("endpoint", "path_params"):
            if name in self.inner:
                self.outer[name] = self.inner[name]

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.tell()
            await self.send(message)
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})
            self.sent = True
        elif message.get("more_body"):
            # Neither a large file nor a stream without an end is made for nobody.
            raise _NothingMoreError


def _is_end(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_end(part) for part in error.exceptions)
    return isinstance(error, _NothingMoreError | ClientDisconnect)
