"""Rows of many keys, images by their ids, and texts that every database can hold."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple

from sqlalchemy import Row, Select, func, select
from sqlalchemy.orm import Session

from index.catalogue.tables import ImageRow

# Images in a transaction, and values in a statement.
AT_ONCE: Final = 500
_Item = TypeVar("_Item")
_Columns = TypeVarTuple("_Columns")


def parts(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Split into what one statement can name."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def rows_among(
    session: Session, query: Select[*_Columns], column: Any, values: Collection[int] | Collection[str]
) -> Iterator[Row[*_Columns]]:
    """Yield the rows of a query whose column has one of these values, however many there are.

    Texts that no database can hold are passed over: PostgreSQL would refuse the whole statement.
    """
    usable = [value for value in values if not isinstance(value, str) or storable_text(value)]
    for part in parts(usable):
        yield from session.execute(query.where(column.in_(part)))


def images_named(
    session: Session, collection_id: int, ids: Collection[str]
) -> dict[str, Row[int, str, str, str]]:
    """Return key, id, and digests of the file and the record of the images of a collection, by these ids."""
    query = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256, ImageRow.record_digest).where(
        ImageRow.collection_id == collection_id
    )
    return {row.external_id: row for row in rows_among(session, query, ImageRow.external_id, ids)}


def count_images(session: Session, collection_id: int) -> int:
    """Return the number of images of a collection."""
    return session.execute(select(func.count()).where(ImageRow.collection_id == collection_id)).scalar_one()


def storable_text(text: str) -> bool:
    """Tell whether every database can hold the text: no null characters, no half surrogate pairs."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
