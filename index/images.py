"""Images as the catalogue holds them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from index.catalogue.tables import CollectionRow, ImageRow, TextRow
from index.errors import UnknownImageError
from index.filters import storable_text
from index.generations import Target, require_collection
from index.results import FoundText, StoredImage
from training.data.manifest import MetadataValue


@dataclass(frozen=True, slots=True)
class FoundImage:
    """What a hit shows of an image; `text` is the one that was found, if texts are searched."""

    key: int
    id: str
    group: str | None
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    metadata: dict[str, MetadataValue]
    text: FoundText | None = None


def require_image(session: Session, collection: str, image_id: str) -> ImageRow:
    """Return the row of an image.

    Raises:
        UnknownCollectionError: There is no such collection.
        UnknownImageError: The collection has no such image.
    """
    query = (
        select(ImageRow)
        .join(CollectionRow, CollectionRow.id == ImageRow.collection_id)
        .where(CollectionRow.name == collection, ImageRow.external_id == image_id)
    )
    # What no database can hold is not even asked for: PostgreSQL would refuse the whole statement.
    askable = storable_text(collection) and storable_text(image_id)
    row = session.execute(query).scalar_one_or_none() if askable else None
    if row is None:
        require_collection(session, collection)
        raise UnknownImageError(collection, image_id)
    return row


def read_image(session: Session, collection: str, image_id: str) -> StoredImage:
    """Return everything that is known of an image.

    Raises:
        UnknownCollectionError: There is no such collection.
        UnknownImageError: The collection has no such image.
    """
    row = require_image(session, collection, image_id)
    return StoredImage(
        id=row.external_id,
        texts=_texts(session, [row.id]).get(row.id, ()),
        report=row.report,
        labels=tuple(row.labels),
        metadata=_metadata(row.details),
        split=row.split,
        group=row.group_name,
        width=row.width,
        height=row.height,
        media_type=row.media_type,
        sha256=row.sha256,
    )


def read_found(session: Session, keys: Sequence[int], target: Target = "images") -> dict[int, FoundImage]:
    """Return what hits show, by the keys of images or of texts; what is gone is left out."""
    if target == "images":
        return _read_images(session, keys)
    texts = session.execute(_FOUND_TEXTS, {"keys": keys}).all()
    images = _read_images(session, sorted({image for _, image, _, _ in texts}))
    return {
        key: replace(images[image], text=FoundText(position, text)) for key, image, position, text in texts
    }


def _read_images(session: Session, keys: Sequence[int]) -> dict[int, FoundImage]:
    texts = _texts(session, keys)
    return {
        key: FoundImage(key, external_id, group, texts.get(key, ()), tuple(labels), _metadata(details))
        for key, external_id, group, labels, details in session.execute(_FOUND, {"keys": keys})
    }


def _texts(session: Session, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
    found: dict[int, list[str]] = {}
    for key, text in session.execute(_TEXTS, {"keys": keys}):
        found.setdefault(key, []).append(text)
    return {key: tuple(texts) for key, texts in found.items()}


def _metadata(details: dict[str, Any]) -> dict[str, MetadataValue]:
    """Turn JSON lists back into tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in details.items()}


# Built once, on tables and not on mapped classes, which cost more: every search runs some of these.
_IMAGE_COLUMNS: Final = ImageRow.__table__.c
_TEXT_COLUMNS: Final = TextRow.__table__.c
_FOUND: Final = select(
    _IMAGE_COLUMNS.id,
    _IMAGE_COLUMNS.external_id,
    _IMAGE_COLUMNS.group_name,
    _IMAGE_COLUMNS.labels,
    _IMAGE_COLUMNS.details,
).where(_IMAGE_COLUMNS.id.in_(bindparam("keys", expanding=True)))
_FOUND_TEXTS: Final = select(
    _TEXT_COLUMNS.id, _TEXT_COLUMNS.image_id, _TEXT_COLUMNS.position, _TEXT_COLUMNS.text
).where(_TEXT_COLUMNS.id.in_(bindparam("keys", expanding=True)))
_TEXTS: Final = (
    select(_TEXT_COLUMNS.image_id, _TEXT_COLUMNS.text)
    .where(_TEXT_COLUMNS.image_id.in_(bindparam("keys", expanding=True)))
    .order_by(_TEXT_COLUMNS.image_id, _TEXT_COLUMNS.position)
)
