"""API keys and their roles: at most two live keys of a name, for a client to go from one to the other."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final, Literal, get_args

from sqlalchemy import select, text, update
from sqlalchemy.orm import Session

from index.catalogue.collections import now
from index.catalogue.tables import ApiKeyRow
from index.errors import KeyNameError, KeyScopeError, UnknownKeyError

FIRST_ADMIN: Final = "first admin"
MAX_LIVE: Final = 2
MAX_NAME_LENGTH: Final = 100
_PREFIX: Final = "rq"
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
# Prefix, identifier in hexadecimal digits, and the secret in unpadded base64.
_LENGTH: Final = len(_PREFIX) + 1 + 2 * _ID_BYTES + 1 + 43

Role = Literal["reader", "judge", "curator", "admin", "auditor"]
Grants = Mapping[str, frozenset[Role]]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
EVERY_COLLECTION: Final = "*"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret; see `ApiKeyRow`. Times are in ISO 8601, UTC; None: never."""

    id: str
    name: str
    digest: bytes
    grants: Grants
    created: str
    expires: str | None
    revoked: str | None
    used: str | None

    @property
    def state(self) -> str:
        """One of live, expired and revoked, at this moment."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now() else "live"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was made, and the only copy of the text that a client sends."""

    key: ApiKey
    text: str


def split_key(key: str) -> tuple[str, str] | None:
    """Split a key into identifier and secret; None where it has another form."""
    parts = key.split("_", 2)
    if len(key) != _LENGTH or len(parts) != 3 or parts[0] != _PREFIX:
        return None
    return parts[1], parts[2]


def create_key(session: Session, name: str, grants: Grants, *, days: int | None) -> NewKey:
    """Make the first live key of a name.

    Raises:
        KeyNameError: The name is not valid, or has a live key.
    """
    if not 0 < len(name.strip()) <= MAX_NAME_LENGTH or not name.isprintable():
        raise KeyNameError(
            f"{name!r} is not a name of a key: give 1 to {MAX_NAME_LENGTH} printable characters."
        )
    _lock(session)
    if any(key.state == "live" for key in _keys_of(session, name)):
        raise KeyNameError(
            f"{name!r} has a key: `recoquest keys rotate` makes the one that replaces it; give a new key "
            "another name."
        )
    return _add(session, name, grants, None if days is None else timedelta(days=days))


def create_first_key(session: Session) -> NewKey | None:
    """Make a key for the administrator of a catalogue that never had any key; None where there is one."""
    _lock(session)
    if session.execute(select(ApiKeyRow.id).limit(1)).first() is not None:
        return None
    return _add(session, FIRST_ADMIN, {EVERY_COLLECTION: frozenset[Role]({"admin"})}, None)


def rotate_key(session: Session, name: str) -> NewKey:
    """Make the key that replaces the newest of a name, with its roles and for as many days.

    Raises:
        UnknownKeyError: No key of this name can be replaced.
        KeyNameError: The name has two live keys.
    """
    _lock(session)
    keys = [key for key in _keys_of(session, name) if key.revoked is None]
    if not keys:
        raise UnknownKeyError(
            f"There is no key of the name {name!r} that can be replaced: `recoquest keys list` shows all."
        )
    live = [key for key in keys if key.state == "live"]
    if len(live) >= MAX_LIVE:
        raise KeyNameError(
            f"{name!r} has {len(live)} keys: revoke the older one first, "
            f"`recoquest keys revoke {live[0].id}`."
        )
    last = keys[-1]
    lifetime = None
    if last.expires is not None:
        lifetime = datetime.fromisoformat(last.expires) - datetime.fromisoformat(last.created)
    return _add(session, name, last.grants, lifetime)


def revoke_key(session: Session, key: str) -> ApiKey:
    """Revoke a key by its identifier; a revoked one stays as it is."""
    revoked = update(ApiKeyRow).where(ApiKeyRow.id == key, ApiKeyRow.revoked.is_(None)).values(revoked=now())
    session.execute(revoked)
    row = find_key(session, key)
    if row is None:
        raise UnknownKeyError(f"There is no key {key!r}: `recoquest keys list` shows the identifiers of all.")
    return row


def find_key(session: Session, key: str) -> ApiKey | None:
    """Return the key with an identifier, in any state."""
    row = session.get(ApiKeyRow, key, populate_existing=True)
    return None if row is None else _key(row)


def list_keys(session: Session) -> list[ApiKey]:
    """All keys, by name and then the oldest first."""
    rows = session.execute(select(ApiKeyRow).order_by(ApiKeyRow.name, ApiKeyRow.created, ApiKeyRow.id))
    return [_key(row) for row in rows.scalars()]


def note_use(session: Session, key: str, day: str) -> None:
    """Note the day of a key's last use."""
    session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key).values(used=day))


def rename_scope(session: Session, old: str, new: str) -> None:
    """Let the roles of keys in a collection hold under its new name.

    Raises:
        KeyScopeError: Keys that are not revoked hold roles in the new name already.
    """
    _lock(session)
    keys = session.execute(select(ApiKeyRow).order_by(ApiKeyRow.name, ApiKeyRow.id)).scalars().all()
    gaining = [f"{row.id} of {row.name!r}" for row in keys if row.revoked is None and new in row.grants]
    if gaining:
        raise KeyScopeError(new, gaining)
    for row in keys:
        if old in row.grants:
            row.grants = {new if name == old else name: roles for name, roles in row.grants.items()}


def today() -> str:
    """The day in UTC, as `used` has it."""
    return datetime.now(UTC).date().isoformat()


def _lock(session: Session) -> None:
    """Let one transaction at a time make keys; SQLite does so for all that write."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"LOCK TABLE {ApiKeyRow.__tablename__} IN SHARE ROW EXCLUSIVE MODE"))


def _keys_of(session: Session, name: str) -> Sequence[ApiKey]:
    query = select(ApiKeyRow).where(ApiKeyRow.name == name).order_by(ApiKeyRow.created, ApiKeyRow.id)
    return [_key(row) for row in session.execute(query).scalars()]


def _add(session: Session, name: str, grants: Grants, lifetime: timedelta | None) -> NewKey:
    key, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    expires = None
    if lifetime is not None:
        expires = (datetime.now(UTC) + lifetime).isoformat(timespec="microseconds")
    row = ApiKeyRow(
        id=key,
        name=name,
        digest=_digest(secret),
        grants=written_grants(grants),
        created=now(),
        expires=expires,
    )
    session.add(row)
    session.flush()
    return NewKey(_key(row), f"{_PREFIX}_{key}_{secret}")


def _digest(secret: str) -> bytes:
    # A slow hash makes passwords costly to guess; 256 random bits cannot be guessed from any hash.
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _key(row: ApiKeyRow) -> ApiKey:
    # Without the roles that only another version of recoquest knows.
    grants = {
        collection: frozenset(role for name in names if (role := role_of(name)) is not None)
        for collection, names in row.grants.items()
    }
    values = {field.name: getattr(row, field.name) for field in fields(ApiKey)}
    return ApiKey(**values | {"grants": grants})


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
    roles = [role_of(str(name)) for name in names]
    if not roles or None in roles:
        shown = json.dumps(written, default=str)
        raise ValueError(f"{shown} is not a list of roles: {', '.join(ROLES)}")
    return frozenset(role for role in roles if role is not None)


def written_grants(grants: Grants) -> dict[str, list[str]]:
    """Grants as JSON values, in the order of roles."""
    return {collection: [role for role in ROLES if role in roles] for collection, roles in grants.items()}
