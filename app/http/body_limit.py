"""Refuse bodies over the limit: by their declared length at once, and by what really arrives."""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.problem_kinds import TOO_LARGE
from app.http.problems import problem_response

# Python refuses to read a number of thousands of digits.
_MAX_DIGITS = 18


class BodyTooLargeError(HTTPException):
    """More bytes arrived than allowed; an HTTPException because the framework lets only those through."""

    def __init__(self, limit: int) -> None:
        super().__init__(TOO_LARGE.status, _detail(limit))


@dataclass(slots=True)
class BodyLimit:
    """ASGI middleware that bounds request bodies; those with a file may be larger than other bodies.

    Args:
        app: The application inside.
        max_form_bytes: Of forms, and of JSON for paths that take files in it.
        max_other_bytes: Of all others.
        files_in_json: Ends of those paths.
    """

    app: ASGIApp
    max_form_bytes: int
    max_other_bytes: int
    files_in_json: tuple[str, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_form = headers.get("content-type", "").lower().startswith("multipart/")
        limit = self.max_form_bytes if is_form or self._takes_files(scope) else self.max_other_bytes
        declared = headers.get("content-length", "")
        if declared.isdecimal() and (len(declared) > _MAX_DIGITS or int(declared) > limit):
            response = problem_response(
                TOO_LARGE,
                _detail(limit),
                scope=scope,
                # The body is left unread, so the connection cannot carry another request.
                headers={"Connection": "close"},
            )
            await response(scope, receive, send)
            return
        await self.app(scope, _Counted(receive, limit), send)

    def _takes_files(self, scope: Scope) -> bool:
        return bool(self.files_in_json) and scope["path"].endswith(self.files_in_json)


@dataclass(slots=True)
class _Counted:
    receive: Receive
    limit: int
    received: int = 0

    async def __call__(self) -> Message:
        message = await self.receive()
        if message["type"] == "http.request":
            self.received += len(message.get("body", b""))
            if self.received > self.limit:
                raise BodyTooLargeError(self.limit)
        return message


def _detail(limit: int) -> str:
    return f"The body is larger than {limit:,} bytes, the limit for this kind of content; send less."
