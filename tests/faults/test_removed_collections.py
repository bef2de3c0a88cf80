"""A collection that is removed is out of sight at once, and gone in the end, whoever is killed in between."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from index.catalogue.collections import next_sequence
from index.catalogue.tables import CollectionRow, GenerationRow, RemovalRow
from index.engine import SearchEngine
from index.errors import StaleWriteError, UnknownCollectionError
from index.generations.models import create_collection
from index.search.request import SearchRequest
from index.writes.deletion import collect_garbage
from index.writes.live import put_images, remove_images
from tests.faults.made import DIGEST, begin_world, made_record, made_upload, open_world, vector_of
from tests.faults.oracle import Oracle, check_collection, check_files, check_nothing_else, check_page
from tests.index.homes import remove_collection

IMAGES = 10


class _KilledError(BaseException):
    pass


def _between_batches(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Remove three images at a time, and then three files at a time, and do something behind each."""
    for module, limit in (("index.writes.deletion", "AT_ONCE"), ("index.files.orphans", "_AT_ONCE")):
        monkeypatch.setattr(f"{module}.{limit}", 3)
        monkeypatch.setattr(f"{module}.sleep", lambda _seconds: work())


def _put(engine: SearchEngine, collection: str, oracle: Oracle, *numbers: int) -> None:
    for number in numbers:
        record, picture = made_record(f"image {number}", number), f"{collection} {number}"
        put_images(engine.home, engine.active(collection), [made_upload(record, picture)])
        oracle.put(record, picture)


def _check_alone(engine: SearchEngine, **oracles: Oracle) -> None:
    """See that these collections are there and nothing else is."""
    for name, oracle in oracles.items():
        check_collection(engine, name, oracle)
        query = vector_of("query")
        check_page(engine.search(engine.active(name), query, SearchRequest(k=50)), oracle.ranked(query), 50)
    check_files(engine, *oracles.values())
    check_nothing_else(engine)
    with engine.home.catalogue.read() as session:
        assert sorted(session.execute(select(CollectionRow.name)).scalars()) == sorted(oracles)
        collections = select(CollectionRow.id)
        for table in (GenerationRow, RemovalRow):
            left = select(table).where(table.collection_id.not_in(collections))
            assert session.execute(left).all() == []


def test_what_is_left_when_a_process_is_killed_is_out_of_sight_and_removed_later(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, kept = begin_world(home, "a", "b"), Oracle()
    _put(engine, "a", Oracle(), *range(IMAGES))
    remove_images(engine.home, "a", ["image 3"])
    _put(engine, "b", kept, 1, 2)
    before = engine.active("a")

    def kill() -> None:
        raise _KilledError

    with monkeypatch.context() as patched:
        _between_batches(patched, kill)
        with pytest.raises(_KilledError):
            remove_collection(engine, "a")
    assert engine.names() == [info.name for info in engine.collections()] == ["b"]
    with pytest.raises(UnknownCollectionError) as unknown:
        engine.active("a")
    assert "~" not in str(unknown.value)
    with pytest.raises(UnknownCollectionError):
        engine.search(before, vector_of("query"), SearchRequest())
    with engine.home.catalogue.read() as session:
        key = session.execute(select(CollectionRow.id).where(CollectionRow.name != "b")).scalar_one()
    with pytest.raises(StaleWriteError), engine.home.catalogue.write() as session:
        next_sequence(session, key)
    engine.close()
    restarted, again = open_world(home), Oracle()
    create_collection(restarted.home, "a", model=DIGEST)
    _put(restarted, "a", again, 3, 40)
    collect_garbage(restarted.home)
    _check_alone(restarted, a=again, b=kept)
    assert not list(restarted.home.snapshots_folder.glob("*"))
    restarted.close()


def test_others_write_while_a_collection_is_removed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, other, kept, again = begin_world(home, "a", "b"), open_world(home), Oracle(), Oracle()
    _put(engine, "a", Oracle(), *range(IMAGES))
    numbers = iter(range(100, 200))

    def write() -> None:
        if "a" not in other.names():
            create_collection(other.home, "a", model=DIGEST)
        _put(other, "a", again, next(numbers))
        _put(other, "b", kept, next(numbers))

    _between_batches(monkeypatch, write)
    remove_collection(engine, "a")
    # Four times behind images, and as often behind their files.
    assert len(kept.images) == len(again.images) == 8
    _check_alone(engine, a=again, b=kept)
    other.close()
    engine.close()
