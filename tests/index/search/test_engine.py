"""The engine: searches see every write done before them, and one state of what is written beside them."""

import gc
import weakref
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
from index.search.orders import VectorRanking
from index.search.request import SearchRequest
from index.vectors.protocol import Vectors
from index.vectors.view import CosineView
from tests.index.homes import open_home, remove_collection
from tests.index.meanwhile import at_first, beside, statements
from tests.index.orders import DIM, Filled, query_of
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors
from training.common.manifest import Record

MANY = 300


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
    for other in (replace(active, id=99), replace(active, digest="b" * 64)):
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
    vectors = unit_vectors(MANY, DIM)
    put_vectors(engine, generation, make_records(20), vectors[:20])
    active = engine.active("c")

    def search(over: Event) -> None:
        seen = 0
        while not over.is_set():
            ids = [hit.id for hit in engine.search(active, vectors[0], SearchRequest(k=MANY)).hits]
            assert ids[0] == "image-000"
            assert seen <= len(ids) == len(set(ids))
            seen = len(ids)

    with beside(*[search] * 3):
        for first in range(20, MANY, 40):
            records = make_records(MANY)[first : first + 40]
            put_vectors(engine, generation, records, vectors[first : first + 40])
    assert len(engine.search(active, vectors[0], SearchRequest(k=MANY)).hits) == MANY


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


COUNT = 30


@pytest.fixture
def small(engine: SearchEngine) -> SearchEngine:
    generation = begin_generation(engine, "c", DIM)
    put_vectors(engine, generation, make_records(COUNT), unit_vectors(COUNT, DIM))
    return engine


def _ids(engine: SearchEngine, request: SearchRequest) -> list[str]:
    query = unit_vectors(1, DIM, seed=3)[0]
    return [hit.id for hit in engine.search(engine.active("c"), query, request).hits]


def _put(engine: SearchEngine, record: Record, vector: Vectors) -> None:
    put_vectors(engine, begin_generation(engine, "c", DIM), [record], vector[None])


def test_a_request_is_resolved_anew_after_every_write(small: SearchEngine) -> None:
    record = make_records(COUNT)[4]
    request = SearchRequest(k=COUNT, exclude_groups_of=(record.id,))
    shown = _ids(small, request)
    assert _ids(small, request) == shown
    assert len(shown) > COUNT - 6
    moved = next(each for each in make_records(COUNT) if each.id == shown[0])
    _put(small, replace(moved, group=record.group), unit_vectors(1, DIM, seed=9)[0])
    assert moved.id not in _ids(small, request)
    assert set(_ids(small, request)) == {*shown} - {moved.id}


def test_filters_that_python_takes_for_equal_are_two(small: SearchEngine) -> None:
    query = {"field": "urgent", "eq": True}
    assert _ids(small, SearchRequest(filter=parse_filter(query)))
    with pytest.raises(FilterError, match="urgent"):
        _ids(small, SearchRequest(filter=parse_filter(query | {"eq": 1})))


def test_a_hit_is_of_one_state_though_it_is_replaced_during_the_search(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has begun when an image gets another vector and other texts, and the view follows."""
    query = unit_vectors(1, DIM, seed=3)[0]
    active, request = small.active("c"), SearchRequest(k=COUNT)
    last = small.search(active, query, request).hits[-1].id
    record = next(each for each in make_records(COUNT) if each.id == last)

    def change() -> None:
        _put(small, replace(record, texts=("Now the nearest.",)), query)
        small.warm(active.generation)

    at_first(monkeypatch, VectorRanking, "page", change)
    first = small.search(active, query, request).hits[0]
    assert (first.id, first.image.texts) == (last, ("Now the nearest.",))


def test_hits_of_a_filter_that_was_judged_after_a_write_show_what_was_written(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has looked at the catalogue's version, but not yet at what passes, when an image changes."""
    query, active = unit_vectors(1, DIM, seed=3)[0], small.active("c")
    every = small.search(active, query, SearchRequest(k=COUNT)).hits
    changed = next(hit.id for hit in every if hit.image.metadata["view"] == "AP")
    record = next(each for each in make_records(COUNT) if each.id == changed)
    record = replace(record, metadata={**record.metadata, "view": "PA"})
    at_first(monkeypatch, SearchEngine, "_resolve", lambda: _put(small, record, query), behind=True)
    passing = parse_filter({"field": "view", "eq": "PA"})
    hits = small.search(active, query, SearchRequest(k=COUNT, filter=passing)).hits
    assert changed in {hit.id for hit in hits}
    assert {hit.image.metadata["view"] for hit in hits} == {"PA"}


def test_what_is_resolved_during_a_write_is_of_no_one_version(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    active, request = small.active("c"), SearchRequest()
    record, vector = make_records(COUNT)[0], unit_vectors(1, DIM, seed=9)[0]
    at_first(monkeypatch, SearchRequest, "bound", lambda: _put(small, record, vector))
    query = unit_vectors(1, DIM, seed=3)[0]
    assert small._resolve(active, query, request).version is None
    assert small._resolve(active, query, request).version == small.home.catalogue.version()


def test_a_collection_that_is_removed_during_its_first_search_gives_no_hits(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = small.active("c")
    at_first(monkeypatch, SearchEngine, "_resolve", lambda: remove_collection(small, "c"), behind=True)
    assert small.search(active, unit_vectors(1, DIM, seed=3)[0], SearchRequest()).hits == ()


@pytest.mark.parametrize("removed", [True, False])
def test_no_search_holds_a_view_that_is_freed(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch, *, removed: bool
) -> None:
    monkeypatch.setattr("index.views.manager._IDLE_SECONDS", -1.0)
    _ids(small, SearchRequest())
    active = small.active("c")
    generation, _ = small._generation(active)
    view = weakref.ref(small._views.entry(generation, "images").view)
    assert view() is not None
    if removed:
        small._views.keep(set(), set())
    else:
        small._views.keep({active.generation}, {active.generation + 1})
    gc.collect()
    assert view() is None
    assert len(_ids(small, SearchRequest())) == 10


def test_a_view_that_is_damaged_is_not_searched_again(
    small: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = _ids(small, SearchRequest())
    generation, _ = small._generation(small.active("c"))
    held = small._views.entry(generation, "images")
    damaged = held.view
    assert isinstance(damaged, CosineView)
    damaged._inconsistent = True
    damaged.remove(damaged.keys())
    assert _ids(small, SearchRequest()) == shown
    assert held.view is not damaged


def test_a_background_that_another_thread_measures_again_is_not_kept(small: SearchEngine) -> None:
    """The view has twice as many images, and the first search that would measure them has not ended."""
    query, active = unit_vectors(1, DIM, seed=3)[0], small.active("c")
    small.search(active, query, SearchRequest())
    records = [replace(record, id=f"more-{record.id}") for record in make_records(COUNT)]
    put_vectors(small, begin_generation(small, "c", DIM), records, unit_vectors(COUNT, DIM, seed=5))
    with small._views._held[active.generation, "images"].background.lock:
        before = small.search(active, query, SearchRequest())
    after = small.search(active, query, SearchRequest())
    assert before.hits == after.hits
    assert before.z_scores != after.z_scores


def test_a_collection_that_is_gone_is_unknown_to_a_search_that_began_before(small: SearchEngine) -> None:
    active, query = small.active("c"), unit_vectors(1, DIM, seed=3)[0]
    small.search(active, query, SearchRequest())
    remove_collection(small, "c")
    with pytest.raises(UnknownCollectionError):
        small.search(active, query, SearchRequest())
    with pytest.raises(UnknownCollectionError):
        small.vector_of(active, make_records(1)[0].id)
