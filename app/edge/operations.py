"""What a route declares in addition to its role, and its address, methods and ETags as callers see them.

A proxy may serve the service below a path, and remove that path.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from starlette.requests import HTTPConnection
from starlette.routing import Match, Mount
from starlette.types import Scope

from app.settings import Settings
from index.audit.event import Action

Work = Literal["search", "image-search", "read", "write", "change"]
Endpoint = TypeVar("Endpoint", bound=Callable[..., object])

_DECLARED: Final = "recoquest_operation"
_ASKED: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class Operation:
    """What was declared.

    Attributes:
        audit: Action of its events; None: "change" where the method may change something, else it has none.
        work: Kind of work, which is admitted apart from others; None: "read" or "write", by the method.
        files_in_json: Whether its JSON may have files, and be as large as a form.
    """

    audit: Action | None = None
    work: Work | None = None
    files_in_json: bool = False


def operation(
    audit: Action | None = None, *, work: Work | None = None, files_in_json: bool = False
) -> Callable[[Endpoint], Endpoint]:
    """Return the decorator of a route's function that declares its operation."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _DECLARED, Operation(audit, work, files_in_json))
        return endpoint

    return declare


def operation_of(endpoint: object) -> Operation:
    """Return what a route's function declares."""
    declared = getattr(endpoint, _DECLARED, None)
    return declared if isinstance(declared, Operation) else Operation()


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
