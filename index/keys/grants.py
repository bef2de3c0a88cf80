"""Roles of callers, granted by collection."""

import json
from collections.abc import Mapping
from typing import Final, Literal, get_args

Role = Literal["reader", "judge", "curator", "admin", "auditor"]
Grants = Mapping[str, frozenset[Role]]

ROLES: Final[tuple[Role, ...]] = get_args(Role)
EVERY_COLLECTION: Final = "*"


def role_of(name: str) -> Role | None:
    """The role of a name; None where there is none."""
    return next((role for role in ROLES if role == name), None)


def parse_grants(written: object) -> dict[str, frozenset[Role]]:
    """Read roles by collection, such as {"scenes": ["reader"]}.

    Raises:
        ValueError: They have another form, or name an unknown role.
    """
    if not isinstance(written, Mapping) or not written:
        raise ValueError('roles are given by collection, such as {"scenes": ["reader"]}')
    return {str(collection): _parse_roles(roles) for collection, roles in written.items()}


def _parse_roles(written: object) -> frozenset[Role]:
    names = written if isinstance(written, list | tuple | frozenset) else []
    found = [role_of(str(name)) for name in names]
    if not found or None in found:
        given = json.dumps(written, default=str)
        raise ValueError(f"{given} is not a list of roles: {', '.join(ROLES)}")
    return frozenset(role for role in found if role is not None)


def written_grants(grants: Grants) -> dict[str, list[str]]:
    """Grants as JSON values, in the order of roles."""
    return {collection: [role for role in ROLES if role in roles] for collection, roles in grants.items()}
