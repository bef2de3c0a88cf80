"""The search engine on collections of made-up vectors."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine, event

from index.engine import SearchEngine
from index.errors import (
    CursorError,
    FilterError,
    GenerationError,
    NoActiveGenerationError,
    QueryError,
    UnknownCollectionError,
    UnknownImageError,
)
from index.filters.grammar import parse_filter
from index.search.request import SearchRequest
from index.search.results import SearchPage
from index.vectors.protocol import Vectors
from tests.index.homes import open_home
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors

DIM = 16
COUNT = 300
PA = {"field": "view", "eq": "PA"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> SearchEngine:
    engine = open_home(tmp_path_factory.mktemp("engine"))
    generation = begin_generation(engine, "c", DIM)
    put_vectors(engine, generation, make_records(COUNT), unit_vectors(COUNT, DIM))
    return engine


def _query(seed: int = 1) -> Vectors:
    query: Vectors = unit_vectors(1, DIM, seed)[0]
    return query


def _hits(page: SearchPage) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in page.hits]


def test_a_cursor_outlives_the_last_bits_of_its_query(filled: SearchEngine) -> None:
    active = filled.active("c")
    first = filled.search(active, _query(), SearchRequest(k=20))
    again = filled.search(active, _query() + np.float32(1e-6), SearchRequest(k=20, cursor=first.next_cursor))
    assert _hits(again) == _hits(
        filled.search(active, _query(), SearchRequest(k=20, cursor=first.next_cursor))
    )


def test_a_cursor_outlives_a_restart(filled: SearchEngine) -> None:
    first = filled.search(filled.active("c"), _query(), SearchRequest(k=20))
    again = open_home(filled.home.bundles_folder.parent)
    page = again.search(again.active("c"), _query(), SearchRequest(k=20, cursor=first.next_cursor))
    assert page.hits[0].rank == 21
    again.close()


def test_a_cursor_of_another_search_is_refused(filled: SearchEngine) -> None:
    active = filled.active("c")
    cursor = filled.search(active, _query(), SearchRequest(k=5)).next_cursor
    assert cursor is not None
    with pytest.raises(CursorError, match="another query"):
        filled.search(active, _query(2), SearchRequest(k=5, cursor=cursor))
    with pytest.raises(CursorError, match="another request"):
        filled.search(active, _query(), SearchRequest(k=5, cursor=cursor, filter=parse_filter(PA)))
    with pytest.raises(CursorError, match="another request"):
        filled.search(active, _query(), SearchRequest(k=5, cursor=cursor, exclude=("image-001",)))
    for damaged in ("", "x", "ä", cursor[:-1], cursor[:50], cursor[::-1], "B" + cursor[1:]):
        with pytest.raises(CursorError, match="damaged"):
            filled.search(active, _query(), SearchRequest(k=5, cursor=damaged))


def test_a_cursor_of_a_replaced_generation_is_refused(engine: SearchEngine) -> None:
    for digest in ("a", "b"):
        generation = begin_generation(engine, "c", DIM, digest=digest * 64)
        put_vectors(engine, generation, make_records(30), unit_vectors(30, DIM))
        if digest == "a":
            cursor = engine.search(engine.active("c"), _query(), SearchRequest(k=5)).next_cursor
    with pytest.raises(CursorError, match="replaced"):
        engine.search(engine.active("c"), _query(), SearchRequest(k=5, cursor=cursor))


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
def test_a_vector_that_is_no_query_is_refused(filled: SearchEngine, vector: Vectors) -> None:
    with pytest.raises(QueryError):
        filled.search(filled.active("c"), vector, SearchRequest(k=5))


def test_what_is_unknown_is_named(filled: SearchEngine) -> None:
    active = filled.active("c")
    with pytest.raises(UnknownCollectionError, match="There are: c"):
        filled.active("d")
    for call in (filled.image, filled.image_path):
        with pytest.raises(UnknownCollectionError):
            call("d", "image-001")
        with pytest.raises(UnknownImageError, match="no image 'nobody'"):
            call("c", "nobody")
    with pytest.raises(UnknownImageError):
        filled.vector_of(active, "nobody")
    with pytest.raises(FilterError, match="Did you mean 'view'"):
        filled.search(
            active, _query(), SearchRequest(k=5, filter=parse_filter({"field": "veiw", "eq": "PA"}))
        )
    with pytest.raises(QueryError):
        filled.search(active, _query(), SearchRequest(k=0))
    with pytest.raises(GenerationError):
        filled.search(replace(active, generation=99), _query(), SearchRequest(k=5))
    with pytest.raises(GenerationError):
        filled.search(replace(active, digest="b" * 64), _query(), SearchRequest(k=5))


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
    problems: list[object] = []
    done = threading.Event()

    def search() -> None:
        seen = 0
        while not done.is_set():
            try:
                ids = [hit.id for hit in engine.search(active, vectors[0], SearchRequest(k=COUNT)).hits]
            except Exception as error:  # noqa: BLE001 - what ends a thread is asserted by the test
                problems.append(error)
                return
            if len(set(ids)) != len(ids) or len(ids) < seen or ids[0] != "image-000":
                problems.append(ids)
            seen = len(ids)

    readers = [threading.Thread(target=search) for _ in range(3)]
    for reader in readers:
        reader.start()
    for start in range(20, COUNT, 40):
        put_vectors(engine, generation, make_records(COUNT)[start : start + 40], vectors[start : start + 40])
    done.set()
    for reader in readers:
        reader.join()
    assert not problems
    assert len(engine.search(active, vectors[0], SearchRequest(k=COUNT)).hits) == COUNT


def test_names_that_no_database_can_hold_are_unknown_without_asking_it(engine: SearchEngine) -> None:
    put_vectors(engine, begin_generation(engine, "c", DIM), make_records(1), unit_vectors(1, DIM))
    asked: list[str] = []

    def note(_connection: object, _cursor: object, _statement: str, parameters: object, *_: object) -> None:
        asked.append(repr(parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        for name in ("c\0", "\ud800"):
            for call in (engine.active, engine.collection, engine.overview):
                with pytest.raises(UnknownCollectionError):
                    call(name)
            with pytest.raises(UnknownCollectionError):
                engine.image(name, "a")
            with pytest.raises(UnknownImageError):
                engine.image("c", name)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert not any("\\x00" in parameters or "\\ud800" in parameters for parameters in asked)
