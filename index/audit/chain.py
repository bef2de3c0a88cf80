"""Appending to the audit trail: each event holds the hash of the one before it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import insert, select, text, update
from sqlalchemy.orm import Session

from index.audit.event import Event, QueryForm, canonical, digest_of, id_digest, in_parts
from index.catalogue import Catalogue
from index.catalogue.lookup import parts, rows_among
from index.catalogue.tables import AuditEventRow, AuditHeadRow, AuditNameRow
from index.keys.home_secret import home_secret

# The secret of the keyed hashes, in the home folder.
KEY_FILE: Final = "audit.key"

# The hash before the first event.
GENESIS: Final = "0" * 64
_HEAD: Final = 1

_BEGIN: Final = text(
    "INSERT INTO audit_head (id, sequence, hash, pruned, pruned_hash) "
    f"VALUES ({_HEAD}, 0, '{GENESIS}', 0, '{GENESIS}') ON CONFLICT DO NOTHING"
)
_NAME: Final = text(
    "INSERT INTO audit_names (digest, collection, name) VALUES (:digest, :collection, :name) "
    "ON CONFLICT DO NOTHING"
)
_FORGET: Final = text(
    "INSERT INTO audit_names (digest, collection, name) VALUES (:digest, :collection, NULL) "
    "ON CONFLICT (digest) DO UPDATE SET name = NULL"
)


@dataclass(frozen=True, slots=True)
class Trail:
    """The audit trail of a catalogue."""

    catalogue: Catalogue
    key: bytes
    queries: QueryForm = "text"

    def append(self, events: Sequence[Event]) -> None:
        """Write events to the end of the trail, in a transaction of their own.

        Raises:
            CatalogueError: The catalogue cannot be used; nothing is written.
            DiskFullError: The disk has no space left; nothing is written.
        """
        with self.catalogue.write() as session:
            self.append_in(session, events)

    def append_in(self, session: Session, events: Sequence[Event]) -> None:
        """Write events to the end of the trail in the caller's transaction, of which it is the last step."""
        head = locked_head(session)
        rows: list[dict[str, Any]] = []
        names: dict[str, dict[str, str]] = {}
        sequence, previous = head.sequence, head.hash
        for event in events:
            for part in in_parts(event, event.objects):
                sequence += 1
                record = part.record(self.key, self.queries, names)
                written = canonical(record | {"sequence": sequence, "previous": previous})
                previous = digest_of(written)
                rows.append(
                    {
                        "sequence": sequence,
                        "time": part.time,
                        "action": part.action,
                        "collection": record["collection"],
                        "event": written,
                        "hash": previous,
                    }
                )
        if names:
            session.connection().execute(_NAME, list(names.values()))
        if rows:
            session.execute(insert(AuditEventRow), rows)
            head.sequence, head.hash = sequence, previous

    def forget(self, session: Session, collection: str, ids: Sequence[str]) -> None:
        """Let events name these images by their keyed hashes alone, also those that other processes queue.

        It is done in the caller's transaction.
        """
        # First what appending locks first: each would wait for the other otherwise.
        locked_head(session)
        rows = [{"digest": id_digest(self.key, collection, name), "collection": collection} for name in ids]
        if rows:
            session.connection().execute(_FORGET, rows)
        for part in parts(ids):
            # Those that were named under another key.
            named = (AuditNameRow.name.in_(part), AuditNameRow.collection == collection)
            session.execute(update(AuditNameRow).where(*named).values(name=None))

    def other_ids(
        self, session: Session, collections: Sequence[str], ids: Sequence[str], *, former: bool
    ) -> set[str]:
        """Return the ids that images had before, or got later, as far as events record moves."""
        digests: set[str] = set()
        # In order of time, by the keyed hashes; the parts of an event are one move.
        moves: dict[str | int, dict[str, str]] = {}
        query = select(AuditEventRow.event).where(
            AuditEventRow.action == "change",
            AuditEventRow.collection.in_(collections),
            AuditEventRow.event.contains('"moved":'),
        )
        for event in session.execute(query.order_by(AuditEventRow.sequence)).scalars():
            record = json.loads(event)
            names = record["objects"]
            pairs = zip(names[::2], names[1::2], strict=True)
            moves.setdefault(record["details"].get("series", record["sequence"]), {}).update(pairs)
        now = {id_digest(self.key, collection, name) for collection in collections for name in ids}
        for move in reversed(moves.values()) if former else moves.values():
            steps = {new: old for old, new in move.items()} if former else move
            ends = {steps[digest] for digest in now if digest in steps}
            digests |= ends
            # Another image had the ids that were reassigned.
            now = ends | (now - steps.keys() - set(steps.values()))
        rows = rows_among(session, select(AuditNameRow.name), AuditNameRow.digest, digests)
        return {row.name for row in rows if row.name is not None}


def locked_head(session: Session) -> AuditHeadRow:
    """Return the end of the trail, which only this transaction may move until it ends."""
    session.execute(_BEGIN)
    # On SQLite the transaction itself is the lock.
    locked = select(AuditHeadRow).where(AuditHeadRow.id == _HEAD).with_for_update()
    return session.execute(locked.execution_options(populate_existing=True)).scalar_one()


def find_head(session: Session) -> AuditHeadRow | None:
    """Return the end of the trail; None before the first event."""
    return session.execute(select(AuditHeadRow).where(AuditHeadRow.id == _HEAD)).scalar_one_or_none()


def home_key(home: Path) -> bytes:
    """Return the secret in a home folder, drawn at the first call; only the owner can read its file."""
    return home_secret(
        home / KEY_FILE, "The key of the audit trail", without="ids and queries get other hashes then"
    )
