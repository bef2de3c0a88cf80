"""The audit trail of the settings, and the events of commands."""

import getpass
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    audit_key = settings.audit_key
    key = home_key(settings.home) if audit_key is None else audit_key.get_secret_value().encode()
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

    `session` is the transaction that makes the change, of which this is the last step. Without one the event
    has its own, and several where it names many images. `further` and `details` are both kept as details.

    Raises:
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


@dataclass(frozen=True, slots=True)
class ImageChanges:
    """Writes the events of images that a command changes, each in the transaction that changes them."""

    settings: Settings
    catalogue: Catalogue
    collection: str
    command: str

    def written(self, session: Session, outcomes: Mapping[str, str]) -> None:
        """Record a batch of images with their outcomes by id."""
        self._record(session, "create", outcomes, Counter(outcomes.values()))

    def removed(self, session: Session, ids: Sequence[str]) -> None:
        """Record images that are removed."""
        if ids:
            self._record(session, "delete", ids)

    def changed(self, session: Session, ids: Sequence[str]) -> None:
        """Record images whose record is another one."""
        self._record(session, "change", ids)

    def moved(self, session: Session, moves: "Moves") -> None:
        """Record images that get other ids, and those that they replace.

        The ids of the event are pairs of the former and the new one, by which an erasure finds what an image
        was called.
        """
        self.removed(session, moves.replaced)
        pairs = [name for pair in moves.ids.items() for name in pair]
        self._record(session, "change", pairs, {"moved": len(moves.ids)})

    def forgotten(self, session: Session, reports: int) -> None:
        """Record reports that are removed because their images never came."""
        self._record(session, "delete", (), {"reports": reports})

    def _record(
        self,
        session: Session,
        action: Action,
        ids: Iterable[str],
        further: Mapping[str, Detail] | None = None,
    ) -> None:
        record_command(
            self.settings,
            self.catalogue,
            action,
            self.command,
            session=session,
            collection=self.collection,
            objects=ids,
            further=further,
        )


def filter_parts(condition: Any) -> dict[str, list[str]]:
    """Return a filter as JSON without its ids, and the ids, which are stored as keyed hashes."""
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
