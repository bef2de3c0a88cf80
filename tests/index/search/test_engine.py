"""The search engine on collections of made-up vectors."""

from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from index.engine import SearchEngine
from index.errors import (
    FilterError,
    GenerationError,
    NoActiveGenerationError,
    QueryError,
    UnknownCollectionError,
    UnknownImageError,
)
from index.filters.grammar import parse_filter
from index.search.request import SearchRequest
from index.vectors.protocol import Vectors
from tests.index.homes import open_home
from tests.index.meanwhile import beside, statements
from tests.index.orders import DIM, Filled, query_of
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors

COUNT = 300


@pytest.mark.parametrize(
    "vector",
    [
        np.ones(DIM + 1, np.float32),
        np.ones((1, DIM), np.float32),
        np.zeros(DIM, np.float32),
        np.full(DIM, np.nan, np.float32),
        np.full(DIM, np.inf, np.float32),
    ],
)
def test_a_vector_that_is_no_query_is_refused(filled: Filled, vector: Vectors) -> None:
    with pytest.raises(QueryError):
        filled.engine.search(filled.engine.active("signed"), vector, SearchRequest(k=5))


def test_what_is_unknown_is_named(filled: Filled) -> None:
    engine, active = filled.engine, filled.engine.active("signed")
    with pytest.raises(UnknownCollectionError, match="There are: blades, signed, unsigned"):
        engine.active("d")
    for call in (engine.image, engine.image_path):
        with pytest.raises(UnknownCollectionError):
            call("d", "image-001")
        with pytest.raises(UnknownImageError, match="no image 'nobody'"):
            call("signed", "nobody")
    with pytest.raises(UnknownImageError):
        engine.vector_of(active, "nobody")
    with pytest.raises(FilterError, match="Did you mean 'view'"):
        filled.search("signed", SearchRequest(filter=parse_filter({"field": "veiw", "eq": "PA"})))
    for other in (replace(active, generation=99), replace(active, digest="b" * 64)):
        with pytest.raises(GenerationError):
            engine.search(other, query_of(), SearchRequest(k=5))


def test_lists_say_what_is_searched_with_what(engine: SearchEngine) -> None:
    assert engine.collections() == []
    assert engine.models() == []
    begin_generation(engine, "empty", DIM, digest="b" * 64, name="later")
    generation = begin_generation(engine, "c", DIM)
    put_vectors(engine, generation, make_records(3), unit_vectors(3, DIM))
    first, second = engine.collections()
    assert (first.name, first.count, first.generation, first.model) == ("c", 3, generation.id, "made-up")
    assert {field.name: field.kinds for field in first.fields} == {
        "id": ("text",),
        "split": ("text",),
        "group": ("text",),
        "labels": ("text",),
        "age": ("number",),
        "view": ("text",),
        "urgent": ("boolean",),
    }
    assert (second.name, second.count, second.generation, second.digest) == ("empty", 0, None, None)
    assert [(model.name, model.dim, model.collections) for model in engine.models()] == [
        ("made-up", DIM, ("c",)),
        ("later", DIM, ()),
    ]
    with pytest.raises(NoActiveGenerationError, match="empty"):
        engine.active("empty")


def test_what_another_process_wrote_is_found_by_the_next_search(engine: SearchEngine, tmp_path: Path) -> None:
    generation = begin_generation(engine, "c", DIM)
    vectors = unit_vectors(40, DIM)
    put_vectors(engine, generation, make_records(20), vectors[:20])
    active = engine.active("c")
    assert len(engine.search(active, vectors[30], SearchRequest(k=100)).hits) == 20
    condition = parse_filter({"field": "age", "gte": 35})
    assert len(engine.search(active, vectors[30], SearchRequest(k=100, filter=condition)).hits) == 5
    other = open_home(tmp_path / "home", engine.home.catalogue.url)
    put_vectors(other, generation, make_records(40)[20:], vectors[20:])
    other.close()
    assert engine.search(active, vectors[30], SearchRequest(k=1)).hits[0].id == "image-030"
    assert len(engine.search(active, vectors[30], SearchRequest(k=100, filter=condition)).hits) == 25


def test_searches_beside_writes_never_fail_or_repeat(engine: SearchEngine) -> None:
    generation = begin_generation(engine, "c", DIM)
    vectors = unit_vectors(COUNT, DIM)
    put_vectors(engine, generation, make_records(20), vectors[:20])
    active = engine.active("c")

    def search(over: Event) -> None:
        seen = 0
        while not over.is_set():
            ids = [hit.id for hit in engine.search(active, vectors[0], SearchRequest(k=COUNT)).hits]
            assert ids[0] == "image-000"
            assert seen <= len(ids) == len(set(ids))
            seen = len(ids)

    with beside(*[search] * 3):
        for first in range(20, COUNT, 40):
            records = make_records(COUNT)[first : first + 40]
            put_vectors(engine, generation, records, vectors[first : first + 40])
    assert len(engine.search(active, vectors[0], SearchRequest(k=COUNT)).hits) == COUNT


def test_names_that_no_database_can_hold_are_unknown_without_asking_it(engine: SearchEngine) -> None:
    put_vectors(engine, begin_generation(engine, "c", DIM), make_records(1), unit_vectors(1, DIM))
    with statements() as sent:
        for name in ("c\0", "\ud800"):
            for call in (engine.active, engine.collection, engine.overview):
                with pytest.raises(UnknownCollectionError):
                    call(name)
            with pytest.raises(UnknownCollectionError):
                engine.image(name, "a")
            with pytest.raises(UnknownImageError):
                engine.image("c", name)
    assert not any("\\x00" in repr(values) or "\\ud800" in repr(values) for _, values in sent)
