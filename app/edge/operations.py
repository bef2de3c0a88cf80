"""What a route declares in addition to its role, and its address, methods and ETags as callers see them.

A proxy may serve the service below a path, and remove that path.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from re import Pattern
from typing import Any, Final, Literal, TypeVar

from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from app.settings import Settings
from index.audit.event import Action

Work = Literal["search", "image-search", "read", "write", "change", "health"]
Endpoint = TypeVar("Endpoint", bound=Callable[..., object])

_DECLARED: Final = "recoquest_operation"
# Key of a request's operation in its scope.
OPERATION: Final = "recoquest.operation"


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route does; `@operation(...)` declares it at the route's function.

    Attributes:
        audit: Action of its events; None: it has none.
        work: Kind of work; each kind has its own limits, but "health" has none.
        files_in_json: Whether its JSON may have files, and be as large as a form.
        picture: Picture of an image that it answers with; signed links are for these.
        page: Whether any site may link to it: it answers with a page of the service, or redirects to one.
    """

    audit: Action | None
    work: Work
    _: KW_ONLY
    files_in_json: bool = False
    picture: Literal["thumbnail", "rendition", "content"] | None = None
    page: bool = False

    def __call__(self, endpoint: Endpoint) -> Endpoint:
        """Declare this operation at a function."""
        setattr(endpoint, _DECLARED, self)
        return endpoint


operation = Operation
# For requests that no route answers.
_READ, _WRITE = Operation(None, "read"), Operation(None, "write")


class Operations:
    """The operations of an application's routes."""

    def __init__(self) -> None:
        self._by_method: Final = defaultdict[str, list[tuple[Pattern[str], Operation]]](list)

    def learn(self, routes: Iterable[BaseRoute]) -> None:
        """Add routes, in the order in which they are matched.

        Raises:
            TypeError: A route declares no operation.
        """
        for route in routes:
            if isinstance(route, Route):
                declared = getattr(route.endpoint, _DECLARED, None)
                if declared is None:
                    raise TypeError(f"{route.name} ({route.path}) declares no operation: give it @operation.")
                for method in route.methods or ():
                    self._by_method[method].append((route.path_regex, declared))

    def match(self, scope: Scope) -> Operation:
        """Return the operation of a request; HEAD has that of GET."""
        method, path = scope["method"], path_of(scope)
        for at, declared in self._by_method.get("GET" if method == "HEAD" else method, ()):
            if at.match(path):
                return declared
        return _READ if method in ("GET", "HEAD", "OPTIONS") else _WRITE


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
    scope, methods = {**scope, "root_path": root_of(scope)}, set[str]()
    for route in application.router.routes:
        if route.matches(scope)[0] is not Match.NONE:
            # A folder of files takes GET.
            methods |= getattr(route, "methods", {"GET"})
    if "GET" in methods:
        methods.add("HEAD")
    return sorted(methods | {"OPTIONS"}) if methods else []
