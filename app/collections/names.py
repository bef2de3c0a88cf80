"""Renames and removes collections, and refuses an alias where a collection's own name is needed."""

from http import HTTPStatus
from typing import Final

import structlog
from fastapi import Request
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.audit.trail import open_trail
from app.edge.problems import Kind, RequestError, invalid
from app.settings import Settings
from index.audit.event import Actor, Detail, Event
from index.catalogue.collections import called_now, hide_collection
from index.catalogue.tables import CollectionRow
from index.engine import SearchEngine
from index.erasure import keep_others_away, pending_erasures
from index.errors import CollectionInUseError, listed
from index.generations.names import rename_collection
from index.home import Home
from index.writes.deletion import collect_garbage
from training.common.errors import RecoquestError

_GROUPS: Final = Kind("groups-of-name", "Groups have roles in this name", HTTPStatus.CONFLICT)
_ALIAS: Final = Kind("alias-named", "The address names an alias", HTTPStatus.CONFLICT)

_log = structlog.stdlib.get_logger(__name__)


async def refuse_alias(request: Request) -> None:
    """Refuse what is done to a collection itself where the address names an alias of it."""
    alias = getattr(request.state, "alias", None)
    if alias is not None:
        name = request.path_params["collection"]
        raise RequestError(
            _ALIAS,
            f"{alias!r} is an alias of {name!r}, and nothing was changed: name the collection itself, or "
            "change the alias at /v1/aliases.",
        )


def remove(settings: Settings, engine: SearchEngine, collection: str) -> None:
    """Remove a collection with all that belongs to it, which is hidden at once.

    What fails after that is done by the next garbage collection.

    Raises:
        CollectionInUseError: An erasure of its images is incomplete or in progress; nothing is
            removed.
        RecoquestError: It cannot be removed; nothing is.
    """
    # Otherwise the record of an erasure would remain, and continue in another collection of this name.
    with keep_others_away(settings.home), engine.home.catalogue.write() as session:
        _refuse_unfinished(settings, collection, "remove")
        hide_collection(session, collection)
    try:
        engine.forget_removed()
        collect_garbage(engine.home)
    except RecoquestError as error:
        _log.warning("leftovers of a removed collection are not removed yet", reason=str(error))


def refuse_gained_roles(settings: Settings, session: Session, name: str) -> None:
    """Refuse a new collection of a name in which groups have the roles that were meant for a renamed one.

    A collection of this name that is there already is not new.
    """
    groups = _groups_of(settings, name)
    if not groups:
        return
    now = called_now(session, name)
    exists = select(CollectionRow.id).where(CollectionRow.name == name)
    if now is None or session.execute(exists).first() is not None:
        return
    raise invalid(
        "name",
        f"The collection that was called {name!r} is called {now!r} now, and RECOQUEST_OIDC_ROLES still "
        f"gives groups roles in {name!r}, which they would gain in a new collection: {listed(groups)}. "
        "Change the setting, or choose another name.",
        _GROUPS,
    )


def _groups_of(settings: Settings, name: str) -> list[str]:
    return sorted(group for group, grants in settings.oidc_roles.items() if name in grants)


def _refuse_unfinished(settings: Settings, collection: str, then: str) -> None:
    if any(one.collection == collection for one in pending_erasures(settings.home)):
        raise CollectionInUseError(
            f"Images of {collection!r} were not completely erased: erase them again, or run `recoquest erase "
            f"{collection}`, then {then} it."
        )


def rename(
    settings: Settings, home: Home, old: str, new: str, actor: Actor, *, operation: str, request: str | None
) -> list[str]:
    """Rename a collection, and write an event under either name, in one transaction.

    Returns the variables of the settings that still have its old name, which are also logged.

    Raises:
        RequestError: Groups of the identity provider have roles in the new name, by the settings.
        RecoquestError: It cannot be renamed, as `rename_collection` says; nothing is changed.
    """

    def event(collection: str, details: dict[str, Detail]) -> Event:
        return Event(
            action="change",
            actor=actor,
            collection=collection,
            request=request,
            details={"operation": operation, **details},
        )

    if gaining := _groups_of(settings, new):
        raise invalid(
            "name",
            f"Groups have roles in {new!r} by RECOQUEST_OIDC_ROLES, which they would gain in the renamed "
            f"collection: {listed(gaining)}. Take the name out of the setting, or choose another name.",
            _GROUPS,
        )
    trail = open_trail(settings, home.catalogue) if settings.audit else None
    # The note of an erasure that was stopped has the name of its collection.
    with keep_others_away(settings.home), home.catalogue.write() as session:
        _refuse_unfinished(settings, old, "rename")
        rename_collection(session, old, new)
        if trail is not None:
            events = [event(old, {"renamed_to": new}), event(new, {"renamed_from": old})]
            trail.append_in(session, events)
    named = {"RECOQUEST_OIDC_ROLES": _groups_of(settings, old), "RECOQUEST_RETRAIN": old in settings.retrain}
    still = [variable for variable, has_it in named.items() if has_it]
    if still:
        _log.warning(
            "settings name a collection as it was called before", settings=still, before=old, now=new
        )
    return still
