"""Addresses of the service behind a proxy that serves it below a path and removes that path."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import HTTPConnection

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
