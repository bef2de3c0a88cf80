"""Collections of texts, and what is found in them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sqlalchemy import select

from index.catalogue.collections import Generation
from index.catalogue.full_text import matching, texts_with
from index.catalogue.tables import ImageRow, TextRow
from index.engine import SearchEngine
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors

DIM = 4


class Written(NamedTuple):
    """A collection of texts, and the keys of their images in order."""

    engine: SearchEngine
    generation: Generation
    keys: list[int]

    def found(self, words: str, limit: int = 1000, allowed: list[int] | None = None) -> list[int]:
        """Places of the texts that are found, best first."""
        among = None if allowed is None else np.array([self.keys[place] for place in allowed], np.int64)
        with self.engine.home.catalogue.read() as session:
            keys = matching(session, self.generation.collection_id, words, limit, among).tolist()
        return [self.keys.index(key) for key in keys]

    def texts(self, words: str) -> list[int]:
        """Places of the texts that have any of the words themselves."""
        with self.engine.home.catalogue.read() as session:
            keys = texts_with(session, np.array(self.keys), words).tolist()
            rows = [session.get_one(TextRow, key).image_id for key in keys]
        return [self.keys.index(key) for key in rows]


def put_texts(
    engine: SearchEngine, generation: Generation, texts: Sequence[str], report: str | None = None
) -> None:
    """Write an image for each text, with nothing else that is said of it but a report of all."""
    records = [
        replace(record, texts=(words,), report=report)
        for record, words in zip(make_records(len(texts)), texts, strict=True)
    ]
    put_vectors(engine, generation, records, unit_vectors(len(texts), DIM))


def write(
    engine: SearchEngine, texts: Sequence[str], report: str | None = None, *, collection: str = "c"
) -> Written:
    generation = begin_generation(engine, collection, DIM)
    put_texts(engine, generation, texts, report)
    query = select(ImageRow.id).where(ImageRow.collection_id == generation.collection_id)
    with engine.home.catalogue.read() as session:
        keys = list(session.execute(query.order_by(ImageRow.external_id)).scalars())
    return Written(engine, generation, keys)
