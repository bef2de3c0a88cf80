"""The search engine on collections of made-up vectors."""

import threading
from collections.abc import Callable
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
from index.filters.grammar import Filter, parse_filter
from index.search.request import SearchRequest
from index.search.results import SearchPage
from index.vectors.codec import decode_vectors, encode_vectors
from index.vectors.protocol import Vectors
from tests.index.homes import open_home
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors
from tests.index.vectors.reference import ReferenceView

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


def _expected(query: Vectors, ids: list[int], k: int) -> list[tuple[str, float]]:
    stored = decode_vectors(encode_vectors(unit_vectors(COUNT, DIM)), DIM)
    view = ReferenceView(DIM)
    view.add(np.arange(COUNT), stored)
    found = view.search(query, k, allowed=np.array(ids, dtype=np.int64))
    return [
        (f"image-{key:03d}", score)
        for key, score in zip(found.keys.tolist(), found.scores.tolist(), strict=True)
    ]


def _hits(page: SearchPage) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in page.hits]


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        (None, lambda number: number >= 0),
        (PA, lambda number: number % 2 == 1),
        ({"field": "age", "gte": 40, "lt": 70}, lambda number: 20 <= number < 50),
        ({"not": {"field": "labels", "eq": "Edema"}}, lambda number: number % 4 < 2),
        ({"and": [PA, {"field": "urgent", "eq": True}]}, lambda number: number % 14 == 7),
        ({"field": "id", "eq": "image-123"}, lambda number: number == 123),
        ({"field": "group", "eq": "nobody"}, lambda number: number < 0),
    ],
)
def test_search_equals_the_reference(
    filled: SearchEngine, condition: object, passes: Callable[[int], bool]
) -> None:
    filter = None if condition is None else parse_filter(condition)
    ids = [number for number in range(COUNT) if passes(number)]
    for seed in range(4):
        page = filled.search(filled.active("c"), _query(seed), SearchRequest(k=10, filter=filter))
        expected = _expected(_query(seed), ids, 10)
        assert [hit.id for hit in page.hits] == [name for name, _ in expected]
        np.testing.assert_allclose(
            [hit.score for hit in page.hits], [score for _, score in expected], atol=1e-6
        )
        assert len(page.hits) == min(10, len(ids))
        assert page.exact


def test_a_hit_shows_what_is_known(filled: SearchEngine) -> None:
    page = filled.search(filled.active("c"), _query(), SearchRequest(k=5))
    records = {record.id: record for record in make_records(COUNT)}
    for rank, hit in enumerate(page.hits, 1):
        assert hit.rank == rank
        assert (hit.image.texts, hit.image.metadata) == (records[hit.id].texts, records[hit.id].metadata)


def test_the_length_of_the_query_does_not_matter(filled: SearchEngine) -> None:
    active = filled.active("c")
    one, other = (
        _hits(filled.search(active, vector, SearchRequest(k=10)))
        for vector in (_query(), _query() * np.float32(42))
    )
    assert [name for name, _ in one] == [name for name, _ in other]
    assert all(-1.000001 <= score <= 1.000001 for _, score in one)


def _pages(engine: SearchEngine, query: Vectors, k: int, filter: Filter | None = None) -> list[SearchPage]:
    active, pages, cursor = engine.active("c"), [], None
    while True:
        pages.append(engine.search(active, query, SearchRequest(k=k, filter=filter, cursor=cursor)))
        cursor = pages[-1].next_cursor
        if cursor is None:
            return pages


@pytest.mark.parametrize(("k", "condition"), [(7, None), (100, None), (300, None), (11, PA), (150, PA)])
def test_pages_make_up_one_long_answer(filled: SearchEngine, k: int, condition: object) -> None:
    filter = None if condition is None else parse_filter(condition)
    total = COUNT if filter is None else COUNT // 2
    pages = _pages(filled, _query(), k, filter)
    assert len(pages) == -(-total // k)
    hits = [hit for page in pages for hit in page.hits]
    assert [hit.rank for hit in hits] == list(range(1, total + 1))
    whole = filled.search(filled.active("c"), _query(), SearchRequest(k=COUNT, filter=filter))
    assert [(hit.id, hit.score) for hit in hits] == _hits(whole)


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


def test_excluded_images_are_left_out_and_k_are_found_still(filled: SearchEngine) -> None:
    active = filled.active("c")
    best = [hit.id for hit in filled.search(active, _query(), SearchRequest(k=12)).hits]
    page = filled.search(
        active,
        _query(),
        SearchRequest(
            k=10,
            exclude=(best[0], best[3], "no such image"),
        ),
    )
    assert [hit.id for hit in page.hits] == [name for name in best if name not in (best[0], best[3])]
    following = filled.search(
        active,
        _query(),
        SearchRequest(
            k=10,
            exclude=(best[0], best[3], "no such image"),
            cursor=page.next_cursor,
        ),
    )
    assert not {hit.id for hit in following.hits} & set(best)


def test_every_hit_of_one_passing_image_is_found(filled: SearchEngine) -> None:
    active = filled.active("c")
    for number in range(0, COUNT, 37):
        name = f"image-{number:03d}"
        page = filled.search(
            active,
            -filled.vector_of(active, name),
            SearchRequest(k=10, filter=parse_filter({"field": "id", "eq": name})),
        )
        assert [hit.id for hit in page.hits] == [name]


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


def test_the_sign_of_vectors_without_one_changes_no_page(engine: SearchEngine) -> None:
    vectors = unit_vectors(COUNT, DIM)
    signs = np.random.default_rng(2).choice(np.array([-1, 1], dtype=np.float32), (COUNT, 1))
    for name, stored in (("straight", vectors), ("flipped", vectors * signs)):
        generation = begin_generation(engine, name, DIM, unsigned=True)
        put_vectors(engine, generation, make_records(COUNT), stored)
    straight, flipped = engine.active("straight"), engine.active("flipped")
    assert straight.unsigned
    chosen = parse_filter(PA)
    for filter in (None, chosen):
        first, other = (
            engine.search(active, query, SearchRequest(k=20, filter=filter))
            for active, query in ((straight, _query()), (flipped, -_query()))
        )
        assert _hits(first) == _hits(other)
        assert min(hit.score for hit in first.hits) >= 0
        later = [
            engine.search(active, query, SearchRequest(k=20, filter=filter, cursor=page.next_cursor))
            for active, query, page in ((straight, _query(), first), (flipped, -_query(), other))
        ]
        assert _hits(later[0]) == _hits(later[1])
