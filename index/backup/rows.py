"""The rows of one catalogue copied into another, whatever databases they are."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import JSON, RowMapping, Table, delete, func, insert, select, text
from sqlalchemy.orm import Session

from index.audit.chain import find_head
from index.catalogue import tables
from index.catalogue.audit_tables import AuditEventRow, AuditHeadRow, AuditNameRow
from index.catalogue.full_text import add_stored_words
from index.catalogue.schema import DerivedRow
from training.common.progress import ProgressBar

_AT_ONCE: Final = 2000
# Orphans belong to one store, the identity to one home, no other machine may continue a job, answers tell of
# writes that a restore undoes, and words are made again.
_LEFT_OUT: Final = tuple(
    table.__tablename__
    for table in (
        tables.OrphanRow,
        tables.HomeRow,
        tables.JobRow,
        tables.IdempotencyKeyRow,
        tables.VocabularyRow,
    )
)
_TRAIL: Final = tuple(table.__tablename__ for table in (AuditEventRow, AuditHeadRow, AuditNameRow))
# Tables that count their keys, and what removals call the keys that are gone.
_COUNTED: Final = {"images": "images", "texts": "texts", "generations": None, "models": None, "reports": None}


def count_rows(session: Session) -> int:
    """Return how many rows `copy_rows` copies."""
    return sum(session.execute(select(func.count()).select_from(table)).scalar_one() for table in _tables())


def copy_rows(source: Session, target: Session, bar: ProgressBar) -> None:
    """Copy all rows into a catalogue that is empty, and make its full-text index.

    Args:
        source: A read, so that all rows are of one state.
        target: The transaction that writes.
        bar: Told of every row.
    """
    # A home that was used before has a trail of its own, which is not mixed with another.
    left = _TRAIL if find_head(target) is not None else ()
    for table in _tables():
        if table.name in left:
            continue
        if table.name == DerivedRow.__tablename__:
            # Findings are copied, of whatever rules they are.
            target.execute(delete(table))
        found = source.execute(select(table).execution_options(yield_per=_AT_ONCE))
        for rows in found.mappings().partitions():
            _insert(target, table, rows)
            bar.advance(len(rows))
    images = target.execute(select(tables.ImageRow.id).order_by(tables.ImageRow.id)).scalars().all()
    for start in range(0, len(images), _AT_ONCE):
        add_stored_words(target, images[start : start + _AT_ONCE])
    for table in _tables():
        if table.name in _COUNTED:
            _count_on(target, table)


def _tables() -> Sequence[Table]:
    """Return the tables that a backup holds, each behind those it refers to."""
    return [table for table in tables.Table.metadata.sorted_tables if table.name not in _LEFT_OUT]


def _insert(session: Session, table: Table, rows: Sequence[RowMapping]) -> None:
    if any(isinstance(column.type, JSON) and column.nullable for column in table.c):
        # Omitted columns are NULL; None would become JSON's null.
        for row in rows:
            given = {name: value for name, value in row.items() if value is not None}
            session.execute(insert(table), given)
    else:
        session.execute(insert(table), [dict(row) for row in rows])


def _count_on(session: Session, table: Table) -> None:
    """Let a table give no key that it has given before, also to rows that are gone."""
    last = session.execute(select(func.max(table.c.id))).scalar() or 0
    removed = _COUNTED[table.name]
    if removed is not None:
        keys = select(func.max(tables.RemovalRow.key)).where(tables.RemovalRow.target == removed)
        last = max(last, session.execute(keys).scalar() or 0)
    if not last:
        return
    values = {"name": table.name, "last": last}
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :last)"), values)
    elif table.dialect_options["sqlite"]["autoincrement"]:
        session.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        session.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :last)"), values)
