"""Views follow the catalogue: embeddings written, and keys removed, after a sequence number."""

from typing import Final

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation, Target
from index.catalogue.tables import CollectionRow, EmbeddingRow, RemovalRow, TextEmbeddingRow
from index.errors import CatalogueError
from index.vectors.codec import decode_vectors, rounded_vectors
from index.vectors.factory import StoredView
from index.vectors.view import CosineView

_ROWS_AT_ONCE: Final = 4096


def sequence_of(session: Session, generation: Generation) -> int:
    """Return the sequence number of a generation's collection."""
    query = select(CollectionRow.sequence).where(CollectionRow.id == generation.collection_id)
    return session.execute(query).scalar_one_or_none() or 0


def latest_sequence(session: Session, generation: Generation) -> int:
    """Return the sequence number as of now, which a session that has begun does not see."""
    with Session(session.get_bind()) as later:
        return sequence_of(later, generation)


def follow(session: Session, generation: Generation, view: StoredView, sequence: int, target: Target) -> None:
    """Do to the view what was done to the catalogue after a sequence number."""
    add_since(session, generation, view, sequence, target)
    removed = select(RemovalRow.key).where(
        RemovalRow.collection_id == generation.collection_id,
        RemovalRow.target == target,
        RemovalRow.sequence > sequence,
    )
    keys = np.fromiter(session.execute(removed).scalars(), dtype=np.int64)
    if len(keys):
        view.remove(keys)


def add_since(
    session: Session, generation: Generation, view: StoredView, sequence: int, target: Target
) -> None:
    """Add all embeddings that were written after a sequence number."""
    table = EmbeddingRow if target == "images" else TextEmbeddingRow
    key = EmbeddingRow.image_id if target == "images" else TextEmbeddingRow.text_id
    query = (
        select(key.label("key"), table.vector)
        .where(table.generation_id == generation.id, table.sequence > sequence)
        .order_by(table.sequence, key)
        .execution_options(yield_per=_ROWS_AT_ONCE)
    )
    # Views of float16 take the very numbers: made of length one, they would be rounded once more.
    read = rounded_vectors if isinstance(view, CosineView) else decode_vectors
    for rows in session.execute(query).partitions():
        keys = np.array([row.key for row in rows], dtype=np.int64)
        try:
            vectors = read([row.vector for row in rows], generation.dim)
        except ValueError as error:
            raise CatalogueError(
                f"The catalogue is damaged: in generation {generation.id}, {error}."
            ) from error
        view.add(keys, vectors)
