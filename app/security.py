"""Headers that keep a browser from doing more with an answer than was meant."""

from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Swagger UI writes style attributes; its scripts come from this server all the same.
_DOCS_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
# A browser may keep the page's own files, and asks whether they are current.
_FILES = ("/page/", "/docs/assets/")
_ALL = "base-uri 'none'; form-action 'self'"
_PAGE_POLICY = "default-src 'self'; img-src 'self' blob: data:; object-src 'none'"


@dataclass(slots=True)
class SecurityHeaders:
    """ASGI middleware that adds the headers; a route that set one itself keeps it.

    Attributes:
        frame_ancestors: Origins that may show the page in a frame.
        shared: Whether other origins were allowed to call the service.
    """

    app: ASGIApp
    frame_ancestors: tuple[str, ...] = ()
    shared: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers(scope["path"]).items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _headers(self, path: str) -> dict[str, str]:
        policy = _DOCS_POLICY if path.startswith("/docs") else _PAGE_POLICY
        ancestors = " ".join(self.frame_ancestors) or "'none'"
        return {
            "Content-Security-Policy": f"{policy}; {_ALL}; frame-ancestors {ancestors}",
            "Cross-Origin-Resource-Policy": "cross-origin" if self.shared else "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-cache" if path.startswith(_FILES) else "no-store",
        }
