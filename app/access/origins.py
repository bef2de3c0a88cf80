"""Pages of other sites that are open in a browser here: refused, unless the settings allow their origin."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.access.hosts import Authority, parse_authority
from app.http.addresses import path_of
from app.http.problem_kinds import Kind
from app.http.problems import problem_response

_FOREIGN: Final = Kind("foreign-page", "Pages of other sites are not answered", HTTPStatus.FORBIDDEN)
_DETAIL: Final = (
    "A page of another site has sent this: if it may call the service, add its origin to "
    "RECOQUEST_CORS_ORIGINS."
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_READING: Final = frozenset({"GET", "HEAD"})
# A link may lead here from anywhere: the answer is a page of the service's own.
# The identity provider sends browsers back to the last.
_PAGES: Final = frozenset({"/", "/room", "/operate", "/docs", "/v1/session/callback"})
_FILES: Final = "/page/"
# Links are made for pages of other sites; the cookie of a session does not count with one.
_LINKED: Final = re.compile(r"/v1/collections/[^/]+/images/.+/(thumbnail|rendition|content)", re.DOTALL)
_PICTURE: Final = re.compile(r"/v1/collections/[^/]+/images/.+/(thumbnail|content)", re.DOTALL)


def is_own_origin(origin: str, host: Authority) -> bool:
    """Whether an Origin header names the service that was asked as `host`; a proxy may have added TLS."""
    scheme, separator, rest = origin.lower().partition("://")
    authority = parse_authority(rest)
    default = _DEFAULT_PORTS.get(scheme)
    if not separator or authority is None or default is None:
        return False
    return authority.name == host.name and (authority.port or default) == (host.port or default)


@dataclass(slots=True)
class OriginCheck:
    """ASGI middleware that refuses requests which a page of a foreign origin makes.

    Browsers say of each request where it comes from: `Origin` with all that a script or a form sends, and
    `Sec-Fetch-Site` with the rest. Programs say neither and pass.

    Attributes:
        allowed: Origins that may call the service.
    """

    app: ASGIApp
    allowed: Sequence[str] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or self._passes(scope):
            await self.app(scope, receive, send)
            return
        response = problem_response(_FOREIGN, _DETAIL, scope=scope)
        await response(scope, receive, send)

    def _passes(self, scope: Scope) -> bool:
        headers, path = Headers(scope=scope), path_of(scope)
        reads = scope["method"] in _READING
        mode = headers.get("sec-fetch-mode", "")
        if reads and mode == "navigate" and (path in _PAGES or path.startswith(_FILES)):
            return True
        site = headers.get("sec-fetch-site", "")
        origins = headers.getlist("origin")
        if origins:
            return len(origins) == 1 and self._may_call(origins[0], site, headers.get("host", ""))
        if site != "cross-site" or (reads and _LINKED.fullmatch(path) and _brings_link(scope)):
            return True
        # Elements of an embedding page load these without an Origin; it cannot read the pixels.
        shared = path.startswith(_FILES) or _PICTURE.fullmatch(path) is not None
        return bool(self.allowed) and reads and mode == "no-cors" and shared

    def _may_call(self, origin: str, site: str, host: str) -> bool:
        if origin in self.allowed:
            return True
        # The browser compares with the address that it shows, also where a proxy sends another Host.
        if site == "same-origin":
            return True
        asked = parse_authority(host)
        return asked is not None and is_own_origin(origin, asked)


def _brings_link(scope: Scope) -> bool:
    return any(part.startswith(b"link=") for part in scope["query_string"].split(b"&"))
