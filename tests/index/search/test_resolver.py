"""Searches see every write that was done before them, and one state of what is written beside them."""

import gc
import weakref
from dataclasses import replace

import pytest

from index.engine import SearchEngine
from index.errors import FilterError, UnknownCollectionError
from index.filters.grammar import parse_filter
from index.search.orders import VectorRanking
from index.search.request import SearchRequest
from index.vectors.protocol import Vectors
from index.vectors.view import CosineView
from tests.index.homes import remove_collection
from tests.index.meanwhile import at_first
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors
from training.common.manifest import Record

DIM = 12
COUNT = 30


@pytest.fixture
def filled(engine: SearchEngine) -> SearchEngine:
    generation = begin_generation(engine, "c", DIM)
    put_vectors(engine, generation, make_records(COUNT), unit_vectors(COUNT, DIM))
    return engine


def _ids(engine: SearchEngine, request: SearchRequest) -> list[str]:
    query = unit_vectors(1, DIM, seed=3)[0]
    return [hit.id for hit in engine.search(engine.active("c"), query, request).hits]


def _put(engine: SearchEngine, record: Record, vector: Vectors) -> None:
    put_vectors(engine, begin_generation(engine, "c", DIM), [record], vector[None])


def test_a_request_is_resolved_anew_after_every_write(filled: SearchEngine) -> None:
    record = make_records(COUNT)[4]
    request = SearchRequest(k=COUNT, exclude_groups_of=(record.id,))
    shown = _ids(filled, request)
    assert _ids(filled, request) == shown
    assert len(shown) > COUNT - 6
    moved = next(each for each in make_records(COUNT) if each.id == shown[0])
    _put(filled, replace(moved, group=record.group), unit_vectors(1, DIM, seed=9)[0])
    assert moved.id not in _ids(filled, request)
    assert set(_ids(filled, request)) == {*shown} - {moved.id}


def test_filters_that_python_takes_for_equal_are_two(filled: SearchEngine) -> None:
    query = {"field": "urgent", "eq": True}
    assert _ids(filled, SearchRequest(filter=parse_filter(query)))
    with pytest.raises(FilterError, match="urgent"):
        _ids(filled, SearchRequest(filter=parse_filter(query | {"eq": 1})))


def test_a_hit_is_of_one_state_though_it_is_replaced_during_the_search(
    filled: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has begun when an image gets another vector and other texts, and the view follows."""
    query = unit_vectors(1, DIM, seed=3)[0]
    active, request = filled.active("c"), SearchRequest(k=COUNT)
    last = filled.search(active, query, request).hits[-1].id
    record = next(each for each in make_records(COUNT) if each.id == last)

    def change() -> None:
        _put(filled, replace(record, texts=("Now the nearest.",)), query)
        filled.warm(active.generation)

    at_first(monkeypatch, VectorRanking, "page", change)
    first = filled.search(active, query, request).hits[0]
    assert (first.id, first.image.texts) == (last, ("Now the nearest.",))


def test_hits_of_a_filter_that_was_judged_after_a_write_show_what_was_written(
    filled: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search has looked at the catalogue's version, but not yet at what passes, when an image changes."""
    query, active = unit_vectors(1, DIM, seed=3)[0], filled.active("c")
    every = filled.search(active, query, SearchRequest(k=COUNT)).hits
    changed = next(hit.id for hit in every if hit.image.metadata["view"] == "AP")
    record = next(each for each in make_records(COUNT) if each.id == changed)
    record = replace(record, metadata={**record.metadata, "view": "PA"})
    at_first(monkeypatch, SearchEngine, "_resolve", lambda: _put(filled, record, query), behind=True)
    passing = parse_filter({"field": "view", "eq": "PA"})
    hits = filled.search(active, query, SearchRequest(k=COUNT, filter=passing)).hits
    assert changed in {hit.id for hit in hits}
    assert {hit.image.metadata["view"] for hit in hits} == {"PA"}


def test_what_is_resolved_during_a_write_is_of_no_one_version(
    filled: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    active, request = filled.active("c"), SearchRequest()
    record, vector = make_records(COUNT)[0], unit_vectors(1, DIM, seed=9)[0]
    at_first(monkeypatch, SearchRequest, "bound", lambda: _put(filled, record, vector))
    query = unit_vectors(1, DIM, seed=3)[0]
    assert filled._resolve(active, query, request).version is None
    assert filled._resolve(active, query, request).version == filled.home.catalogue.version()


def test_a_collection_that_is_removed_during_its_first_search_gives_no_hits(
    filled: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = filled.active("c")
    at_first(monkeypatch, SearchEngine, "_resolve", lambda: remove_collection(filled, "c"), behind=True)
    assert filled.search(active, unit_vectors(1, DIM, seed=3)[0], SearchRequest()).hits == ()


@pytest.mark.parametrize("removed", [True, False])
def test_no_search_holds_a_view_that_is_freed(
    filled: SearchEngine, monkeypatch: pytest.MonkeyPatch, *, removed: bool
) -> None:
    monkeypatch.setattr("index.views.manager._IDLE_SECONDS", -1.0)
    monkeypatch.setattr("index.views.manager._LOOK_SECONDS", 0.0)
    _ids(filled, SearchRequest())
    active = filled.active("c")
    generation, _ = filled._generation(active)
    view = weakref.ref(filled._views.entry(generation, "images").view)
    assert view() is not None
    if removed:
        filled._views.keep(set())
    else:
        filled._views.retire(generation.collection_id, active.generation + 1)
    gc.collect()
    assert view() is None
    assert len(_ids(filled, SearchRequest())) == 10


def test_a_view_that_is_damaged_is_not_searched_again(
    filled: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = _ids(filled, SearchRequest())
    generation, _ = filled._generation(filled.active("c"))
    held = filled._views.entry(generation, "images")
    damaged = held.view
    assert isinstance(damaged, CosineView)
    damaged._inconsistent = True
    damaged.remove(damaged.keys())
    assert _ids(filled, SearchRequest()) == shown
    assert held.view is not damaged


def test_a_background_that_another_thread_measures_again_is_not_kept(filled: SearchEngine) -> None:
    """The view has twice as many images, and the first search that would measure them has not ended."""
    query, active = unit_vectors(1, DIM, seed=3)[0], filled.active("c")
    filled.search(active, query, SearchRequest())
    records = [replace(record, id=f"more-{record.id}") for record in make_records(COUNT)]
    put_vectors(filled, begin_generation(filled, "c", DIM), records, unit_vectors(COUNT, DIM, seed=5))
    with filled._views._held[active.generation, "images"].background.lock:
        before = filled.search(active, query, SearchRequest())
    after = filled.search(active, query, SearchRequest())
    assert before.hits == after.hits
    assert before.z_scores != after.z_scores


def test_a_collection_that_is_gone_is_unknown_to_a_search_that_began_before(filled: SearchEngine) -> None:
    active, query = filled.active("c"), unit_vectors(1, DIM, seed=3)[0]
    filled.search(active, query, SearchRequest())
    remove_collection(filled, "c")
    with pytest.raises(UnknownCollectionError):
        filled.search(active, query, SearchRequest())
    with pytest.raises(UnknownCollectionError):
        filled.vector_of(active, make_records(1)[0].id)
