"""Queries like those that a view is asked for, taken from the catalogue."""

import threading
from pathlib import Path

import pytest

from index.catalogue.collections import Generation, next_sequence
from index.engine import SearchEngine
from index.search.request import SearchRequest
from index.vectors.protocol import Vectors, encode_vectors
from index.vectors.view import CosineView
from index.views.manager import stored_queries
from index.writes.vectors import add_missing_vectors, texts_without_vectors
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors

COUNT, DIM = 200, 16
IMAGES, TEXTS = unit_vectors(COUNT, DIM), unit_vectors(4 * COUNT, DIM, seed=1)


def _filled(engine: SearchEngine) -> Generation:
    generation = begin_generation(engine, "c", DIM)
    put_vectors(engine, generation, make_records(COUNT), IMAGES)
    return generation


def _embed_texts(engine: SearchEngine, generation: Generation) -> Vectors:
    with engine.home.catalogue.write() as session:
        texts = texts_without_vectors(session, generation, after=0, limit=4 * COUNT)
        vectors = dict(zip([text.key for text in texts], encode_vectors(TEXTS), strict=False))
        add_missing_vectors(session, generation, next_sequence(session, generation.collection_id), vectors)
    return TEXTS[: len(texts)]


def _same_rows(found: Vectors, wanted: Vectors) -> bool:
    # They were rounded, and come in order of key.
    nearest = (found @ wanted.T).max(axis=1)
    return len(found) == len(wanted) and bool((nearest > 0.999).all())


def test_they_are_vectors_of_what_is_not_searched(engine: SearchEngine) -> None:
    generation = _filled(engine)
    with engine.home.catalogue.read() as session:
        assert stored_queries(session, generation, "images").shape == (0, DIM)
    texts = _embed_texts(engine, generation)
    assert len(texts) > 100
    with engine.home.catalogue.read() as session:
        assert _same_rows(stored_queries(session, generation, "images"), texts)
        assert _same_rows(stored_queries(session, generation, "texts"), IMAGES)


def test_a_view_that_is_built_is_measured_by_them(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = _embed_texts(engine, _filled(engine))
    built, asked = threading.Event(), list[Vectors]()

    def noted(_view: CosineView, _name: str, _spill: Path, queries: Vectors) -> bool:
        asked.append(queries)
        built.set()
        return False

    monkeypatch.setattr(CosineView, "build", noted)
    engine.set_view("c", "ivf")
    engine.search(engine.active("c"), IMAGES[0], SearchRequest())
    assert built.wait(60)
    engine.save_snapshot("c")
    assert len(asked) >= 2
    assert all(_same_rows(queries, texts) for queries in asked)
