"""The audit trail of the settings, and the events of commands."""

import getpass
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.orm import Session

from app.settings import Settings
from index.audit.chain import Trail, home_key
from index.audit.event import Action, Actor, Detail, Event, canonical, in_parts
from index.catalogue import Catalogue

if TYPE_CHECKING:
    from index.ingest import Moves

# Parts of the event of a command, of 1,000 ids each, that are written in one transaction.
_PARTS_AT_ONCE: Final = 20


def open_trail(settings: Settings, catalogue: Catalogue) -> Trail:
    """Return the audit trail of a catalogue with the key and the form of queries that the settings give.

    Raises:
        HomeError: The key in the home folder cannot be used.
    """
    given = settings.audit_key
    key = home_key(settings.home) if given is None else given.get_secret_value().encode()
    return Trail(catalogue, key, settings.audit_queries)


def command_actor() -> Actor:
    """Return the user of the operating system who runs this command."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return Actor("command", user, f"{user}@{socket.gethostname()}")


def record_command(
    settings: Settings,
    catalogue: Catalogue,
    action: Action,
    command: str,
    *,
    session: Session | None = None,
    collection: str | None = None,
    objects: Iterable[str] = (),
    query: Mapping[str, Sequence[str]] | None = None,
    model: str | None = None,
    generation: int | None = None,
    further: Mapping[str, Detail] | None = None,
    **details: Detail,
) -> None:
    """Write the event of a command to the audit trail, if there is one.

    Args:
        settings: Settings of the command.
        catalogue: The catalogue that it has read or changed.
        action: The kind of event.
        command: Name of the command.
        session: The transaction that makes the change, of which this is the last step; None: the event has
            its own, and several where it names many images.
        collection: Name of the collection.
        objects: Ids of images.
        query: Parts of a query.
        model: Digest of a model.
        generation: Number of a generation.
        further: Further values.
        details: As well.

    Raises:
        CatalogueError: The catalogue cannot be written to.
        DiskFullError: The disk has no space left.
        HomeError: The key in the home folder cannot be used.
    """
    if not settings.audit:
        return
    event = Event(
        action=action,
        actor=command_actor(),
        collection=collection,
        query=query,
        model=model,
        generation=generation,
        details={"operation": command, **(further or {}), **details},
    )
    trail, parts = open_trail(settings, catalogue), in_parts(event, objects)
    if session is not None:
        trail.append_in(session, list(parts))
        return
    while some := list(islice(parts, _PARTS_AT_ONCE)):
        trail.append(some)


def writes_recorded(
    settings: Settings, catalogue: Catalogue, collection: str, command: str
) -> Callable[[Session, Mapping[str, str]], None]:
    """Return what writes the event of each batch of images of a command, in the transaction of the batch.

    The function takes the transaction and the outcomes by the ids of images.
    """

    def record(session: Session, outcomes: Mapping[str, str]) -> None:
        record_command(
            settings,
            catalogue,
            "create",
            command,
            session=session,
            collection=collection,
            objects=outcomes,
            further=Counter(outcomes.values()),
        )

    return record


def removals_recorded(
    settings: Settings, catalogue: Catalogue, collection: str, command: str
) -> Callable[[Session, Sequence[str]], None]:
    """Return what writes the event of images that a command removes, in the transaction that removes them.

    The function takes the transaction and the ids.
    """

    def record(session: Session, ids: Sequence[str]) -> None:
        if ids:
            record_command(
                settings,
                catalogue,
                "delete",
                command,
                session=session,
                collection=collection,
                objects=ids,
            )

    return record


def moves_recorded(
    settings: Settings, catalogue: Catalogue, collection: str, command: str
) -> "Callable[[Session, Moves], None]":
    """Return what writes the event of images that get other ids, in the transaction that moves them.

    Its ids are pairs of the former and the new one, by which an erasure finds what an image was called.
    """
    removed = removals_recorded(settings, catalogue, collection, command)

    def record(session: Session, moves: "Moves") -> None:
        removed(session, moves.replaced)
        pairs = [name for pair in moves.ids.items() for name in pair]
        record_command(
            settings,
            catalogue,
            "change",
            command,
            session=session,
            collection=collection,
            objects=pairs,
            moved=len(moves.ids),
        )

    return record


def filter_parts(condition: Any) -> dict[str, list[str]]:
    """Return a filter as JSON without the ids that it names, and these, which are kept as keyed hashes."""
    if condition is None:
        return {}
    ids: list[str] = []
    parts = {"filter": [canonical(_without_ids(condition, ids))], "filter_ids": ids}
    return {name: texts for name, texts in parts.items() if texts}


def _without_ids(part: Any, ids: list[str]) -> Any:
    if isinstance(part, list):
        return [_without_ids(each, ids) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("field") != "id":
        return {name: _without_ids(value, ids) for name, value in part.items()}
    for name, value in part.items():
        if name != "field":
            ids.extend(str(each) for each in (value if isinstance(value, list) else [value]))
    return {name: value if name == "field" else "filter_ids" for name, value in part.items()}
