"""Queries that a collection itself holds: its images, and the texts of these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation, Target
from index.catalogue.tables import EmbeddingRow, TextEmbeddingRow, TextRow
from index.vectors.codec import decode_vectors
from index.vectors.protocol import Keys, Vectors

# Kind of a query: scores of texts and of images lie in different ranges.
QueryKind = Literal["text", "image"]

_REFERENCE_QUERIES: Final = 1000


@dataclass(frozen=True, slots=True)
class ReferenceQueries:
    """Queries of one kind that the collection itself holds.

    Attributes:
        vectors: (Q, D).
        owners: The images that they belong to, by key, (Q,).
        left_out: For each the keys of its own vectors in the view.
    """

    vectors: Vectors
    owners: Keys
    left_out: Sequence[Keys]


def draw(keys: Keys, count: int, seed: int) -> Keys:
    """Return at most `count` of these keys, rising; the same ones for the same seed."""
    if len(keys) <= count:
        return keys
    drawn: Keys = np.sort(np.random.default_rng(seed).choice(keys, count, replace=False))
    return drawn


def reference_images(session: Session, keys: Keys, target: Target, seed: int = 1) -> list[int]:
    """Draw the images, by key, that a collection's own queries are of.

    Args:
        session: A read of the catalogue.
        keys: Keys of all images, or of all texts.
        target: Whether these are keys of images or of texts.
        seed: Seed of the draw.
    """
    drawn = draw(keys, _REFERENCE_QUERIES, seed).tolist()
    return drawn if target == "images" else _owners(session, drawn)


def reference_queries(
    session: Session, generation: Generation, images: list[int], target: Target
) -> dict[QueryKind, ReferenceQueries]:
    """Read stored images, and one text of each, as queries.

    Args:
        session: A read of the catalogue.
        generation: Generation of the vectors.
        images: Keys of the images.
        target: Whether the searched view has images or texts.
    """
    texts = _texts_of(session, images)
    by_image = {image: image for image in images}
    # The first texts may all be of one kind, such as the findings before the impression.
    by_text = {
        of_image[place % len(of_image)]: image
        for place, (image, of_image) in enumerate(texts.items())
        if of_image
    }
    own = texts if target == "texts" else {image: [image] for image in images}
    image_query = select(EmbeddingRow.image_id, EmbeddingRow.vector).where(
        EmbeddingRow.generation_id == generation.id, EmbeddingRow.image_id.in_(images)
    )
    text_query = select(TextEmbeddingRow.text_id, TextEmbeddingRow.vector).where(
        TextEmbeddingRow.generation_id == generation.id, TextEmbeddingRow.text_id.in_(list(by_text))
    )

    def read(query: Select[int, bytes], owner_of: Mapping[int, int]) -> ReferenceQueries:
        rows = sorted((key, vector) for key, vector in session.execute(query))
        owners = [owner_of[key] for key, _ in rows]
        return ReferenceQueries(
            decode_vectors([vector for _, vector in rows], generation.dim),
            np.array(owners, dtype=np.int64),
            [np.array(own[owner], dtype=np.int64) for owner in owners],
        )

    return {"image": read(image_query, by_image), "text": read(text_query, by_text)}


def _owners(session: Session, texts: list[int]) -> list[int]:
    query = select(TextRow.image_id).where(TextRow.id.in_(texts)).distinct()
    return sorted(session.execute(query).scalars())


def _texts_of(session: Session, images: list[int]) -> dict[int, list[int]]:
    """Return the keys of the texts of each image, rising."""
    query = select(TextRow.image_id, TextRow.id).where(TextRow.image_id.in_(images)).order_by(TextRow.id)
    texts: dict[int, list[int]] = {image: [] for image in images}
    for image, text in session.execute(query):
        texts[image].append(text)
    return texts
