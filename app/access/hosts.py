"""The names under which the service answers: a page of another site may give its own name our address."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.problem_kinds import Kind
from app.http.problems import problem_response
from index.errors import shortened

_BAD_HOST: Final = Kind("bad-host", "The Host header cannot be read", HTTPStatus.BAD_REQUEST)
_WRONG_HOST: Final = Kind("unknown-host", "The service has another name", HTTPStatus.MISDIRECTED_REQUEST)
_EVERY: Final = "*"
_MAX_NAME_LENGTH: Final = 253
_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{0,5}))?"
)
# Health checks of load balancers speak it without a Host; no browser does.
_OLD_HTTP: Final = "1.0"


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
        """Whether browsers take the name for this machine, whatever a name server says."""
        if self.name == "localhost" or self.name.endswith(".localhost"):
            return True
        return is_loopback(self.name)


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
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


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


@dataclass(slots=True)
class HostCheck:
    """ASGI middleware that answers under the service's own names only, on every path."""

    app: ASGIApp
    allowed: AllowedHosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        wrong = self._judge(scope)
        if wrong is None:
            await self.app(scope, receive, send)
            return
        kind, detail = wrong
        response = problem_response(kind, detail, scope=scope)
        await response(scope, receive, send)

    def _judge(self, scope: Scope) -> tuple[Kind, str] | None:
        """Return the problem of a request's Host, if it has one."""
        sent = [value for name, value in scope["headers"] if name == b"host"]
        if not sent and scope["http_version"] == _OLD_HTTP:
            return None
        if len(sent) != 1:
            return _BAD_HOST, f"Send one Host header; there are {len(sent)}."
        host = parse_authority(sent[0].decode("latin-1"))
        if host is None:
            return (
                _BAD_HOST,
                "The Host header is no name or address with a port: send one such as localhost:8000.",
            )
        if self.allowed.has(host):
            return None
        return _WRONG_HOST, (
            f"The service does not answer as {shortened(host.name)!r}: ask it by a name of its own, or "
            "add this one to RECOQUEST_ALLOWED_HOSTS."
        )
