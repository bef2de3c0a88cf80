"""Tables of studies and instances brought over from image archives, and of reports received."""

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from index.catalogue.tables import ComparedText, Key, Table


class ArchiveRow(Table):
    """Progress of a collection in the change feed of an archive.

    `archive` is a keyed hash of the archive's address. `position` is the number of the last change,
    `instances` the number of instances that the archive had then, and `selection` names the filters, dates
    included.
    """

    __tablename__ = "archives"

    collection_id: Mapped[int] = mapped_column(
        ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True
    )
    archive: Mapped[str] = mapped_column(String(16), primary_key=True)
    position: Mapped[int] = mapped_column(BigInteger)
    instances: Mapped[int] = mapped_column(BigInteger)
    selection: Mapped[str] = mapped_column(String(16))


class ArchiveStudyRow(Table):
    """Outcomes of the instances of a study of an archive: no image, UID or date, but keyed hashes of them.

    `day` is that of the study's date and `instances` are the outcomes by the hash of the SOP Instance UID,
    of a structured report with the digest of what was kept of it;
    `selection` names the filters that they went through, and `checked` is when all were last compared with
    the archive, in ISO 8601; None: that has not ended.
    """

    __tablename__ = "archive_studies"
    __table_args__ = ({"sqlite_with_rowid": False},)

    collection_id: Mapped[int] = mapped_column(
        ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True
    )
    archive: Mapped[str] = mapped_column(String(16), primary_key=True)
    study: Mapped[str] = mapped_column(String(16), primary_key=True)
    day: Mapped[str] = mapped_column(String(16))
    selection: Mapped[str] = mapped_column(String(16))
    checked: Mapped[str | None] = mapped_column(Text)
    instances: Mapped[dict[str, str]] = mapped_column(JSON)


class ReportRow(Table):
    """A report that was received for a study, without what identifies people; see `index.reports`.

    `study` is the key of the study whose images it was brought to, such as "study:1.2.3", and None while it
    waits for them; `keys` are those that it may belong to. `sections` are lists of kind, heading and text.
    Keys rise with the order in which reports came, and `received` is the day (UTC).
    """

    __tablename__ = "reports"
    __table_args__ = (
        UniqueConstraint("collection_id", "digest", name="uq_reports_digest"),
        Index("ix_reports_study", "collection_id", "study"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    collection_id: Mapped[int] = mapped_column(ForeignKey("collections.id", ondelete="CASCADE"))
    digest: Mapped[str] = mapped_column(String(64))
    study: Mapped[str | None] = mapped_column(ComparedText)
    keys: Mapped[list[str]] = mapped_column(JSON)
    patient: Mapped[str | None] = mapped_column(String(16))
    identity: Mapped[str | None] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(12))
    issued: Mapped[str | None] = mapped_column(Text)
    sections: Mapped[list[list[str]]] = mapped_column(JSON)
    received: Mapped[str | None] = mapped_column(String(10))
