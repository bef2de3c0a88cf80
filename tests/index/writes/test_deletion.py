"""What goes with the garbage: fields that no image has, and removals; what is behind finds nothing gone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select

from index.catalogue.collections import Generation, find_active, hide_collection
from index.catalogue.tables import CollectionRow, RemovalRow
from index.engine import SearchEngine
from index.filters.column_cache import CollectionState, touched_since
from index.filters.columns import known_fields
from index.search.request import SearchRequest
from index.views.manager import Views
from index.writes.deletion import collect_garbage, delete_images, remove_unused_fields
from tests.index.homes import in_read, in_write, open_home, scalar, scalars
from tests.index.meanwhile import at_first
from tests.index.samples import ingest, make_manifest, make_records, put_records, put_vectors, unit_vectors
from training.common.manifest import Record
from training.models.encoder import Encoder

_ALL = {"age": {"number"}, "urgent": {"boolean"}, "view": {"text"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def _ingest(
    engine: SearchEngine, encoder: Encoder, folder: Path, records: Sequence[Record], collection: str = "c"
) -> None:
    ingest(engine, encoder, make_manifest(folder, records), collection)


def _fields(engine: SearchEngine, collection: str = "c") -> dict[str, set[str]]:
    results = {field.name: set[str](field.kinds) for field in engine.collection(collection).fields}
    return {name: kinds for name, kinds in results.items() if name not in ("id", "split", "group", "labels")}


def _without_urgent(records: Sequence[Record]) -> list[Record]:
    return [
        replace(record, metadata={"age": str(record.metadata["age"]), "view": "PA"}) for record in records
    ]


def test_a_field_that_no_image_has_any_more_goes_with_the_garbage(
    engine: SearchEngine, encoder: Encoder, folder: Path
) -> None:
    records = make_records(6)
    for collection in ("c", "d"):
        _ingest(engine, encoder, folder, records, collection)
    _ingest(engine, encoder, folder, [records[0], *_without_urgent(records[1:])])
    collect_garbage(engine.home)
    assert _fields(engine) == _ALL | {"age": {"number", "text"}}
    _ingest(engine, encoder, folder, _without_urgent(records))
    assert "urgent" in {facet.name for facet in engine.overview("c").facets}
    collect_garbage(engine.home)
    assert _fields(engine) == {"age": {"text"}, "view": {"text"}}
    assert "urgent" not in {facet.name for facet in engine.overview("c").facets}
    assert _fields(engine, "d") == _ALL


def test_where_every_field_is_used_nothing_is_written(
    engine: SearchEngine, encoder: Encoder, folder: Path
) -> None:
    _ingest(engine, encoder, folder, make_records(6))
    before = scalar(engine, select(CollectionRow.sequence))
    remove_unused_fields(engine.home.catalogue)
    assert scalar(engine, select(CollectionRow.sequence)) == before


def test_a_field_that_comes_back_meanwhile_stays(
    engine: SearchEngine, encoder: Encoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = make_records(6)
    _ingest(engine, encoder, folder, records)
    _ingest(engine, encoder, folder, _without_urgent(records))
    catalogue = engine.home.catalogue
    at_first(monkeypatch, catalogue, "write", lambda: _ingest(engine, encoder, folder, records))
    remove_unused_fields(catalogue)
    assert _fields(engine) == _ALL


def test_a_collection_that_is_removed_meanwhile_is_left_alone(
    engine: SearchEngine, encoder: Encoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = make_records(6)
    _ingest(engine, encoder, folder, records)
    _ingest(engine, encoder, folder, _without_urgent(records))
    collection_id = scalar(engine, select(CollectionRow.id))

    def hide() -> None:
        in_write(engine, hide_collection, "c")

    at_first(monkeypatch, engine.home.catalogue, "write", hide)
    remove_unused_fields(engine.home.catalogue)
    assert "urgent" in in_read(engine, known_fields, collection_id)


DIM = 8
COUNT = 60
LIMIT = 7


@pytest.fixture
def generation(engine: SearchEngine, monkeypatch: pytest.MonkeyPatch) -> Generation:
    monkeypatch.setattr("index.writes.deletion._MAX_REMOVALS", LIMIT)
    monkeypatch.setattr("index.writes.deletion._AT_ONCE", 4)
    return put_records(engine, make_records(COUNT), DIM)


def _delete(engine: SearchEngine, first: int, stop: int) -> None:
    for record in make_records(stop)[first:]:
        in_write(engine, delete_images, "c", [record.id])


def _removals(engine: SearchEngine, target: str) -> list[int]:
    query = select(RemovalRow.sequence).where(RemovalRow.target == target).order_by(RemovalRow.sequence)
    return scalars(engine, query)


def _keys(engine: SearchEngine, views: Views) -> list[int]:
    with engine.home.catalogue.reading() as reading:
        active = find_active(reading.session, "c")
        assert active is not None
        keys: list[int] = views.current(reading, *active)[1].keys().tolist()
    return keys


def test_the_latest_removals_of_images_and_of_texts_stay(
    engine: SearchEngine, generation: Generation
) -> None:
    _delete(engine, 0, 5)
    before = _removals(engine, "images")
    collect_garbage(engine.home)
    assert _removals(engine, "images") == before
    _delete(engine, 5, 30)
    images, texts = _removals(engine, "images"), _removals(engine, "texts")
    assert len(images) == 30
    collect_garbage(engine.home)
    assert _removals(engine, "images") == images[-LIMIT:]
    left = _removals(engine, "texts")
    assert 0 < len(left) <= LIMIT
    assert left == texts[-len(left) :]
    with engine.home.catalogue.read() as session:
        trimmed = session.execute(select(CollectionRow.trimmed)).scalar_one()
        assert trimmed == max(images[-LIMIT - 1], texts[-len(left) - 1])
        # Images that are written later have higher numbers.
        assert trimmed < session.execute(select(func.max(CollectionRow.sequence))).scalar_one()


def test_a_view_that_is_behind_finds_nothing_that_is_gone(
    engine: SearchEngine, generation: Generation, tmp_path: Path
) -> None:
    views = Views(tmp_path / "views")
    before = _keys(engine, views)
    _delete(engine, 0, 30)
    collect_garbage(engine.home)
    assert _keys(engine, views) == before[30:]
    # One that has seen all that is forgotten follows as before.
    (entry,) = views._entries.values()
    view = entry.view
    _delete(engine, 30, 32)
    collect_garbage(engine.home)
    assert _keys(engine, views) == before[32:]
    assert entry.view is view
    views.close()


def test_a_snapshot_that_is_behind_is_not_used(
    engine: SearchEngine, generation: Generation, tmp_path: Path
) -> None:
    engine.save_snapshot("c")
    _delete(engine, 0, 30)
    # As many come as have gone, so that the number of vectors tells nothing.
    put_vectors(engine, generation, make_records(COUNT + 30)[COUNT:], unit_vectors(30, DIM, seed=1))
    collect_garbage(engine.home)
    again = open_home(tmp_path / "home", engine.home.catalogue.url)
    hits = again.search(again.active("c"), unit_vectors(1, DIM)[0], SearchRequest(k=100)).hits
    assert {hit.id for hit in hits} == {record.id for record in make_records(COUNT + 30)[30:]}
    again.close()


def test_a_snapshot_that_is_behind_is_written_again(
    engine: SearchEngine, generation: Generation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.views.manager._LACKING", 1.0)
    engine.save_snapshot("c")
    manifest = tmp_path / "home" / "snapshots" / generation.uid / "snapshot.json"
    before = manifest.read_bytes()
    _delete(engine, 0, 5)
    engine.save_snapshot("c")
    assert manifest.read_bytes() == before
    _delete(engine, 5, 20)
    collect_garbage(engine.home)
    engine.save_snapshot("c")
    assert manifest.read_bytes() != before


def test_caches_that_are_behind_are_read_anew(engine: SearchEngine, generation: Generation) -> None:
    _delete(engine, 0, 30)

    def touched(sequence: int) -> list[int] | None:
        with engine.home.catalogue.reading() as reading:
            state = CollectionState(reading, generation.collection_id, sequence)
            keys = touched_since(state, sequence, "images", 1000)
        return None if keys is None else keys.tolist()

    everything = touched(2)
    assert everything is not None
    collect_garbage(engine.home)
    assert touched(2) is None
    trimmed = scalar(engine, select(CollectionRow.trimmed))
    later = sum(sequence > trimmed for sequence in _removals(engine, "images"))
    assert 0 < later <= LIMIT
    assert touched(trimmed) == everything[-later:]
