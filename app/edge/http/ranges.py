"""Parts of files: ranges that make no sense are ignored, those outside of a file are told of."""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.http.problem_kinds import Kind
from app.edge.http.problems import problem_response

_UNSATISFIABLE: Final = Kind(
    "range-not-satisfiable", "The file has no such part", HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
)
# Viewers ask for one or two; hundreds of small ones cost more than the whole file.
_MAX_RANGES: Final = 8
# Python takes quadratic time for a number of thousands of digits.
_RANGE: Final = re.compile(r"(?P<first>[0-9]{1,18})-(?P<last>[0-9]{0,18})|-(?P<suffix>[0-9]{1,18})")


@dataclass(slots=True)
class Ranges:
    """ASGI middleware that passes valid ranges on and tells of wrong ones (RFC 9110, section 14)."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not any(name == b"range" for name, _ in scope["headers"]):
            await self.app(scope, receive, send)
            return
        before, ranges = dict(scope), _ranges_of(scope)
        caught = _Caught(send)
        await self._ask(scope, ranges, receive, caught)
        if caught.content_range is None:
            return
        size = int(caught.content_range.rpartition("/")[2])
        inside = [part for part in ranges if _is_inside(part, size)]
        if inside and len(inside) < len(ranges):
            # The framework refuses all for one that is outside. Routing begins anew.
            scope.update(before)
            await self._ask(scope, inside, receive, send)
            return
        response = problem_response(
            _UNSATISFIABLE,
            f"The file has {size:,} bytes: ask for bytes before its end, or leave Range out.",
            scope=scope,
            headers={"Content-Range": caught.content_range},
        )
        await response(scope, receive, send)

    async def _ask(self, scope: Scope, ranges: list[re.Match[str]], receive: Receive, send: Send) -> None:
        """Let the route answer a request for these ranges; for the whole file, where there are none."""
        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        if ranges:
            headers.append((b"range", f"bytes={','.join(part[0] for part in ranges)}".encode()))
        # In the scope itself: the log and the audit trail look there for the operation.
        scope["headers"] = headers
        await self.app(scope, receive, send)


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
    """Return the ranges that a request asks for; none where its header is to be ignored."""
    sent = Headers(scope=scope).getlist("range")
    if scope["method"] != "GET" or len(sent) != 1:
        return []
    unit, _, rest = sent[0].partition("=")
    if unit.strip().lower() != "bytes":
        return []
    parts = [part.strip(" \t") for part in rest.split(",", _MAX_RANGES)]
    found = [_RANGE.fullmatch(part) for part in parts if part]
    ranges = [match for match in found if match is not None and not _is_backwards(match)]
    return ranges if len(found) == len(ranges) <= _MAX_RANGES else []


def _is_backwards(part: re.Match[str]) -> bool:
    return bool(part["last"]) and int(part["last"]) < int(part["first"])


def _is_inside(part: re.Match[str], size: int) -> bool:
    return int(part["suffix"]) > 0 if part["suffix"] else int(part["first"]) < size
