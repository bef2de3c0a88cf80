"""Queries like those that a view is asked for: what is embedded beside what it holds."""

from typing import Final

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation, Target
from index.catalogue.tables import EmbeddingRow, TextEmbeddingRow
from index.vectors.codec import decode_vectors
from index.vectors.protocol import Vectors

# Keys that are looked up; some are of other collections, or gone.
_LOOKED_UP: Final = 2000
_SEED: Final = 0


def stored_queries(session: Session, generation: Generation, target: Target) -> Vectors:
    """Sample queries (Q, D) from a generation: vectors of texts to search images, of images to search texts.

    An encoder's texts and images may lie apart, so that queries of one kind lie far from vectors of the
    other, and farther than any vector of these.
    """
    other = TextEmbeddingRow if target == "images" else EmbeddingRow
    key = TextEmbeddingRow.text_id if target == "images" else EmbeddingRow.image_id
    here = other.generation_id == generation.id
    first, last = session.execute(select(func.min(key), func.max(key)).where(here)).one()
    if first is None:
        return np.empty((0, generation.dim), dtype=np.float32)
    keys = np.unique(np.random.default_rng(_SEED).integers(first, last, _LOOKED_UP, endpoint=True))
    query = select(other.vector).where(here, key.in_(keys.tolist()))
    return decode_vectors(session.execute(query).scalars().all(), generation.dim)
