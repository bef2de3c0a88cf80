"""Headers that keep a browser from doing more with an answer than was meant."""

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.edge.http.addresses import path_of

# Swagger UI writes style attributes; its scripts come from this server all the same.
_DOCS_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
# A browser may keep the page's own files, and asks whether they are current.
_FILES = ("/page/", "/docs/assets/")
_ASK: Final = b"no-cache"
_NEVER: Final = b"no-store"
_ALL = "base-uri 'none'; form-action 'self'"
_PAGE_POLICY = "default-src 'self'; img-src 'self' blob: data:; object-src 'none'"


class SecurityHeaders:
    """ASGI middleware that adds the headers; a route that set one itself keeps it.

    Args:
        frame_ancestors: Origins that may show the page in a frame.
        allowed: Origins whose pages may call the service.
    """

    def __init__(
        self, app: ASGIApp, frame_ancestors: Sequence[str] = (), allowed: Sequence[str] = ()
    ) -> None:
        self.app = app
        ancestors = " ".join(frame_ancestors) or "'none'"
        self._allowed = frozenset(allowed)
        # Encoded once, since every answer has them.
        self._headers = {
            (policy, cache): (
                (b"content-security-policy", f"{policy}; {_ALL}; frame-ancestors {ancestors}".encode()),
                (b"cross-origin-resource-policy", b"same-origin"),
                (b"referrer-policy", b"no-referrer"),
                (b"x-content-type-options", b"nosniff"),
                (b"cache-control", cache),
            )
            for policy in (_DOCS_POLICY, _PAGE_POLICY)
            for cache in (_ASK, _NEVER)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                if self._embeds(scope):
                    given.append((b"cross-origin-resource-policy", b"cross-origin"))
                names = {name.lower() for name, _ in given}
                added = (header for header in self._of(path_of(scope)) if header[0] not in names)
                message["headers"] = [*given, *added]
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _embeds(self, scope: Scope) -> bool:
        """Whether a page that may call the service asks for it.

        A script names its page's origin; an image element does not, but browsers say which page holds it, and
        no page can say that of another. A page that is to show images therefore sends its origin as referrer.
        """
        if not self._allowed:
            return False
        headers = Headers(scope=scope)
        origin = headers.get("origin") or "/".join(headers.get("referer", "").split("/", 3)[:3])
        return origin in self._allowed

    def _of(self, path: str) -> tuple[tuple[bytes, bytes], ...]:
        policy = _DOCS_POLICY if path.startswith("/docs") else _PAGE_POLICY
        return self._headers[policy, _ASK if path.startswith(_FILES) else _NEVER]
