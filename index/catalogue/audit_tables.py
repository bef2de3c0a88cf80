"""The catalogue's tables of the audit trail, and of the backups that were written."""

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from index.catalogue.tables import ComparedText, Table


class AuditEventRow(Table):
    """An event of the audit trail, which no statement changes; see `index.audit.chain`.

    `event` is canonical JSON that holds all of it, the hash of the event before included, and `hash` is its
    SHA-256. The other columns repeat parts of it, to select by.
    """

    __tablename__ = "audit_events"
    __table_args__ = (Index("ix_audit_events_time", "time"),)

    sequence: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    time: Mapped[str] = mapped_column(ComparedText)
    action: Mapped[str] = mapped_column(String(20))
    collection: Mapped[str | None] = mapped_column(ComparedText)
    event: Mapped[str] = mapped_column(Text)
    hash: Mapped[str] = mapped_column(String(64))


class AuditHeadRow(Table):
    """The one row with the end of the audit trail: the last event, and the last one that was pruned."""

    __tablename__ = "audit_head"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[str] = mapped_column(String(64))
    pruned: Mapped[int] = mapped_column(BigInteger)
    pruned_hash: Mapped[str] = mapped_column(String(64))


class AuditNameRow(Table):
    """The id of an image that events name by its keyed hash; None after an erasure, and for good."""

    __tablename__ = "audit_names"
    __table_args__ = (
        Index("ix_audit_names_name", "name", "collection"),
        {"sqlite_with_rowid": False},
    )

    digest: Mapped[str] = mapped_column(String(32), primary_key=True)
    collection: Mapped[str] = mapped_column(ComparedText)
    name: Mapped[str | None] = mapped_column(ComparedText)


class FormerNameRow(Table):
    """A name that a collection had before: the trail has events of its images under it."""

    __tablename__ = "former_names"

    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(100), primary_key=True)


class BackupRow(Table):
    """A backup that was written: where, when, and up to which key it holds images."""

    __tablename__ = "backups"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    path: Mapped[str] = mapped_column(Text)
    created: Mapped[str] = mapped_column(Text)
    last_image: Mapped[int] = mapped_column(BigInteger)
