"""The caller of a request: the roles it has, by collection, and the addresses that it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from itertools import chain
from types import MappingProxyType
from typing import Final, Literal

from starlette.requests import HTTPConnection

from index.keys.api_keys import EVERY_COLLECTION, ROLES, Grants, Role

__all__ = ["EVERY_COLLECTION", "NOBODY", "ROLES", "Grants", "Kind", "Principal", "Role", "principal_of"]

Kind = Literal["anonymous", "key", "token", "session", "link"]

_MAX_ADDRESS_LENGTH: Final = 64
# Addresses whose networks are remembered.
_REMEMBERED: Final = 64
# The holder of one IPv6 address holds all of its /64 network.
_OWN_BITS: Final = 64

# The roles that have all rights of a role, itself among them.
_ROLES_WITH: Final[Mapping[Role, frozenset[Role]]] = {
    "reader": frozenset({"reader", "judge", "curator", "admin"}),
    "judge": frozenset({"judge", "admin"}),
    "curator": frozenset({"curator", "admin"}),
    "admin": frozenset({"admin"}),
    "auditor": frozenset({"auditor", "admin"}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request.

    Attributes:
        kind: Sort of credential that was checked; anonymous: none was sent.
        id: Stable identifier: of a key its id, of a token its issuer and subject, of a session that of the
            credential that began it, of a link that of its maker; empty without any.
        name: Name for people; the audit trail shows it.
        grants: Roles by collection; those under `*` hold in every collection and outside of them.
        expires: End of a token or a link, in seconds since 1970; None: others end when their key does.
    """

    kind: Kind
    id: str
    name: str
    grants: Grants
    expires: float | None = None

    def may(self, role: Role, collection: str | None) -> bool:
        """Whether the caller has the rights of a role in a collection; None: in all of them."""
        sufficient = _ROLES_WITH[role]
        if not sufficient.isdisjoint(self.grants.get(EVERY_COLLECTION, ())):
            return True
        return collection is not None and not sufficient.isdisjoint(self.grants.get(collection, ()))

    def may_somewhere(self, role: Role) -> bool:
        """Whether the caller has the rights of a role in any collection."""
        return not _ROLES_WITH[role].isdisjoint(chain.from_iterable(self.grants.values()))


NOBODY: Final = Principal("anonymous", "", "anonymous", MappingProxyType({}))


def principal_of(request: HTTPConnection) -> Principal:
    """The caller of a request; nobody with any right before the request was checked."""
    principal = getattr(request.state, "principal", NOBODY)
    assert isinstance(principal, Principal)
    return principal


def clients_of(request: HTTPConnection) -> list[str]:
    """Return who sends a request: its address, or the address behind a proxy and then the proxy's."""
    peer = _network("" if request.client is None else request.client.host)
    forwarded = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return [f"{peer} for {_network(forwarded)}", peer] if forwarded else [peer]


@lru_cache(_REMEMBERED)
def _network(address: str) -> str:
    if address.count(":") == 1:
        # Some proxies write the port as well, which changes with each connection.
        address = address.partition(":")[0]
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:_MAX_ADDRESS_LENGTH]
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return f"{IPv6Address(int(parsed) >> _OWN_BITS << _OWN_BITS)}/{_OWN_BITS}"
    return str(parsed)
