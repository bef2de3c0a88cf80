"""Verification of the audit trail by its hashes, and retention, which removes the oldest events."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from time import sleep
from typing import Any, Final

from sqlalchemy import Row, delete, func, select
from sqlalchemy.orm import Session

from index.audit.chain import GENESIS, Trail, find_head, locked_head
from index.audit.event import EXAMPLES, Detail, Event, canonical, digest_of, id_digest
from index.catalogue import PAUSE_SECONDS
from index.catalogue.lookup import rows_among
from index.catalogue.tables import AuditEventRow, AuditHeadRow, AuditNameRow

_AT_ONCE: Final = 1000
_EventRow = Row[int, str, str, str | None, str, str]
_PRUNED_AT_ONCE: Final = 5000
_NAMES_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a verification.

    Attributes:
        events: Number of events that are as they were written.
        pruned: Number of events before them that were pruned.
        hash: Hash of the last of them; it chains all others.
        fault: The first fault, as a sentence; None if there is none.
        sequence: Number of the event with the fault; None where it is of no single event.
    """

    events: int
    pruned: int
    hash: str
    fault: str | None = None
    sequence: int | None = None


class _FaultError(Exception):
    def __init__(self, fault: str, sequence: int | None = None) -> None:
        super().__init__(fault)
        self.sequence = sequence


def verify_trail(session: Session, *, key: bytes | None = None, head: str | None = None) -> Verified:
    """Compare all that the trail holds with its hashes, in bounded memory.

    Args:
        session: A read of the catalogue.
        key: Secret of the keyed hashes; None: the ids behind them are not compared.
        head: Hash of an earlier end of the trail, as it was noted elsewhere; the trail must hold it.
    """
    end = find_head(session)
    walk = _Walk(0 if end is None else end.pruned, GENESIS if end is None else end.pruned_hash)
    names = _Names(session)
    has_head = head is None or head == walk.previous
    try:
        for rows in _batches(session, walk.sequence):
            records = [walk.step(row) for row in rows]
            has_head = has_head or any(row.hash == head for row in rows)
            for record in records:
                names.take(record)
            names.look_up()
        _check_end(walk, end)
        if not has_head:
            raise _FaultError(f"No event has the hash {head}, which was to be one of the trail's.")
        names.check(pruned=walk.start > 0)
        if key is not None:
            _check_names(session, key)
    except _FaultError as fault:
        return Verified(walk.events, walk.start, walk.previous, str(fault), fault.sequence)
    return Verified(walk.events, walk.start, walk.previous)


class _Walk:
    """Walks along the chain from what was pruned."""

    def __init__(self, start: int, previous: str) -> None:
        self.start = self.sequence = start
        self.pruned_hash = self.previous = previous
        # Whether an event records the pruning.
        self.pruning_recorded = start == 0

    @property
    def events(self) -> int:
        """Number of events that passed."""
        return self.sequence - self.start

    def step(self, row: _EventRow) -> dict[str, Any]:
        """Check the next event, and return its content."""
        expected = self.sequence + 1
        if row.sequence != expected:
            raise _FaultError(f"Event {expected} is missing.", expected)
        if digest_of(row.event) != row.hash:
            raise _FaultError(f"Event {expected} was changed: it has another hash.", expected)
        record = _parsed(row.event)
        if record is None or (record.get("sequence"), record.get("previous")) != (expected, self.previous):
            raise _FaultError(f"Event {expected} does not follow the event before it.", expected)
        repeated = (record.get("time"), record.get("action"), record.get("collection"))
        if repeated != (row.time, row.action, row.collection) or canonical(record) != row.event:
            raise _FaultError(
                f"Event {expected} was changed: its columns differ from what it says.", expected
            )
        if record["action"] == "prune":
            details = record["details"]
            self.pruning_recorded |= (details.get("up_to"), details.get("hash")) == (
                self.start,
                self.pruned_hash,
            )
        self.sequence, self.previous = expected, row.hash
        return record


