"""Rows of many keys, images by their ids, and texts that every database can hold."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar, TypeVarTuple

from sqlalchemy import Row, Select, func, select
from sqlalchemy.orm import Session

from index.catalogue.schema import RULES
from index.catalogue.tables import ImageRow

# Images in a transaction, and values in a statement.
AT_ONCE: Final = 500
_REVISION_DIGITS: Final = 32
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

    Texts that no database can store are skipped: PostgreSQL would refuse the whole statement.
    """
    usable = [value for value in values if not isinstance(value, str) or storable_text(value)]
    for part in parts(usable):
        yield from session.execute(query.where(column.in_(part)))


class NamedImage(NamedTuple):
    """Key and id of an image, and the digests of its file and its record."""

    id: int
    external_id: str
    sha256: str
    record_digest: str

    @property
    def revision(self) -> str:
        """Identifies this state of the image; see `revision_of`."""
        return revision_of(self.record_digest, self.sha256)


def images_named(session: Session, collection_id: int, ids: Collection[str]) -> dict[str, NamedImage]:
    """Return the images of a collection that have one of these ids, by id."""
    query = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256, ImageRow.record_digest).where(
        ImageRow.collection_id == collection_id
    )
    images: dict[str, NamedImage] = {}
    for row in rows_among(session, query, ImageRow.external_id, ids):
        images[row.external_id] = NamedImage(*row)
    return images


def revision_of(record_digest: str, sha256: str) -> str:
    """Return an identifier of an image's state by record and file; a restore doesn't change it."""
    # Other rules read other findings from the same record.
    return hashlib.sha256(f"{RULES} {record_digest} {sha256}".encode()).hexdigest()[:_REVISION_DIGITS]


def count_images(session: Session, collection_id: int) -> int:
    """Return the number of images of a collection."""
    return session.execute(select(func.count()).where(ImageRow.collection_id == collection_id)).scalar_one()


def storable_text(text: str) -> bool:
    """Return whether every database can hold the text: no null characters, no half surrogate pairs."""
    try:
        return b"\x00" not in text.encode()
    except UnicodeEncodeError:
        return False
