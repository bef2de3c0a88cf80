"""The catalogue's tables of what was brought over from image archives."""

from sqlalchemy import JSON, BigInteger, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from index.catalogue.tables import Table


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

    `day` is that of the study's date and `instances` are the outcomes by the hash of the SOP Instance UID;
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
