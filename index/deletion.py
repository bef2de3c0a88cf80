"""Removal of images and of whole collections from the catalogue, all in the caller's transaction."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from sqlalchemy import delete, insert, select, text
from sqlalchemy.orm import Session

from index.catalogue.tables import (
    CollectionRow,
    FieldRow,
    GenerationRow,
    ImageRow,
    RemovalRow,
    TextRow,
)
from index.generations import next_sequence, require_collection
from index.loose_files import note_loose
from index.text_writes import remove_texts
from index.words import remove_words

_Item = TypeVar("_Item")

_AT_ONCE: Final = 500
_NOTE_ALL: Final = text(
    "INSERT INTO loose_files (sha256) SELECT DISTINCT sha256 FROM images "
    "WHERE collection_id = :collection_id ON CONFLICT DO NOTHING"
)


def delete_images(session: Session, collection: str, ids: Sequence[str]) -> dict[str, str]:
    """Remove images with all that belongs to them, in every generation; their files are noted as loose.

    Returns:
        Those that were there by id, with the digest of their file.

    Raises:
        UnknownCollectionError: There is no such collection.
    """
    collection_id = require_collection(session, collection).id
    sequence = next_sequence(session, collection_id)
    removed: dict[str, str] = {}
    for part in _parts(ids):
        query = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256).where(
            ImageRow.collection_id == collection_id, ImageRow.external_id.in_(part)
        )
        rows = session.execute(query).all()
        if rows:
            _delete(session, collection_id, sequence, [row.id for row in rows])
            note_loose(session, {row.sha256 for row in rows})
            removed |= {row.external_id: row.sha256 for row in rows}
    return removed


def delete_collection(session: Session, collection: str) -> None:
    """Remove a collection with its images and generations; the files are noted as loose.

    Raises:
        UnknownCollectionError: There is no such collection.
    """
    collection_id = require_collection(session, collection).id
    next_sequence(session, collection_id)
    session.execute(_NOTE_ALL, {"collection_id": collection_id})
    keys = session.execute(select(ImageRow.id).where(ImageRow.collection_id == collection_id)).scalars().all()
    for part in _parts(keys):
        remove_words(session, part)
    # Texts, attributes and embeddings go with their images.
    for table in (ImageRow, RemovalRow, FieldRow, GenerationRow):
        session.execute(delete(table).where(table.collection_id == collection_id))
    session.execute(delete(CollectionRow).where(CollectionRow.id == collection_id))


def _delete(session: Session, collection_id: int, sequence: int, keys: Sequence[int]) -> None:
    texts = session.execute(select(TextRow.id).where(TextRow.image_id.in_(keys))).scalars().all()
    remove_texts(session, collection_id, sequence, texts)
    remove_words(session, keys)
    session.execute(delete(ImageRow).where(ImageRow.id.in_(keys)))
    rows = [
        {"collection_id": collection_id, "target": "images", "key": key, "sequence": sequence} for key in keys
    ]
    session.execute(insert(RemovalRow), rows)


def _parts(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Split into what one statement can name."""
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
