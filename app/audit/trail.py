"""The audit trail of the settings, and the events of commands."""

import getpass
import socket
from collections.abc import Mapping, Sequence

from app.settings import Settings
from index.audit.chain import Trail
from index.audit.event import Action, Actor, Detail, Event
from index.audit.key import home_key
from index.catalogue import Catalogue


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
    collection: str | None = None,
    objects: Sequence[str] = (),
    query: Mapping[str, Sequence[str]] | None = None,
    model: str | None = None,
    generation: int | None = None,
    **details: Detail,
) -> None:
    """Write the event of a command to the audit trail, if there is one.

    Args:
        settings: Settings of the command.
        catalogue: The catalogue that it has read or changed.
        action: The kind of event.
        command: Name of the command.
        collection: Name of the collection.
        objects: Ids of images.
        query: Parts of a query.
        model: Digest of a model.
        generation: Number of a generation.
        details: Further values.

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
        objects=objects,
        query=query,
        model=model,
        generation=generation,
        details={"operation": command, **details},
    )
    open_trail(settings, catalogue).append([event])
