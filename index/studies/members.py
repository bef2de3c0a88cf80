"""Images of a study, by the UIDs in their metadata."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import Session

from index.catalogue.collections import NOT_DELETED, require_collection
from index.catalogue.lookup import storable_text
from index.catalogue.tables import AttributeRow, CollectionRow, ImageRow
from index.search.grouping import STUDY
from training.common.manifest import MetadataValue

SOP: Final = "sop"
FRAME: Final = "frame"
# Slices of the largest studies that are looked at.
_MOST_IMAGES: Final = 10_000


class StudyImage(NamedTuple):
    """An image of a study.

    Attributes:
        key: Key of the image.
        id: The image's id.
        metadata: Metadata of the image.
    """

    key: int
    id: str
    metadata: Mapping[str, MetadataValue]


class Wanted(NamedTuple):
    """A study, an instance of it, or a frame of an instance.

    Attributes:
        study: Study Instance UID.
        sop: SOP Instance UID; None: the whole study.
        frame: Number of a frame, from 1; None: all.
    """

    study: str
    sop: str | None = None
    frame: int | None = None


def images_of(session: Session, collection: str, wanted: Wanted) -> list[StudyImage]:
    """Return the images of a study, in the order in which they were added; none where it is unknown.

    Raises:
        UnknownCollectionError: No collection has this name.
    """
    row = require_collection(session, collection)
    if not _storable(wanted):
        return []
    query = select(ImageRow.id, ImageRow.external_id, ImageRow.details).where(
        ImageRow.collection_id == row.id, *_conditions([row.id], wanted)
    )
    rows = session.execute(query.order_by(ImageRow.id).limit(_MOST_IMAGES)).all()
    images = [StudyImage(key, name, details) for key, name, details in rows]
    if wanted.frame is None:
        return images
    return [image for image in images if image.metadata.get(FRAME, 1) == wanted.frame]


def collections_with(session: Session, names: Collection[str], wanted: Wanted) -> list[str]:
    """Return the collections, among some, that hold a study or an instance of it, by name."""
    if not _storable(wanted) or not names:
        return []
    query = select(CollectionRow.id, CollectionRow.name).where(NOT_DELETED, CollectionRow.name.in_(names))
    named = dict(session.execute(query).all())
    held = select(ImageRow.collection_id).where(*_conditions(list(named), wanted)).distinct()
    return sorted(named[key] for key in session.execute(held).scalars())


def spread(images: Sequence[StudyImage], most: int) -> list[StudyImage]:
    """Return up to `most` of some images, evenly spread over them."""
    if len(images) <= most:
        return list(images)
    return [images[place * len(images) // most] for place in range(most)]


def _storable(wanted: Wanted) -> bool:
    return storable_text(wanted.study) and (wanted.sop is None or storable_text(wanted.sop))


def _conditions(collections: Sequence[int], wanted: Wanted) -> list[ColumnElement[bool]]:
    named = {STUDY: wanted.study} if wanted.sop is None else {STUDY: wanted.study, SOP: wanted.sop}
    return [ImageRow.id.in_(_having(collections, name, value)) for name, value in named.items()]


def _having(collections: Sequence[int], name: str, value: str) -> Select[int]:
    return select(AttributeRow.image_id).where(
        AttributeRow.collection_id.in_(collections),
        AttributeRow.name == name,
        AttributeRow.text_value == value,
    )
