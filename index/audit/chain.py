"""Appending to the audit trail: each event holds the hash of the one before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from sqlalchemy import insert, select, text, update
from sqlalchemy.orm import Session

from index.audit.event import Event, QueryForm, canonical, digest_of, id_digest, in_parts
from index.catalogue import Catalogue
from index.catalogue.audit_tables import AuditEventRow, AuditHeadRow, AuditNameRow

# The hash before the first event.
GENESIS: Final = "0" * 64
_HEAD: Final = 1
_AT_ONCE: Final = 500

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
    """The audit trail of a catalogue.

    Attributes:
        catalogue: The catalogue that holds it.
        key: Secret of the keyed hashes.
        queries: Form in which queries are kept.
    """

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
        for event in chain.from_iterable(in_parts(event, event.objects) for event in events):
            sequence += 1
            record = event.record(self.key, self.queries) | {"sequence": sequence, "previous": previous}
            written = canonical(record)
            previous = digest_of(written)
            rows.append(
                {
                    "sequence": sequence,
                    "time": event.time,
                    "action": event.action,
                    "collection": record["collection"],
                    "event": written,
                    "hash": previous,
                }
            )
            names |= event.names(self.key)
        if names:
            session.connection().execute(_NAME, list(names.values()))
        if rows:
            session.execute(insert(AuditEventRow), rows)
            head.sequence, head.hash = sequence, previous

    def forget(self, session: Session, collection: str, ids: Sequence[str]) -> None:
        """Let events name these images by their keyed hashes alone, also those that other processes queue.

        It is done in the caller's transaction.
        """
        rows = [{"digest": id_digest(self.key, collection, name), "collection": collection} for name in ids]
        if rows:
            session.connection().execute(_FORGET, rows)
        for start in range(0, len(ids), _AT_ONCE):
            # Those that were named under another key.
            named = (
                AuditNameRow.name.in_(ids[start : start + _AT_ONCE]),
                AuditNameRow.collection == collection,
            )
            session.execute(update(AuditNameRow).where(*named).values(name=None))


def locked_head(session: Session) -> AuditHeadRow:
    """Return the end of the trail, which only this transaction may move until it ends."""
    session.execute(_BEGIN)
    # On SQLite the transaction itself is the lock.
    locked = select(AuditHeadRow).where(AuditHeadRow.id == _HEAD).with_for_update()
    return session.execute(locked.execution_options(populate_existing=True)).scalar_one()


def find_head(session: Session) -> AuditHeadRow | None:
    """Return the end of the trail; None before the first event."""
    return session.execute(select(AuditHeadRow).where(AuditHeadRow.id == _HEAD)).scalar_one_or_none()
