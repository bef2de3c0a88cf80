"""Names of collections: aliases, and renaming."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, ReadThroughCache
from index.catalogue.collections import (
    NOT_DELETED,
    check_name,
    lock_collection,
    lock_names,
    require_collection,
)
from index.catalogue.jobs import rename_in_jobs
from index.catalogue.lookup import storable_text
from index.catalogue.tables import AliasRow, CollectionRow, FormerNameRow
from index.errors import (
    AliasLimitError,
    AliasNameError,
    AliasTakenError,
    CollectionExistsError,
    CollectionNameError,
    ConditionError,
    UnknownAliasError,
    shortened,
)
from index.keys.api_keys import rename_scope
from index.writes.live import UNCONDITIONAL, Condition

# All are read together.
_MAX_ALIASES: Final = 1000
_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Alias:
    """An alias and its collection."""

    name: str
    collection: str
    revision: str


class CollectionNames:
    """Finds the collection behind an alias, as the catalogue is now; threads may share it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._aliases: ReadThroughCache[None, Mapping[str, str]] = ReadThroughCache(catalogue, _by_alias)

    def behind(self, name: str) -> str:
        """Return the collection behind an alias; the name itself where it is none."""
        return self._aliases.get(None).get(name, name)

    def cached(self, name: str) -> str | None:
        """Return what `behind` does, where nothing has to be waited for; else None."""
        aliases = self._aliases.cached(None)
        return None if aliases is None else aliases.get(name, name)


def _by_alias(session: Session, _: None) -> Mapping[str, str]:
    query = select(AliasRow.name, CollectionRow.name)
    return dict(session.execute(query.join(CollectionRow, CollectionRow.id == AliasRow.collection_id)).all())


def list_aliases(session: Session) -> list[Alias]:
    """Return all aliases, by name."""
    query = select(AliasRow.name, CollectionRow.id, CollectionRow.name.label("collection")).join(
        CollectionRow, CollectionRow.id == AliasRow.collection_id
    )
    rows = session.execute(query.order_by(AliasRow.name)).all()
    return [Alias(row.name, row.collection, _revision(row.name, row.id)) for row in rows]


def find_alias(session: Session, name: str) -> Alias | None:
    """Return an alias; None where there is none."""
    return next((alias for alias in list_aliases(session) if alias.name == name), None)


def find_collection(session: Session, name: str) -> tuple[int, str] | None:
    """Return the key and the own name of a collection by its name or an alias; None where there is none."""
    if not storable_text(name):
        return None
    columns = select(CollectionRow.id, CollectionRow.name).where(NOT_DELETED)
    named = session.execute(columns.where(CollectionRow.name == name)).first()
    if named is None:
        alias_columns = columns.join(AliasRow, AliasRow.collection_id == CollectionRow.id)
        named = session.execute(alias_columns.where(AliasRow.name == name)).first()
    return None if named is None else (named.id, named.name)


def put_alias(
    session: Session, name: str, collection: str, condition: Condition = UNCONDITIONAL
) -> Alias | None:
    """Point an alias at a collection; return it as it was before, None where it is new.

    Raises:
        AliasNameError: The alias is no valid name.
        AliasTakenError: A collection has this name.
        AliasLimitError: There are as many aliases as there may be.
    """
    try:
        check_name(name)
    except CollectionNameError as error:
        raise AliasNameError(str(error).replace("a collection", "an alias", 1)) from None
    lock_names(session)
    before = find_alias(session, name)
    _check(name, before, condition)
    if session.execute(select(CollectionRow.id).where(CollectionRow.name == name)).first() is not None:
        raise AliasTakenError(name)
    target = require_collection(session, collection).id
    row = session.get(AliasRow, name)
    if row is not None:
        row.collection_id = target
        return before
    if session.execute(select(func.count()).select_from(AliasRow)).scalar_one() >= _MAX_ALIASES:
        raise AliasLimitError(f"There are {_MAX_ALIASES:,} aliases already: remove one first.")
    session.add(AliasRow(name=name, collection_id=target))
    return None


def swap_alias(session: Session, name: str, old: str, new: str) -> Alias:
    """Point an alias from one collection at another; return it as it was before.

    Raises:
        ConditionError: It leads to another collection.
        UnknownCollectionError: There is no collection of the new name.
    """
    lock_names(session)
    before = find_alias(session, name)
    if before is None:
        raise UnknownAliasError(name)
    if before.collection != old:
        raise ConditionError(
            f"The alias {name!r} leads to {before.collection!r} and not to {shortened(old)!r}: nothing was "
            "changed.",
            before.revision,
        )
    put_alias(session, name, new)
    return before


def remove_alias(session: Session, name: str, condition: Condition = UNCONDITIONAL) -> Alias:
    """Remove an alias; its collection stays."""
    lock_names(session)
    before = find_alias(session, name)
    _check(name, before, condition)
    row = session.get(AliasRow, name)
    if row is None or before is None:
        raise UnknownAliasError(name)
    session.delete(row)
    return before


def rename_collection(session: Session, old: str, new: str) -> None:
    """Give a collection another name; keys and jobs that have ended follow, and no alias is left.

    Images, generations and snapshots belong to its key and stay as they are. Writes in progress end first.

    Raises:
        CollectionNameError: The new name is not valid.
        CollectionExistsError: A collection or an alias has the new name.
        KeyScopeError: Keys hold roles in the new name, which they would gain here.
        CollectionInUseError: A job of the collection waits or runs.
    """
    check_name(new)
    lock_names(session)
    row = require_collection(session, old)
    if session.execute(select(CollectionRow.id).where(CollectionRow.name == new)).first() is not None:
        raise CollectionExistsError(new)
    if session.get(AliasRow, new) is not None:
        raise CollectionExistsError(new, alias=True)
    rename_scope(session, old, new)
    lock_collection(session, row.id)
    rename_in_jobs(session, old, new)
    row.name = new
    if session.get(FormerNameRow, (row.id, old)) is None:
        session.add(FormerNameRow(collection_id=row.id, name=old))


def _check(name: str, alias: Alias | None, condition: Condition) -> None:
    revision = None if alias is None else alias.revision
    if condition.holds(revision):
        return
    target = "is none" if alias is None else f"leads to {alias.collection!r}"
    raise ConditionError(
        f"The alias {shortened(name)!r} {target} now, and nothing was changed: read it again, and send its "
        "present ETag.",
        revision,
    )


def _revision(name: str, collection_id: int) -> str:
    return hashlib.sha256(f"{name}\n{collection_id}".encode()).hexdigest()[:_DIGITS]
