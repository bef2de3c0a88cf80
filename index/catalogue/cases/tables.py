"""Tables of case lists: images of a collection that people keep under a name, with notes."""

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from index.catalogue.tables import ComparedText, Key, Table


class CaseListRow(Table):
    """A named list of images of a collection, by the id that its maker chose. The time is in ISO 8601."""

    __tablename__ = "case_lists"
    __table_args__ = (
        UniqueConstraint("collection_id", "name", name="uq_case_lists_name"),
        {"sqlite_with_rowid": False},
    )

    collection_id: Mapped[int] = mapped_column(
        ForeignKey("collections.id", ondelete="CASCADE"), primary_key=True
    )
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(ComparedText)
    created: Mapped[str] = mapped_column(Text)


class CaseEntryRow(Table):
    """An image in a case list, with a note and who wrote it last.

    The user is None where nobody is told apart. Positions rise in the order of saving.
    """

    __tablename__ = "case_entries"
    __table_args__ = (
        ForeignKeyConstraint(
            ["collection_id", "list_id"], ["case_lists.collection_id", "case_lists.id"], ondelete="CASCADE"
        ),
        UniqueConstraint("collection_id", "list_id", "position", name="uq_case_entries_position"),
        # Removing an image looks for its entries.
        Index("ix_case_entries_image", "image_id"),
        {"sqlite_with_rowid": False},
    )

    collection_id: Mapped[int] = mapped_column(Key, primary_key=True)
    list_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    image_id: Mapped[int] = mapped_column(ForeignKey("images.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int]
    note: Mapped[str] = mapped_column(Text)
    saved: Mapped[str] = mapped_column(Text)
    user_id: Mapped[str | None] = mapped_column(Text)
    user_name: Mapped[str | None] = mapped_column(Text)
