"""Host names of the service, origins that may call it, and security headers.

A page of another site may give its own name our address. Requests of one that is open in a browser here are
refused, unless the settings allow its origin.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Scope

from app.edge.operations import OPERATION, path_of
from app.edge.problems import Kind
from index.errors import shortened

_BAD_HOST: Final = Kind("bad-host", "The Host header cannot be read", HTTPStatus.BAD_REQUEST)
_WRONG_HOST: Final = Kind("unknown-host", "The service has another name", HTTPStatus.MISDIRECTED_REQUEST)
_EVERY: Final = "*"
# Host headers whose check is remembered.
_REMEMBERED: Final = 64
_MAX_NAME_LENGTH: Final = 253
_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{0,5}))?"
)
# Health checks of load balancers speak it without a Host; no browser does.
_OLD_HTTP: Final = "1.0"
_FOREIGN: Final = Kind("foreign-page", "Pages of other sites are not answered", HTTPStatus.FORBIDDEN)
_DETAIL: Final = (
    "A page of another site has sent this: if it may call the service, add its origin to "
    "RECOQUEST_CORS_ORIGINS."
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_READING: Final = frozenset({"GET", "HEAD"})
_FILES: Final = "/page/"
# Swagger UI writes style attributes; its scripts come from this server all the same.
_DOCS_POLICY: Final = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
# Browsers may cache the page's own files, and revalidate them.
_ASSETS: Final = (_FILES, "/docs/assets/")
_ASK: Final = b"no-cache"
_NEVER: Final = b"no-store"
_ALL: Final = "base-uri 'none'; form-action 'self'"
_PAGE_POLICY: Final = "default-src 'self'; img-src 'self' blob: data:; object-src 'none'"


@dataclass(frozen=True, slots=True)
class Authority:
    """The name and the port of a Host header or of an origin.

    Attributes:
        name: Host name in lower case, without brackets and without a final dot.
        port: Port; None if the header has none.
    """

    name: str
    port: int | None

    @property
    def address(self) -> IPv4Address | IPv6Address | None:
        """The IP address that the name is, if it is one."""
        try:
            return ip_address(self.name)
        except ValueError:
            return None

    @property
    def is_local(self) -> bool:
        """Whether browsers resolve the name to this machine without a name server."""
        return self.name == "localhost" or self.name.endswith(".localhost") or is_loopback(self.name)


def parse_authority(text: str) -> Authority | None:
    """Read `name`, `name:port` or `[IPv6]:port`; None where it is none of them."""
    match = _AUTHORITY.fullmatch(text) if len(text) <= _MAX_NAME_LENGTH + len(":65535") else None
    if match is None:
        return None
    name = (match["v6"] or match["name"]).lower().removesuffix(".")
    port = int(match["port"]) if match["port"] else None
    if not name or len(name) > _MAX_NAME_LENGTH or (port is not None and port > 2**16 - 1):
        return None
    authority = Authority(name, port)
    if match["v6"] is not None and not isinstance(authority.address, IPv6Address):
        return None
    return authority


def is_loopback(address: str) -> bool:
    """Whether an IP address is of this machine itself."""
    parsed = Authority(address, None).address
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return parsed is not None and (mapped or parsed).is_loopback


class AllowedHosts:
    """Host names of the service.

    Local names always are. An IP address is where the service listens on more than the loopback address: no
    name server can turn an address into another one.
    """

    def __init__(self, names: Iterable[str], listens_on: str) -> None:
        lowered = [name.lower().removesuffix(".") for name in names]
        self._all = _EVERY in lowered
        self._parents = tuple(name.removeprefix(_EVERY) for name in lowered if name.startswith((".", "*.")))
        own = Authority(listens_on.lower().strip("[]"), None)
        self._names = {name.strip("[]") for name in lowered} | {own.name}
        self._addresses = not own.is_local

    def has(self, host: Authority) -> bool:
        """Whether the service answers under this name."""
        if self._all or host.is_local or host.name in self._names:
            return True
        return (self._addresses and host.address is not None) or host.name.endswith(self._parents)


def is_own_origin(origin: str, host: Authority) -> bool:
    """Whether an Origin header names the service that was addressed as `host`; a proxy may have added TLS."""
    scheme, separator, rest = origin.lower().partition("://")
    authority = parse_authority(rest)
    default = _DEFAULT_PORTS.get(scheme)
    if not separator or authority is None or default is None:
        return False
    return authority.name == host.name and (authority.port or default) == (host.port or default)


class SiteCheck:
    """Lets requests pass under the service's own names only, and none of a page of a foreign origin.

    Browsers say of each request where it comes from: `Origin` with all that a script or a form sends, and
    `Sec-Fetch-Site` with the rest. Programs say neither and pass. Pages of `origins` may call the service.
    """

    def __init__(self, hosts: AllowedHosts, origins: Sequence[str] = ()) -> None:
        self._hosts = hosts
        self._origins = origins
        # Nearly all requests name the same few hosts.
        self._wrong_host = lru_cache(_REMEMBERED)(self._check_host)

    def __call__(self, scope: Scope) -> tuple[Kind, str] | None:
        """Return what is wrong with where a request comes from, or with the name that it is for."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) == 1:
            wrong = self._wrong_host(hosts[0])
            if wrong is not None:
                return wrong
        elif hosts or scope["http_version"] != _OLD_HTTP:
            return _BAD_HOST, f"Send one Host header; there are {len(hosts)}."
        origins, site = headers.getlist("origin"), headers.get("sec-fetch-site", "")
        if not origins and site != "cross-site":
            return None
        return None if self._may_ask(scope, headers, origins, site) else (_FOREIGN, _DETAIL)

    def _check_host(self, sent: str) -> tuple[Kind, str] | None:
        host = parse_authority(sent)
        if host is None:
            return (
                _BAD_HOST,
                "The Host header is no name or address with a port: send one such as localhost:8000.",
            )
        if self._hosts.has(host):
            return None
        return _WRONG_HOST, (
            f"The service does not answer as {shortened(host.name)!r}: ask it by a name of its own, or "
            "add this one to RECOQUEST_ALLOWED_HOSTS."
        )

    def _may_ask(self, scope: Scope, headers: Headers, origins: Sequence[str], site: str) -> bool:
        """Whether a request that a page has sent, or has led to, is answered."""
        operation, mode = scope[OPERATION], headers.get("sec-fetch-mode", "")
        reads, is_file = scope["method"] in _READING, path_of(scope).startswith(_FILES)
        if reads and mode == "navigate" and (operation.page or is_file):
            return True
        if origins:
            return len(origins) == 1 and self._may_call(origins[0], site, headers.get("host", ""))
        parameters = scope["query_string"].split(b"&")
        brings_link = any(parameter.startswith(b"link=") for parameter in parameters)
        # Links are made for pages of other sites; the cookie of a session does not count with one.
        if reads and brings_link and operation.picture is not None:
            return True
        # Elements of an embedding page load these without an Origin; it cannot read the pixels.
        shared = is_file or operation.picture in ("thumbnail", "content")
        return bool(self._origins) and reads and mode == "no-cors" and shared

    def _may_call(self, origin: str, site: str, host: str) -> bool:
        # The browser compares with the address that it shows, also where a proxy sends another Host.
        if origin in self._origins or site == "same-origin":
            return True
        requested_host = parse_authority(host)
        return requested_host is not None and is_own_origin(origin, requested_host)


