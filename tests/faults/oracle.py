"""What a collection must hold: plain dictionaries, and searches by brute force over them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sqlalchemy import select

from index.catalogue.collections import find_active
from index.catalogue.full_text import matching
from index.catalogue.images import read_image
from index.catalogue.tables import (
    AttributeRow,
    CollectionRow,
    EmbeddingRow,
    ImageRow,
    OrphanRow,
    TextEmbeddingRow,
    TextRow,
)
from index.engine import SearchEngine
from index.search.results import SearchPage
from index.vectors.protocol import Vectors
from tests.faults.made import WORDS, stored_vector, vector_of
from training.common.manifest import Record

Passes = Callable[[Record], bool]
# Both sides compute with float32, in different orders.
TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Held:
    """An image as it must be; `place` says when it came in."""

    record: Record
    picture: str
    place: int


class Oracle:
    """One collection."""

    def __init__(self) -> None:
        self.images: dict[str, Held] = {}
        self._places = 0

    def put(self, record: Record, picture: str) -> None:
        """Insert or replace an image."""
        held = self.images.get(record.id)
        self._places += held is None
        self.images[record.id] = Held(record, picture, held.place if held else self._places)

    def remove(self, image_id: str) -> bool:
        """Remove an image if it is there."""
        return self.images.pop(image_id, None) is not None

    def ranked(self, query: Vectors, passes: Passes | None = None) -> list[tuple[str, float]]:
        """Return all images that pass, best first, with their scores."""
        found = [held for held in self.images.values() if passes is None or passes(held.record)]
        if not found:
            return []
        scores = np.stack([vector_of(held.picture) for held in found]) @ query
        order = sorted(range(len(found)), key=lambda i: (-scores[i], found[i].place))
        return [(found[i].record.id, float(scores[i])) for i in order]


def check_page(page: SearchPage, wanted: list[tuple[str, float]], k: int) -> None:
    """Compare a page with the ranking that it must begin."""
    scores = dict(wanted)
    best = [score for _, score in wanted[:k]]
    assert [hit.rank for hit in page.hits] == list(range(1, len(best) + 1))
    assert len({hit.id for hit in page.hits}) == len(page.hits)
    np.testing.assert_allclose([hit.score for hit in page.hits], best, atol=TOLERANCE)
    np.testing.assert_allclose(
        [hit.score for hit in page.hits], [scores[hit.id] for hit in page.hits], atol=TOLERANCE
    )
    assert (page.next_cursor is not None) == (len(wanted) > k)


def check_image(engine: SearchEngine, collection: str, held: Held) -> None:
    """Compare what is known of an image, and its file, with what must be."""
    with engine.home.catalogue.read() as session:
        image = read_image(session, collection, held.record.id)
    record = held.record
    assert (image.texts, image.labels, image.report) == (record.texts, record.labels, record.report)
    assert (image.split, image.group, image.metadata) == (record.split, record.group, record.metadata)
    assert engine.home.store.path(image.sha256).read_bytes() == held.picture.encode()


def check_collection(engine: SearchEngine, collection: str, oracle: Oracle) -> None:
    """Compare everything that the catalogue has of a collection with what must be."""
    for held in oracle.images.values():
        check_image(engine, collection, held)
    wanted = {name: held.record for name, held in oracle.images.items()}
    with engine.home.catalogue.read() as session:
        found = find_active(session, collection)
        assert found is not None
        generation = found[0]
        ours = ImageRow.collection_id == generation.collection_id
        rows = session.execute(select(ImageRow.id, ImageRow.external_id).where(ours))
        images: dict[int, str] = {row.id: row.external_id for row in rows}
        assert sorted(images.values()) == sorted(wanted)
        vectors = session.execute(
            select(EmbeddingRow.image_id, EmbeddingRow.vector).where(
                EmbeddingRow.generation_id == generation.id
            )
        )
        assert {images[key]: vector for key, vector in vectors} == {
            name: stored_vector(held.picture) for name, held in oracle.images.items()
        }
        texts = session.execute(
            select(TextRow.image_id, TextRow.position, TextRow.text, TextEmbeddingRow.vector)
            .outerjoin(
                TextEmbeddingRow,
                (TextEmbeddingRow.text_id == TextRow.id) & (TextEmbeddingRow.generation_id == generation.id),
            )
            .join(ImageRow, ImageRow.id == TextRow.image_id)
            .where(ours)
        )
        assert {(images[key], place): (text, vector) for key, place, text, vector in texts} == {
            (name, place): (text, stored_vector(text))
            for name, record in wanted.items()
            for place, text in enumerate(record.texts)
        }
        names = session.execute(
            select(AttributeRow.image_id, AttributeRow.name, AttributeRow.position).where(
                AttributeRow.collection_id == generation.collection_id
            )
        )
        assert sorted((images[key], name, place) for key, name, place in names) == sorted(
            (name, field, place)
            for name, record in wanted.items()
            for field, count in [*dict.fromkeys(record.metadata, 1).items(), ("labels", len(record.labels))]
            for place in range(count)
        )
        for word in WORDS:
            keys = matching(session, generation.collection_id, word, 100_000).tolist()
            assert sorted(images[key] for key in keys) == sorted(
                name for name, record in wanted.items() if word in _words(record)
            )


def check_files(engine: SearchEngine, *oracles: Oracle, killed: bool = False) -> None:
    """Compare the store with the files that must be in it, and see that none is noted as loose.

    What writers that were `killed` were about to write may be noted.
    """
    folder = engine.home.bundles_folder.parent / "images" / "originals"
    found = sorted(path.read_bytes() for path in folder.glob("*/*") if path.suffix != ".part")
    assert found == sorted({held.picture.encode() for oracle in oracles for held in oracle.images.values()})
    with engine.home.catalogue.read() as session:
        notes = session.execute(select(OrphanRow.begun)).scalars()
        assert [begun for begun in notes if not (killed and begun)] == []


def check_nothing_else(engine: SearchEngine) -> None:
    """See that nothing is left of what was removed."""
    with engine.home.catalogue.read() as session:
        images = select(ImageRow.id)
        for table in (EmbeddingRow, TextRow, AttributeRow):
            assert session.execute(select(table.image_id).where(table.image_id.not_in(images))).all() == []
        texts = select(TextEmbeddingRow.text_id).where(TextEmbeddingRow.text_id.not_in(select(TextRow.id)))
        assert session.execute(texts).all() == []
        collections = select(CollectionRow.id)
        assert session.execute(images.where(ImageRow.collection_id.not_in(collections))).all() == []
        known = session.connection().exec_driver_sql("SELECT rowid FROM image_words").scalars().all()
        assert sorted(known) == sorted(session.execute(images).scalars())


def _words(record: Record) -> set[str]:
    return {word for text in (*record.texts, record.report or "") for word in text.split()}
