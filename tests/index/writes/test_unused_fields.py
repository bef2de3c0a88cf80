from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from index.catalogue.collections import hide_collection
from index.catalogue.tables import CollectionRow
from index.engine import SearchEngine
from index.filters.columns import known_fields
from index.writes.deletion import collect_garbage, remove_unused_fields
from tests.index.meanwhile import at_first
from tests.index.samples import ingest, make_manifest, make_records
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
    found = {field.name: set[str](field.kinds) for field in engine.collection(collection).fields}
    return {name: kinds for name, kinds in found.items() if name not in ("id", "split", "group", "labels")}


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
    with engine.home.catalogue.read() as session:
        before = session.execute(select(CollectionRow.sequence)).scalar_one()
    remove_unused_fields(engine.home.catalogue)
    with engine.home.catalogue.read() as session:
        assert session.execute(select(CollectionRow.sequence)).scalar_one() == before


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
    with engine.home.catalogue.read() as session:
        collection_id = session.execute(select(CollectionRow.id)).scalar_one()

    def hide() -> None:
        with engine.home.catalogue.write() as session:
            hide_collection(session, "c")

    at_first(monkeypatch, engine.home.catalogue, "write", hide)
    remove_unused_fields(engine.home.catalogue)
    with engine.home.catalogue.read() as session:
        assert "urgent" in known_fields(session, collection_id)