class SecurityHeaders:
    """Adds security headers to answers; a route that sets one itself keeps it."""

    def __init__(self, frame_ancestors: Sequence[str] = (), allowed: Sequence[str] = ()) -> None:
        ancestors = " ".join(frame_ancestors) or "'none'"
        self._allowed = frozenset(allowed)
        # Encoded once, since every answer has them.
        self._headers = {
            (policy, cache): {
                b"content-security-policy": f"{policy}; {_ALL}; frame-ancestors {ancestors}".encode(),
                b"cross-origin-resource-policy": b"same-origin",
                b"referrer-policy": b"no-referrer",
                b"x-content-type-options": b"nosniff",
                b"cache-control": cache,
            }
            for policy in (_DOCS_POLICY, _PAGE_POLICY)
            for cache in (_ASK, _NEVER)
        }

    def __call__(self, scope: Scope, start: Message) -> None:
        """Add them to the start of an answer."""
        headers = list(start.get("headers", ()))
        if self._allowed and self._embeds(scope):
            headers.append((b"cross-origin-resource-policy", b"cross-origin"))
        path = path_of(scope)
        policy = _DOCS_POLICY if path.startswith("/docs") else _PAGE_POLICY
        added = self._headers[policy, _ASK if path.startswith(_ASSETS) else _NEVER].copy()
        for name, _ in headers:
            added.pop(name.lower(), None)
        start["headers"] = [*headers, *added.items()]

    def _embeds(self, scope: Scope) -> bool:
        """Whether the request comes from a page that may call the service.

        A script names its page's origin; an image element does not, but browsers say which page holds it, and
        no page can say that of another. A page that is to show images therefore sends its origin as referrer.
        """
        headers = Headers(scope=scope)
        origin = headers.get("origin") or "/".join(headers.get("referer", "").split("/", 3)[:3])
        return origin in self._allowed
