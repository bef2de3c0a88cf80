"""Images and texts of a collection without vectors in a generation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, func, insert, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation
from index.catalogue.lookup import rows_among
from index.catalogue.tables import EmbeddingRow, ImageRow


@dataclass(frozen=True, slots=True)
class MissingImage:
    """An image without a vector in a generation; its file lies in the store under `sha256`."""

    key: int
    id: str
    sha256: str


def images_without_vectors(
    session: Session, generation: Generation, *, after: int = 0, limit: int
) -> list[MissingImage]:
    """Return images of a collection that lack a vector in a generation, in order of key, behind a key."""
    query = (
        select(ImageRow.id, ImageRow.external_id, ImageRow.sha256)
        .where(*_image_lacks(generation), ImageRow.id > after)
        .order_by(ImageRow.id)
        .limit(limit)
    )
    return [MissingImage(*row) for row in session.execute(query)]


def count_missing_images(session: Session, generation: Generation) -> int:
    """Return how many images of the collection have no vector in a generation."""
    return session.execute(select(func.count()).where(*_image_lacks(generation))).scalar_one()


def still_missing(
    session: Session, generation: Generation, images: Sequence[MissingImage]
) -> set[MissingImage]:
    """Return those of some images that are there with the same file, and lack a vector in a generation."""
    query = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256).where(*_image_lacks(generation))
    rows = rows_among(session, query, ImageRow.id, [image.key for image in images])
    return {MissingImage(*row) for row in rows}.intersection(images)


def add_missing_images(
    session: Session,
    generation: Generation,
    sequence: int,
    images: Sequence[MissingImage],
    vectors: Sequence[bytes],
) -> int:
    """Give images their vectors in a generation, and return how many took theirs.

    Those that are gone, have another file by now or have a vector already are passed over.

    Args:
        session: Session of a transaction that holds the collection's lock.
        generation: Generation that gets the vectors.
        sequence: Sequence number of the transaction.
        images: Images, in the state in which their files were read.
        vectors: One for each.
    """
    missing = still_missing(session, generation, images)
    rows: list[dict[str, Any]] = [
        {"generation_id": generation.id, "image_id": image.key, "sequence": sequence, "vector": vector}
        for image, vector in zip(images, vectors, strict=True)
        if image in missing
    ]
    if rows:
        session.execute(insert(EmbeddingRow), rows)
    return len(rows)


def _image_lacks(generation: Generation) -> tuple[Any, ...]:
    has = exists().where(EmbeddingRow.generation_id == generation.id, EmbeddingRow.image_id == ImageRow.id)
    return ImageRow.collection_id == generation.collection_id, ~has
