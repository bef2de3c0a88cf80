"""HEAD and OPTIONS of every address, and the methods that an address takes."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.http.addresses import root_of

_ASKED: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_READING: Final = ("GET", "HEAD")
# Parts of a request that routing finds.
_FOUND: Final = ("endpoint", "path_params")


class _NothingMoreError(OSError):
    """Ends an answer whose headers were all that was asked for, as a closed connection would."""


def allowed_methods(application: Any, scope: Scope) -> list[str]:
    """Return the methods that the address of a request takes; none where nothing is there."""
    asked = ({**scope, "root_path": root_of(scope), "method": method} for method in _ASKED)
    found = {inner["method"] for inner in asked if _takes(application, inner)}
    if not found:
        return []
    if "GET" in found:
        found.add("HEAD")
    return sorted(found | {"OPTIONS"})


def _takes(application: Any, scope: Scope) -> bool:
    for route in application.router.routes:
        match, _ = route.matches(scope)
        if match is Match.FULL:
            # A folder of files matches whatever the method.
            return not isinstance(route, Mount) or scope["method"] in _READING
    return False


@dataclass(slots=True)
class Methods:
    """ASGI middleware that answers HEAD as GET without its body, and OPTIONS with the methods there are."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] == "HEAD":
            await self._answer_head(scope, receive, send)
            return
        if scope["method"] == "OPTIONS":
            allowed = allowed_methods(scope["app"], scope)
            if allowed:
                headers = {"Allow": ", ".join(allowed)}
                await Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)(scope, receive, send)
                return
        await self.app(scope, receive, send)

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
        """Let the log and the audit trail know the operation and its parameters."""
        for name in _FOUND:
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
