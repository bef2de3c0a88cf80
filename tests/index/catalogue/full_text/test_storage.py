"""Rows of the full-text index: kept with their images, and removed with them."""

from dataclasses import replace

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.tables import VocabularyRow
from index.engine import SearchEngine
from index.writes.deletion import delete_images
from tests.index.catalogue.full_text.written import write
from tests.index.samples import make_records, put_vectors, unit_vectors


def _vocabulary(session: Session) -> dict[str, int]:
    rows = session.execute(select(VocabularyRow.word, VocabularyRow.images)).all()
    return {row.word: row.images for row in rows}


def test_long_words_are_counted_by_images_and_go_with_the_last(engine: SearchEngine) -> None:
    catalogue = engine.home.catalogue
    written = write(engine, ["Pleuraerguss, pleuraerguss", "Pleuraerguß im Liegen", "Lungenödem 2026"])
    with catalogue.read() as session:
        assert _vocabulary(session) == {"pleuraerguss": 2, "lungenodem": 1}
    changed = replace(make_records(1)[0], texts=("Rippenfraktur",), report=None)
    put_vectors(engine, written.generation, [changed], unit_vectors(1, 4))
    with catalogue.read() as session:
        assert _vocabulary(session) == {"pleuraerguss": 1, "lungenodem": 1, "rippenfraktur": 1}
    with catalogue.write() as session:
        delete_images(session, "c", ["image-001", "image-002"])
    with catalogue.read() as session:
        assert _vocabulary(session) == {"rippenfraktur": 1}
    assert written.found("erguss") == []
    assert written.found("fraktur") == [0]


def test_compounds_of_another_collection_are_not_looked_for(engine: SearchEngine) -> None:
    first, second = write(engine, ["Pleuraerguss"]), write(engine, ["Perikarderguss"], collection="d")
    assert first.found("Erguss") == second.found("Erguss") == [0]


@pytest.mark.parametrize("filler", ["胸部異常", "w "])
def test_a_phrase_is_found_anywhere_in_a_long_report(engine: SearchEngine, filler: str) -> None:
    """PostgreSQL itself keeps 256 places of a pair, and none beyond the 16,383rd."""
    written = write(engine, ["a text"], filler * 20_000 + "。右肺浸潤影")
    for words in ("肺浸潤影", "浸潤", "潤"):
        assert written.found(words) == [0], words
    for words in ("影浸潤", "浸潤影胸", "肺浸影"):
        assert written.found(words) == [], words
