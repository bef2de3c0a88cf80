"""Refuse bodies over the limit: by their declared length at once, and by what really arrives."""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.http.problem_kinds import TOO_LARGE
from app.edge.http.problems import problem_response

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
        takes_files = is_form(scope) or scope["path"].endswith(self.files_in_json)
        limit = self.max_form_bytes if takes_files else self.max_other_bytes
        if (declared_length(scope) or 0) > limit:
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


def is_form(scope: Scope) -> bool:
    """Whether the body of a request is a form, which may have files."""
    return Headers(scope=scope).get("content-type", "").lower().startswith("multipart/")


def declared_length(scope: Scope) -> int | None:
    """The length of a body as its head tells it; None where it comes in chunks of any number."""
    headers = Headers(scope=scope)
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdecimal():
        return None
    return int(length[: _MAX_DIGITS + 1])


def _detail(limit: int) -> str:
    return f"The body is larger than {limit:,} bytes, the limit for this kind of content; send less."
