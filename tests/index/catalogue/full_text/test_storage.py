"""Rows of the full-text index: kept with their images, and removed with them."""

from dataclasses import replace

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.full_text import matching
from index.catalogue.tables import VocabularyRow
from index.engine import SearchEngine
from index.writes.deletion import delete_images
from tests.index.catalogue.full_text.test_ranking import keys_of, put_texts
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors

DIM = 4


def _vocabulary(session: Session) -> dict[str, int]:
    rows = session.execute(select(VocabularyRow.word, VocabularyRow.images)).all()
    return {row.word: row.images for row in rows}


def test_long_words_are_counted_by_images_and_go_with_the_last(engine: SearchEngine) -> None:
    catalogue = engine.home.catalogue
    generation = begin_generation(engine, "c", DIM)
    put_texts(engine, generation, ["Pleuraerguss, pleuraerguss", "Pleuraerguß im Liegen", "Lungenödem 2026"])
    with catalogue.read() as session:
        assert _vocabulary(session) == {"pleuraerguss": 2, "lungenodem": 1}
    changed = replace(make_records(1)[0], texts=("Rippenfraktur",), report=None)
    put_vectors(engine, generation, [changed], unit_vectors(1, DIM))
    with catalogue.read() as session:
        assert _vocabulary(session) == {"pleuraerguss": 1, "lungenodem": 1, "rippenfraktur": 1}
    with catalogue.write() as session:
        delete_images(session, "c", ["image-001", "image-002"])
    with catalogue.read() as session:
        assert _vocabulary(session) == {"rippenfraktur": 1}
        assert matching(session, generation.collection_id, "erguss", 9).tolist() == []
        found = matching(session, generation.collection_id, "fraktur", 9).tolist()
        assert found == keys_of(engine, generation)


def test_compounds_of_another_collection_are_not_looked_for(engine: SearchEngine) -> None:
    first, second = (begin_generation(engine, name, DIM) for name in ("c", "d"))
    put_texts(engine, first, ["Pleuraerguss"])
    put_texts(engine, second, ["Perikarderguss"])
    with engine.home.catalogue.read() as session:
        for generation in (first, second):
            found = matching(session, generation.collection_id, "Erguss", 9).tolist()
            assert found == keys_of(engine, generation)


@pytest.mark.parametrize("filler", ["胸部異常", "w "])
def test_a_phrase_is_found_anywhere_in_a_long_report(engine: SearchEngine, filler: str) -> None:
    """PostgreSQL itself keeps 256 places of a pair, and none beyond the 16,383rd."""
    generation = begin_generation(engine, "c", DIM)
    report = filler * 20_000 + "。右肺浸潤影"
    record = replace(make_records(1)[0], texts=(), report=report)
    put_vectors(engine, generation, [record], unit_vectors(1, DIM))
    with engine.home.catalogue.read() as session:
        for words, found in (
            ("肺浸潤影", 1),
            ("浸潤", 1),
            ("潤", 1),
            ("影浸潤", 0),
            ("浸潤影胸", 0),
            ("肺浸影", 0),
        ):
            assert len(matching(session, generation.collection_id, words, 9)) == found, words
