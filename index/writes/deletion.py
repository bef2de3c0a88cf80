"""Removal of images and of whole collections from the catalogue."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Final, TypeVar

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from index.catalogue import PAUSE_SECONDS, Catalogue
from index.catalogue.audit_tables import FormerNameRow
from index.catalogue.collections import NOT_DELETED, lock_collection, next_sequence, require_collection
from index.catalogue.full_text import remove_words
from index.catalogue.storable import storable_text
from index.catalogue.tables import (
    CollectionRow,
    FieldRow,
    GenerationRow,
    ImageRow,
    RemovalRow,
    TextRow,
)
from index.errors import UnexpectedCountError
from index.files.orphans import mark_orphans
from index.filters.grammar import Filter
from index.filters.sql import passing_keys
from index.reports.received import remove_reports, studies_of
from index.vectors.protocol import Keys
from index.writes.texts import remove_texts

_Item = TypeVar("_Item")

# Images in a transaction, and ids in a statement.
AT_ONCE: Final = 500


def delete_images(session: Session, collection: str, ids: Sequence[str]) -> dict[str, str]:
    """Remove images with all that belongs to them, in every generation; their files are noted as orphans.

    It is done in the caller's transaction.

    Returns:
        Those that were there by id, with the digest of their file.

    Raises:
        UnknownCollectionError: No collection has this name.
    """
    collection_id = require_collection(session, collection).id
    sequence = next_sequence(session, collection_id)
    removed: dict[str, str] = {}
    # Ids that no database can hold are not looked up: PostgreSQL would refuse the whole statement.
    for part in _parts([image_id for image_id in ids if storable_text(image_id)]):
        query = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256).where(
            ImageRow.collection_id == collection_id, ImageRow.external_id.in_(part)
        )
        rows = session.execute(query).all()
        if rows:
            _delete(session, collection_id, sequence, [row.id for row in rows])
            mark_orphans(session, {row.sha256 for row in rows})
            removed |= {row.external_id: row.sha256 for row in rows}
    return removed


@dataclass(frozen=True, slots=True)
class Matching:
    """Images of a collection that passed a filter at one moment.

    Attributes:
        collection_id: Key of the collection.
        sequence: Sequence number of the collection at that moment.
        keys: Keys of the images, rising.
    """

    collection_id: int
    sequence: int
    keys: Keys

    def parts(self) -> Iterator[list[int]]:
        """Split the keys into batches, each for a transaction of its own."""
        for start in range(0, len(self.keys), AT_ONCE):
            yield self.keys[start : start + AT_ONCE].tolist()

    def require(self, expected: int | None) -> None:
        """Make sure of the number of images.

        Raises:
            UnexpectedCountError: There are more or fewer than expected.
        """
        if expected is not None and expected != len(self.keys):
            raise UnexpectedCountError(len(self.keys), expected)


def find_matching(session: Session, collection: str, filter: Filter) -> Matching:
    """Find the images that pass a filter.

    Args:
        session: A read of the catalogue, whose queries see one state of it.
        collection: Name of the collection.
        filter: The filter.

    Raises:
        UnknownCollectionError: No collection has this name.
        FilterError: The filter does not fit the collection.
    """
    row = require_collection(session, collection)
    return Matching(row.id, row.sequence, passing_keys(session, row.id, filter))


def ids_of(session: Session, keys: Sequence[int]) -> list[str]:
    """Return the ids of images that are there, in the order of their keys."""
    query = select(ImageRow.external_id).where(ImageRow.id.in_(keys)).order_by(ImageRow.id)
    return list(session.execute(query).scalars())


def delete_unchanged(session: Session, matching: Matching, keys: Sequence[int]) -> dict[str, str]:
    """Remove those of the matching images that nobody has changed since they were found.

    All is done in the caller's transaction, as by `delete_images`.

    Returns:
        The removed ones by id, with the digest of their file.

    Raises:
        StaleWriteError: The collection is gone.
    """
    sequence = next_sequence(session, matching.collection_id)
    query = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256).where(
        ImageRow.collection_id == matching.collection_id,
        ImageRow.id.in_(keys),
        ImageRow.sequence <= matching.sequence,
    )
    rows = session.execute(query).all()
    if rows:
        _delete(session, matching.collection_id, sequence, [row.id for row in rows])
        mark_orphans(session, {row.sha256 for row in rows})
    return {row.external_id: row.sha256 for row in rows}


def remove_hidden(catalogue: Catalogue) -> None:
    """Remove all deleted collections, batch by batch; their files are noted as orphans.

    Raises:
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left for the catalogue.
    """
    with catalogue.read() as session:
        hidden = session.execute(select(CollectionRow.id).where(~NOT_DELETED)).scalars().all()
    for collection_id in hidden:
        while _remove_batch(catalogue, collection_id):
            sleep(PAUSE_SECONDS)


def _remove_batch(catalogue: Catalogue, collection_id: int) -> bool:
    """Remove some images of a collection, or itself if it has none; return whether there is more of it."""
    ours = ImageRow.collection_id == collection_id
    with catalogue.write() as session:
        # Another process may be removing the same.
        lock_collection(session, collection_id)
        rows = session.execute(select(ImageRow.id, ImageRow.sha256).where(ours).limit(AT_ONCE)).all()
        if rows:
            keys = [row.id for row in rows]
            mark_orphans(session, {row.sha256 for row in rows})
            remove_words(session, keys)
            # Texts, attributes and embeddings go with their images.
            session.execute(delete(ImageRow).where(ImageRow.id.in_(keys)))
            return True
        for table in (RemovalRow, FieldRow, GenerationRow, FormerNameRow):
            session.execute(delete(table).where(table.collection_id == collection_id))
        session.execute(delete(CollectionRow).where(CollectionRow.id == collection_id))
    return False


def _delete(session: Session, collection_id: int, sequence: int, keys: Sequence[int]) -> None:
    texts = session.execute(select(TextRow.id).where(TextRow.image_id.in_(keys))).scalars().all()
    remove_texts(session, collection_id, sequence, texts)
    remove_words(session, keys)
    studies = studies_of(session, collection_id, keys)
    session.execute(delete(ImageRow).where(ImageRow.id.in_(keys)))
    remove_reports(session, collection_id, studies)
    rows = [
        {"collection_id": collection_id, "target": "images", "key": key, "sequence": sequence} for key in keys
    ]
    session.execute(insert(RemovalRow), rows)


def _parts(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Split into what one statement can name."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]
