"""Roles imply each other, and a grant of one collection says nothing of another."""

import pytest

from app.edge.principal import NOBODY, ROLES, Principal, Role

IMPLIED: dict[Role, set[Role]] = {
    "reader": {"reader"},
    "judge": {"judge", "reader"},
    "curator": {"curator", "reader"},
    "admin": {"admin", "reader", "judge", "curator", "auditor"},
    "auditor": {"auditor"},
}


def _principal(collection: str, role: Role) -> Principal:
    return Principal("key", "1", "a key", {collection: frozenset({role})})


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_its_rights_and_no_more(role: Role) -> None:
    everywhere, in_one = _principal("*", role), _principal("scenes", role)
    for asked in ROLES:
        implied = asked in IMPLIED[role]
        assert everywhere.may(asked, "scenes") is everywhere.may(asked, None) is implied
        assert in_one.may(asked, "scenes") is implied
        assert not in_one.may(asked, "maps")
        assert not in_one.may(asked, None)
        assert not in_one.may(asked, "*")


@pytest.mark.parametrize("role", ROLES)
def test_nobody_may_anything(role: Role) -> None:
    assert not NOBODY.may(role, None)
    assert not NOBODY.may(role, "scenes")
