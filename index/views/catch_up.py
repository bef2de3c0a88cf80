"""Views follow the catalogue: embeddings written, and keys removed, after a sequence number."""

from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation, Target
from index.catalogue.tables import CollectionRow, EmbeddingRow, RemovalRow, TextEmbeddingRow
from index.errors import CatalogueError
from index.vectors.codec import decode_vectors, rounded_vectors
from index.vectors.vector_view import VectorView
from index.vectors.view import CosineView

_ROWS_AT_ONCE: Final = 4096


class SequenceNumbers(NamedTuple):
    """The sequence number of a collection, and that up to which removals are forgotten."""

    latest: int
    trimmed: int


def sequence_of(session: Session, generation: Generation) -> SequenceNumbers:
    """Return the sequence numbers of a generation's collection."""
    columns = select(CollectionRow.sequence, CollectionRow.trimmed)
    row = session.execute(columns.where(CollectionRow.id == generation.collection_id)).one_or_none()
    return SequenceNumbers(0, 0) if row is None else SequenceNumbers(row.sequence, row.trimmed)


def latest_sequence(session: Session, generation: Generation) -> int:
    """Return the sequence number as of now, which a session that has begun does not see."""
    with Session(session.get_bind()) as later:
        return sequence_of(later, generation).latest


def count_since(session: Session, generation: Generation, sequence: int, target: Target) -> int:
    """Return how many embeddings were written, and keys removed, after a sequence number."""
    table = EmbeddingRow if target == "images" else TextEmbeddingRow
    written = select(func.count()).where(table.generation_id == generation.id, table.sequence > sequence)
    removed = select(func.count()).select_from(_removed_since(generation, sequence, target).subquery())
    return session.execute(written).scalar_one() + session.execute(removed).scalar_one()


def follow(session: Session, generation: Generation, view: VectorView, sequence: int, target: Target) -> None:
    """Apply to the view what was written and removed after a sequence number."""
    add_since(session, generation, view, sequence, target)
    removed = session.execute(_removed_since(generation, sequence, target)).scalars()
    keys = np.fromiter(removed, dtype=np.int64)
    if len(keys):
        view.remove(keys)


def add_since(
    session: Session, generation: Generation, view: VectorView, sequence: int, target: Target
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


def _removed_since(generation: Generation, sequence: int, target: Target) -> Select[int]:
    return select(RemovalRow.key).where(
        RemovalRow.collection_id == generation.collection_id,
        RemovalRow.target == target,
        RemovalRow.sequence > sequence,
    )
