"""Writers that meet on PostgreSQL, where they do not wait for each other from the beginning as on SQLite."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, text

from index.catalogue.collections import (
    add_collection,
    add_generation,
    next_sequence,
    open_generation,
    require_collection,
)
from index.catalogue.tables import CollectionRow, EmbeddingRow, GenerationRow, ModelRow
from index.engine import SearchEngine
from index.errors import CollectionExistsError
from index.files.bundles import register_bundle
from index.generations.activation import drop_generation
from index.generations.models import create_collection
from index.generations.reindex import generation_for
from tests.index.homes import in_write, open_home, scalar
from tests.index.samples import begin_generation, make_records, put_records
from training.models.bundle import BundleInfo
from training.models.encoder import Encoder

pytestmark = pytest.mark.slow
MODEL = "a" * 64


@pytest.fixture
def engine(postgresql_url: str, tmp_path: Path) -> Iterator[SearchEngine]:
    opened = open_home(tmp_path / "home", postgresql_url)
    begin_generation(opened, "first", 8, digest=MODEL)
    (opened.home.bundles_folder / MODEL).mkdir(parents=True)
    yield opened
    opened.close()


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    """Another writer, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def wait_until_it_waits(engine: SearchEngine, working: Future[Any]) -> None:
    """Return once the other writer waits for what this one holds, or has ended."""
    deadline = time.monotonic() + 30
    waiting = text(
        "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE NOT granted AND datname = current_database()"
    )
    while not working.done() and time.monotonic() < deadline:
        with engine.home.catalogue.read() as session:
            if session.execute(waiting).scalar_one():
                return
        time.sleep(0.01)
    assert working.done(), "it neither waits nor ends"


def _model(engine: SearchEngine) -> ModelRow:
    return scalar(engine, select(ModelRow).where(ModelRow.digest == MODEL))


def _opened(engine: SearchEngine) -> int:
    return in_write(engine, open_generation, "c", _model(engine)).id


def _registered(engine: SearchEngine, bundle: BundleInfo) -> int:
    with engine.home.catalogue.write() as session:
        return register_bundle(session, bundle).id


def test_of_two_that_begin_a_collection_of_one_name_one_is_told_that_it_exists(
    engine: SearchEngine, other: ThreadPoolExecutor
) -> None:
    with engine.home.catalogue.write() as session:
        add_collection(session, "c")
        second = other.submit(create_collection, engine.home, "c", model=MODEL)
        wait_until_it_waits(engine, second)
    with pytest.raises(CollectionExistsError):
        second.result()


def test_two_first_runs_of_a_bundle_register_it_once(
    engine: SearchEngine, other: ThreadPoolExecutor, bundle: BundleInfo
) -> None:
    with engine.home.catalogue.write() as session:
        first = register_bundle(session, bundle).id
        second = other.submit(_registered, engine, bundle)
        wait_until_it_waits(engine, second)
    assert second.result() == first


@pytest.mark.parametrize("there", [False, True])
def test_two_first_runs_into_a_collection_begin_one_generation(
    engine: SearchEngine, other: ThreadPoolExecutor, there: bool
) -> None:
    if there:
        begin_generation(engine, "c", 8, digest="b" * 64)
    with engine.home.catalogue.write() as session:
        first = open_generation(session, "c", _model(engine)).id
        second = other.submit(_opened, engine)
        wait_until_it_waits(engine, second)
    assert second.result() == first


def test_two_that_embed_a_collection_with_one_bundle_begin_one_generation(
    engine: SearchEngine, other: ThreadPoolExecutor, encoder: Encoder, bundle: BundleInfo
) -> None:
    model = _registered(engine, bundle)
    with engine.home.catalogue.write() as session:
        collection = require_collection(session, "first").id
        next_sequence(session, collection)
        second = other.submit(generation_for, engine.home, "first", encoder)
        wait_until_it_waits(engine, second)
        first = add_generation(session, collection, model)
    assert second.result() == first
    with engine.home.catalogue.read() as session:
        assert len(session.execute(select(GenerationRow.id)).all()) == 2


def test_a_generation_is_dropped_while_its_images_are_removed(
    engine: SearchEngine, other: ThreadPoolExecutor
) -> None:
    old, _ = (put_records(engine, make_records(30), 8, digest=digest) for digest in (MODEL, "b" * 64))
    with engine.home.catalogue.write() as session:
        next_sequence(session, old.collection_id)
        keys = session.execute(
            select(EmbeddingRow.image_id).where(EmbeddingRow.generation_id == old.id).order_by("image_id")
        ).scalars()
        first, *_, last = keys
        session.execute(delete(EmbeddingRow).where(EmbeddingRow.image_id == last))
        dropping = other.submit(drop_generation, engine.home, "c", old.id)
        wait_until_it_waits(engine, dropping)
        session.execute(delete(EmbeddingRow).where(EmbeddingRow.image_id == first))
    dropping.result()
    with engine.home.catalogue.read() as session:
        assert old.id not in session.execute(select(GenerationRow.id)).scalars().all()
        assert session.execute(select(CollectionRow.name).order_by("name")).scalars().all() == ["c", "first"]
