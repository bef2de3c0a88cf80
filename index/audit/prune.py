"""Retention: the oldest events go, and an event says so, with the hash that the chain goes on from."""

import json
from dataclasses import dataclass, replace
from time import sleep
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from index.audit.chain import Trail, locked_head
from index.audit.event import EXAMPLES, Detail, Event
from index.catalogue import PAUSE_SECONDS
from index.catalogue.audit_tables import AuditEventRow, AuditNameRow

_AT_ONCE: Final = 5000
_NAMES_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Pruned:
    """Number of events that went, and the hash of the last of them."""

    events: int
    hash: str


def prune_trail(trail: Trail, before: str, event: Event) -> Pruned:
    """Remove the events before a time, up to the first one that is not, and the ids that only they named.

    The event that tells of it is in the transaction that gives them up. They are then removed in batches;
    after a stop, the next call goes on.

    Args:
        trail: The audit trail.
        before: Time in ISO 8601.
        event: Event that tells of it; its details are added here.

    Raises:
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left for the event.
    """
    with trail.catalogue.write() as session:
        head = locked_head(session)
        kept = select(func.min(AuditEventRow.sequence)).where(
            AuditEventRow.time >= before, AuditEventRow.sequence > head.pruned
        )
        first = session.execute(kept).scalar() or head.sequence + 1
        count = first - 1 - head.pruned
        if count:
            last = session.execute(
                select(AuditEventRow.hash).where(AuditEventRow.sequence == first - 1)
            ).scalar_one()
            head.pruned, head.pruned_hash = first - 1, last
            details: dict[str, Detail] = {"before": before, "up_to": head.pruned, "hash": last}
            details["events"] = count
            trail.append_in(session, [replace(event, action="prune", details=details)])
        pruned, pruned_hash = head.pruned, head.pruned_hash
    while _remove_batch(trail, pruned):
        sleep(PAUSE_SECONDS)
    _forget_unnamed(trail)
    return Pruned(count, pruned_hash)


def _remove_batch(trail: Trail, pruned: int) -> bool:
    with trail.catalogue.write() as session:
        some = (
            select(AuditEventRow.sequence)
            .where(AuditEventRow.sequence <= pruned)
            .order_by(AuditEventRow.sequence)
            .limit(_AT_ONCE)
        )
        last = session.execute(select(func.max(some.subquery().c.sequence))).scalar()
        if last is None:
            return False
        session.execute(delete(AuditEventRow).where(AuditEventRow.sequence <= last))
    return True


def _forget_unnamed(trail: Trail) -> None:
    """Forget the ids that no event names any more; the digests of all others are in memory meanwhile."""
    named: set[bytes] = set()
    with trail.catalogue.read() as session:
        seen = _add_named(session, named, 0)
    with trail.catalogue.write() as session:
        # Held, so that no further event comes.
        locked_head(session)
        _add_named(session, named, seen)
        after = ""
        query = select(AuditNameRow.digest).order_by(AuditNameRow.digest).limit(_NAMES_AT_ONCE)
        while digests := session.execute(query.where(AuditNameRow.digest > after)).scalars().all():
            unnamed = [digest for digest in digests if bytes.fromhex(digest) not in named]
            session.execute(delete(AuditNameRow).where(AuditNameRow.digest.in_(unnamed)))
            after = digests[-1]


def _add_named(session: Session, named: set[bytes], after: int) -> int:
    """Add the digests that events behind a sequence number name; return the last number."""
    query = select(AuditEventRow.sequence, AuditEventRow.event).order_by(AuditEventRow.sequence)
    while rows := session.execute(query.where(AuditEventRow.sequence > after).limit(_AT_ONCE)).all():
        for row in rows:
            record = json.loads(row.event)
            parts = record["query"] or {}
            digests = (*record["objects"], *(digest for name in EXAMPLES for digest in parts.get(name, ())))
            named.update(bytes.fromhex(digest) for digest in digests)
        after = rows[-1].sequence
    return after
