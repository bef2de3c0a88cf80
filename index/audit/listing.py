"""Reading the audit trail: page by page, with the ids of images that were not erased."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.audit.event import canonical
from index.catalogue.audit_tables import AuditEventRow, AuditNameRow
from index.catalogue.lookup import rows_among

_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as it was written.

    Attributes:
        record: What was hashed.
        hash: Its hash.
        ids: The ids of its images, None for one that was erased; in the order of `record["objects"]`.
    """

    record: dict[str, Any]
    hash: str
    ids: tuple[str | None, ...]

    def line(self) -> str:
        """Return it as a line of NDJSON: the record, and beside it `hash` and `ids`."""
        return canonical({**self.record, "hash": self.hash, "ids": list(self.ids)})


@dataclass(frozen=True, slots=True)
class Selection:
    """Events to be read.

    Attributes:
        since: Time in ISO 8601 from which on; None: from the first.
        until: Time before which; None: to the last.
        collection: Only those of a collection.
        action: Only those of a kind.
    """

    since: str | None = None
    until: str | None = None
    collection: str | None = None
    action: str | None = None


def read_events(session: Session, selection: Selection, *, after: int = 0, limit: int) -> list[Entry]:
    """Return the events behind a sequence number, the oldest first."""
    query = select(AuditEventRow.event, AuditEventRow.hash).where(AuditEventRow.sequence > after)
    if selection.since is not None:
        query = query.where(AuditEventRow.time >= selection.since)
    if selection.until is not None:
        query = query.where(AuditEventRow.time < selection.until)
    if selection.collection is not None:
        query = query.where(AuditEventRow.collection == selection.collection)
    if selection.action is not None:
        query = query.where(AuditEventRow.action == selection.action)
    rows = session.execute(query.order_by(AuditEventRow.sequence).limit(limit)).all()
    records = [(json.loads(row.event), row.hash) for row in rows]
    digests = {digest for record, _ in records for digest in record["objects"]}
    named = select(AuditNameRow.digest, AuditNameRow.name)
    names = {row.digest: row.name for row in rows_among(session, named, AuditNameRow.digest, digests)}
    return [
        Entry(record, hash_, tuple(names.get(digest) for digest in record["objects"]))
        for record, hash_ in records
    ]


def all_events(session: Session, selection: Selection) -> Iterator[Entry]:
    """Yield all selected events, the oldest first, in bounded memory."""
    after = 0
    while entries := read_events(session, selection, after=after, limit=_AT_ONCE):
        yield from entries
        after = entries[-1].record["sequence"]
