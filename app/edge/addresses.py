"""Addresses behind a proxy that serves the service below a path and removes that path; methods and ETags."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import HTTPConnection
from starlette.routing import Match, Mount
from starlette.types import Scope

from app.settings import Settings


def root_of(scope: Mapping[str, Any]) -> str:
    """Return the path that the service is below, such as `/photos`; empty at the root of its host."""
    # A folder of files that has been entered has its own.
    root: str = scope.get("app_root_path", scope.get("root_path", ""))
    return root


def path_of(scope: Mapping[str, Any]) -> str:
    """Return the path of a request below the service's own."""
    path: str = scope["path"]
    return path.removeprefix(root_of(scope)) or "/"


def is_over_tls(request: HTTPConnection) -> bool:
    """Whether the browser sent a request over HTTPS; a proxy that takes TLS off says so."""
    # At the worst a browser keeps a Secure cookie to itself.
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "https" in (request.url.scheme, forwarded)


def service_url(request: HTTPConnection, settings: Settings) -> str:
    """Return the address of the service as the caller sees it, without a final slash."""
    scheme = "https" if is_over_tls(request) else "http"
    return settings.public_url or str(request.base_url.replace(scheme=scheme)).rstrip("/")


def etag_of(revision: str) -> str:
    """Return the ETag of an image at a revision, as headers have it."""
    return f'"{revision}"'


_ASKED: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


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
            return not isinstance(route, Mount) or scope["method"] == "GET"
    return False