class _Names:
    """Looks for the ids behind the keyed hashes of events, which only an erasure takes away.

    An erasure under a former name of a collection leaves no hash of that name in its event; these are passed
    over, and so is what an erasure that was pruned may have taken away.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._named: dict[str, int] = {}
        self._erased: set[str] = set()
        self._renamed: set[str] = set()
        self._blank: dict[str, tuple[int, str]] = {}

    def take(self, record: Mapping[str, Any]) -> None:
        """Note what an event names."""
        if record["action"] == "erase":
            self._erased.update(record["objects"])
        elif record["outcome"] == "success":
            query = record["query"] or {}
            for digest in chain(record["objects"], *(query.get(part, ()) for part in EXAMPLES[:2])):
                self._named.setdefault(digest, record["sequence"])
        if "renamed_to" in record["details"]:
            self._renamed.add(record["collection"])

    def look_up(self) -> None:
        """Look for what was noted."""
        query = select(AuditNameRow.digest, AuditNameRow.collection, AuditNameRow.name)
        rows = rows_among(self._session, query, AuditNameRow.digest, self._named)
        rows_by_digest = {row.digest: row for row in rows}
        for digest, sequence in self._named.items():
            if digest not in rows_by_digest:
                raise _FaultError(
                    f"The id behind the keyed hash {digest}, which event {sequence} names, was deleted.",
                    sequence,
                )
            if rows_by_digest[digest].name is None:
                self._blank.setdefault(digest, (sequence, rows_by_digest[digest].collection))
        self._named.clear()

    def check(self, *, pruned: bool) -> None:
        """Make sure that erasures have taken away what is not there."""
        for digest, (sequence, collection) in self._blank.items():
            if not (pruned or digest in self._erased or collection in self._renamed):
                raise _FaultError(
                    f"The id behind the keyed hash {digest}, which event {sequence} names, was taken away, "
                    "and no event says that it was erased.",
                    sequence,
                )


def _batches(session: Session, after: int) -> Iterator[Sequence[_EventRow]]:
    query = select(
        AuditEventRow.sequence,
        AuditEventRow.time,
        AuditEventRow.action,
        AuditEventRow.collection,
        AuditEventRow.event,
        AuditEventRow.hash,
    ).order_by(AuditEventRow.sequence)
    while rows := session.execute(query.where(AuditEventRow.sequence > after).limit(_AT_ONCE)).all():
        yield rows
        after = rows[-1].sequence


def _parsed(event: str) -> dict[str, Any] | None:
    try:
        parsed = json.loads(event)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _check_end(walk: _Walk, end: AuditHeadRow | None) -> None:
    if end is None:
        if walk.events:
            raise _FaultError("The record of the trail's end is missing.")
        return
    if end.sequence > walk.sequence:
        raise _FaultError(f"Event {walk.sequence + 1} is missing: the trail was cut off.", walk.sequence + 1)
    if (end.sequence, end.hash) != (walk.sequence, walk.previous):
        raise _FaultError("The record of the trail's end differs from its last event.")
    if not walk.pruning_recorded:
        raise _FaultError(f"Events up to {walk.start} are gone, and no event says that they were pruned.")


def _check_names(session: Session, key: bytes) -> None:
    query = select(AuditNameRow.digest, AuditNameRow.collection, AuditNameRow.name).order_by(
        AuditNameRow.digest
    )
    after, matching, wrong = "", 0, None
    while rows := session.execute(query.where(AuditNameRow.digest > after).limit(_AT_ONCE)).all():
        for digest, collection, name in rows:
            if name is not None and id_digest(key, collection, name) != digest:
                wrong = wrong or (digest, collection, name)
            else:
                matching += name is not None
        after = rows[-1].digest
    if wrong is not None and not matching:
        raise _FaultError(
            "The events are as they were written, but none of the ids fits its keyed hash: bring back the "
            "audit.key of the home, or RECOQUEST_AUDIT_KEY, with which the trail was written."
        )
    if wrong is not None:
        raise _FaultError(
            f"The id {wrong[2]!r} of collection {wrong[1]!r} is not that of the keyed hash {wrong[0]}: it "
            "was changed, or named while RECOQUEST_AUDIT_KEY or audit.key in the home was another one."
        )


@dataclass(frozen=True, slots=True)
class Pruned:
    """Number of removed events, and the hash of the last of them."""

    events: int
    hash: str


def prune_trail(trail: Trail, before: str, event: Event) -> Pruned:
    """Remove the events before a time, up to the first one that is not, and the ids that only they named.

    The event that records it is in the same transaction. They are then removed in batches;
    after a stop, the next call continues.

    Raises:
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
            .limit(_PRUNED_AT_ONCE)
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
    while rows := session.execute(query.where(AuditEventRow.sequence > after).limit(_PRUNED_AT_ONCE)).all():
        for row in rows:
            record = json.loads(row.event)
            parts = record["query"] or {}
            digests = (*record["objects"], *(digest for name in EXAMPLES for digest in parts.get(name, ())))
            named.update(bytes.fromhex(digest) for digest in digests)
        after = rows[-1].sequence
    return after
