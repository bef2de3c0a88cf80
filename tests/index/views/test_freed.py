"""What a process holds in memory: loaded before a search needs it, and freed when it is of no use."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from index.catalogue.collections import TARGETS
from index.engine import SearchEngine
from index.filters.facets import Overview
from index.filters.grammar import parse_filter
from index.generations.activation import activate, mark_preloading
from index.generations.reindex import generation_for, reindex
from index.scoring import Background
from index.search.request import SearchRequest
from index.vectors.view import CosineView
from tests.index.homes import open_home, remove_collection
from tests.index.meanwhile import statements
from tests.index.samples import ingest, make_manifest, make_records, unit_vectors
from training.models.encoder import Encoder

DIM = 12
PA = parse_filter({"field": "view", "eq": "PA"})


@pytest.fixture
def service(tmp_path: Path, encoder: Encoder) -> Iterator[SearchEngine]:
    """An engine that has done nothing yet, on two collections."""
    with writer(tmp_path) as engine:
        manifest = make_manifest(tmp_path / "data", make_records(30))
        for name in ("kept", "removed"):
            ingest(engine, encoder, manifest, name)
    with writer(tmp_path) as engine:
        yield engine


@contextmanager
def writer(folder: Path) -> Iterator[SearchEngine]:
    """Another process's engine."""
    engine = open_home(folder / "home")
    yield engine
    engine.close()


def vectors_read(sent: list[tuple[str, Any]]) -> list[str]:
    """The statements that read vectors, except those written after a place."""
    return [
        statement
        for statement, values in sent
        if "embeddings.vector" in statement and not ("sequence > ?" in statement and values[1] > 0)
    ]


def search_all(engine: SearchEngine, collection: str, generation: int) -> None:
    """Search images and texts, and what is asked for needs a scale of scores."""
    active = engine.active(collection)
    assert active.generation == generation
    for target in TARGETS:
        page = engine.search(active, unit_vectors(1, DIM)[0], SearchRequest(kind="text", target=target))
        assert page.z_scores is not None


def test_first_searches_of_what_is_warm_read_no_vectors(service: SearchEngine) -> None:
    number = service.active("kept").generation
    with statements() as sent:
        service.warm(number)
        assert vectors_read(sent)
        sent.clear()
        search_all(service, "kept", number)
    assert vectors_read(sent) == []


def test_what_is_warm_before_it_is_active_stays_warm(
    service: SearchEngine, tmp_path: Path, other_encoder: Encoder
) -> None:
    """Searches of the generation before do not push the next one out of memory."""
    with writer(tmp_path) as engine:
        later = generation_for(engine.home, "kept", other_encoder)
        reindex(engine, later, other_encoder, show_progress=False)
        before = service.active("kept").generation
        service.warm(before)
        service.warm(later.id)
        with statements() as sent:
            search_all(service, "kept", before)
            with engine.home.catalogue.write() as session:
                activate(session, later, texts=True)
            search_all(service, "kept", later.id)
    assert vectors_read(sent) == []


def held() -> list[int]:
    """How many views, backgrounds and overviews there are in memory."""
    gc.collect()
    everything = gc.get_objects()
    return [sum(type(each) is kind for each in everything) for kind in (CosineView, Background, Overview)]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_nothing_is_held_of_a_removed_collection(
    service: SearchEngine, tmp_path: Path, elsewhere: bool
) -> None:
    def use(name: str) -> None:
        active = service.active(name)
        service.warm(active.generation)
        service.overview(name)
        service.search(active, unit_vectors(1, DIM)[0], SearchRequest(kind="text", filter=PA))

    use("kept")
    before = held()
    use("removed")
    assert held() == [before[0] + 2, before[1] + 2, before[2] + 1]
    if elsewhere:
        with writer(tmp_path) as engine:
            remove_collection(engine, "removed")
        assert held() != before
        service.forget_removed()
    else:
        remove_collection(service, "removed")
    assert held() == before
    with statements() as sent:
        search_all(service, "kept", service.active("kept").generation)
    assert vectors_read(sent) == []


def test_views_of_a_replaced_generation_are_freed_once_nobody_uses_them(
    service: SearchEngine, tmp_path: Path, other_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = service.active("kept").generation
    with writer(tmp_path) as engine:
        later = generation_for(engine.home, "kept", other_encoder)
        reindex(engine, later, other_encoder, show_progress=False)
        service.warm(first)
        service.warm(later.id)
        both = held()[0]
        with engine.home.catalogue.write() as session:
            mark_preloading(session, later)
        monkeypatch.setattr("index.views.manager._IDLE_SECONDS", -1.0)
        service.forget_removed()
        assert held()[0] == both
        with engine.home.catalogue.write() as session:
            activate(session, later, texts=True)
    monkeypatch.setattr("index.views.manager._IDLE_SECONDS", 60.0)
    service.forget_removed()
    assert held()[0] == both
    monkeypatch.setattr("index.views.manager._IDLE_SECONDS", -1.0)
    service.forget_removed()
    assert held()[0] == both - 2
