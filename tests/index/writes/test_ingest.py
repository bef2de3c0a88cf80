"""Runs of indexing: what they write, leave out, replace and take over, also when they are killed."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, event, func, select

from index.catalogue.tables import (
    AttributeRow,
    EmbeddingRow,
    GenerationRow,
    ImageRow,
    OrphanRow,
    Table,
    TextRow,
)
from index.engine import SearchEngine
from index.errors import FilterError, GenerationError, NoActiveGenerationError
from index.filters.grammar import parse_filter
from index.generations.activation import activate
from index.generations.reindex import generation_for, reindex
from index.search.request import SearchRequest
from index.writes.intake import prefetch
from tests.index.homes import open_home
from tests.index.killing import kill_after
from tests.index.samples import ingest, make_manifest, make_picture, make_records, unit_vectors
from training.common.errors import DataError
from training.common.manifest import Manifest, Rejections
from training.imaging.images import decode_image
from training.models.bundle import BundleInfo
from training.models.encoder import Encoder


def _digest(encoder: Encoder) -> str:
    assert encoder.info is not None
    return encoder.info.digest


def test_every_record_can_be_read_back_and_a_second_run_embeds_nothing(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    report = ingest(engine, encoder, manifest)
    assert (report.added, report.updated, report.unchanged, len(report.rejections)) == (20, 0, 0, 0)
    for record in manifest.records:
        image = engine.image("c", record.id)
        assert (image.texts, image.labels, image.report) == (record.texts, record.labels, record.report)
        assert (image.split, image.group, image.metadata) == (record.split, record.group, record.metadata)
        assert (image.width, image.height, image.media_type) == (48, 40, "image/png")
        assert engine.image_path("c", record.id).read_bytes() == manifest.image_path(record).read_bytes()
    with engine.home.catalogue.read() as session:
        counts = [
            session.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (ImageRow, EmbeddingRow, TextRow, AttributeRow, GenerationRow)
        ]
    texts = sum(len(record.texts) for record in manifest.records)
    attributes = sum(len(record.labels) + 3 for record in manifest.records)
    assert counts == [20, 20, texts, attributes, 1]
    before = _dump(engine)
    again = ingest(engine, encoder, manifest)
    assert (again.added, again.updated, again.unchanged, again.embedded) == (0, 0, 20, 0)
    assert _dump(engine) == before


def test_texts_of_any_length_are_kept_and_short_ones_filtered_by(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    """Drawn letters, since PostgreSQL compresses others and then takes more of them."""
    letters = "".join(np.random.default_rng(0).choice(list("abcdefghijklmnopqrstuvwxyz0123456789"), 8000))
    record = replace(
        manifest.records[0],
        id="\U00020000" * 255,
        group=letters[:2000],
        labels=(letters[2000:4000],),
        metadata={"comment": letters[:6000], letters[:500]: (letters[:2001], letters[1000:3000])},
    )
    ingest(engine, encoder, make_manifest(tmp_path / "data", [record, *manifest.records[1:]]))
    assert engine.image("c", record.id).metadata == record.metadata
    active = engine.active("c")

    def found(field: str, value: str) -> list[str]:
        asked = SearchRequest(k=50, filter=parse_filter({"field": field, "eq": value}))
        return [hit.id for hit in engine.search(active, np.ones(12, np.float32), asked).hits]

    assert found("group", letters[:2000]) == [record.id]
    assert found("labels", letters[2000:4000]) == [record.id]
    assert found(letters[:500], letters[1000:3000]) == [record.id]
    assert found(letters[:500], letters[:2001]) == []
    with pytest.raises(FilterError, match="There is no field 'comment'"):
        found("comment", letters[:6000])


def test_vectors_are_those_of_the_encoder(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    active = indexed.active("c")
    for record in manifest.records[:3]:
        pixels = encoder.prepare_image(decode_image(manifest.image_path(record)))
        direct = encoder.embed_images(pixels[None])[0]
        np.testing.assert_allclose(indexed.vector_of(active, record.id), direct, atol=1e-3)
        page = indexed.search(active, direct, SearchRequest(k=1))
        assert page.hits[0].id == record.id
        assert page.hits[0].score == pytest.approx(1.0, abs=1e-5)


def test_changed_records_are_updated(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    active = indexed.active("c")
    stale = indexed.vector_of(active, "image-007")
    records = list(manifest.records)
    records[3] = replace(records[3], texts=("new text",), metadata={"age": 99})
    make_picture(tmp_path / "data" / records[7].image, seed=1000)
    report = ingest(indexed, encoder, make_manifest(tmp_path / "data", records))
    assert (report.added, report.updated, report.unchanged, report.embedded) == (0, 2, 18, 1)
    assert indexed.image("c", "image-003").texts == ("new text",)
    assert indexed.image("c", "image-003").metadata == {"age": 99}
    fresh = indexed.vector_of(active, "image-007")
    assert not np.allclose(fresh, stale, atol=1e-3)
    # The view was caught up: the new vector is found, and the old place of the image is gone.
    assert indexed.search(active, fresh, SearchRequest(k=1)).hits[0].id == "image-007"
    ids = [hit.id for hit in indexed.search(active, fresh, SearchRequest(k=100)).hits]
    assert len(ids) == len(set(ids)) == 20
    found = indexed.search(
        active, fresh, SearchRequest(k=5, filter=parse_filter({"field": "age", "eq": 99}))
    ).hits
    assert [hit.id for hit in found] == ["image-003"]


def test_broken_images_are_named_and_left_out(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    manifest.image_path(manifest.records[4]).write_bytes(b"no image")
    manifest.image_path(manifest.records[9]).unlink()
    report = ingest(engine, encoder, replace(manifest, rejections=Rejections(20, 0.1)))
    assert report.added == 18
    assert [rejection.line for rejection in report.rejections.items] == [5, 10]
    assert report.rejections.items[1].reason.startswith("images/009.png: The file cannot be read")
    assert engine.active("c").count == 18


def test_lines_and_images_are_left_out_of_one_share(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    """A tenth of the lines may be left out: one line was, so one image may be, and not two."""
    rejections = Rejections(21, 0.1)
    rejections.add(21, "it is not JSON")
    for record in manifest.records[:2]:
        manifest.image_path(record).write_bytes(b"no image")
    with pytest.raises(DataError, match="1 of 21 lines and 2 of 20 images") as raised:
        ingest(engine, encoder, replace(manifest, rejections=rejections))
    with pytest.raises(NoActiveGenerationError):
        engine.active("c")
    assert [note.split(":")[0] for note in raised.value.__notes__] == ["Line 21", "Line 1", "Line 2"]


def test_another_bundle_is_loaded_and_takes_over_in_one_step(
    engine: SearchEngine,
    encoder: Encoder,
    other_encoder: Encoder,
    manifest: Manifest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ingest(engine, encoder, manifest).took_over is None
    first = engine.active("c")
    warm, seen = engine.warm, []

    def look(generation: int) -> None:
        seen.append((engine.active("c"), [soon.generation for soon in engine.preloading()]))
        warm(generation)

    with monkeypatch.context() as looking:
        looking.setattr(engine, "warm", look)
        report = ingest(engine, other_encoder, manifest)
    assert (report.added, report.unchanged, report.embedded) == (0, 20, 20)
    assert report.took_over is not None
    assert seen == [(first, [report.took_over.id])]
    second = engine.active("c")
    assert second.generation == report.took_over.id != first.generation
    assert second.digest == _digest(other_encoder)
    assert (second.bundle / "model.safetensors").is_file()
    # A request that began with the first generation still gets its answer from it.
    vector = engine.vector_of(first, "image-001")
    assert engine.search(first, vector, SearchRequest(k=1)).hits[0].score == pytest.approx(1, abs=1e-5)
    assert not np.allclose(vector, engine.vector_of(second, "image-001"), atol=1e-2)
    # Who goes back keeps what was embedded.
    assert ingest(engine, encoder, manifest).embedded == 0
    assert engine.active("c") == first


def test_a_run_that_another_bundle_overtakes_does_not_take_its_place_back(
    indexed: SearchEngine,
    encoder: Encoder,
    other_encoder: Encoder,
    manifest: Manifest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = generation_for(indexed.home, "c", other_encoder)
    reindex(indexed, other, other_encoder, show_progress=False)

    def overtake(*_: object, **__: object) -> None:
        with indexed.home.catalogue.write() as session:
            activate(session, other, texts=True)

    monkeypatch.setattr("index.ingest.embed_missing_texts", overtake)
    with pytest.raises(GenerationError, match="run it again with that bundle"):
        ingest(indexed, encoder, manifest)
    assert indexed.active("c").generation == other.id


def test_an_incomplete_generation_does_not_take_over(
    indexed: SearchEngine, other_encoder: Encoder, manifest: Manifest
) -> None:
    first = indexed.active("c")
    part = replace(manifest, records=manifest.records[:15])
    with pytest.raises(GenerationError, match=r"lacks 5 of the 20 images .*image-015.*'tiny' stays active"):
        ingest(indexed, other_encoder, part)
    assert indexed.active("c") == first
    report = ingest(indexed, other_encoder, manifest)
    assert report.embedded == 5
    assert indexed.active("c").digest == _digest(other_encoder)


def test_a_picture_changes_by_the_active_bundle_alone_and_is_embedded_again_beside(
    indexed: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> None:
    with pytest.raises(GenerationError):
        ingest(indexed, other_encoder, replace(manifest, records=manifest.records[:15]))
    make_picture(manifest.image_path(manifest.records[0]), seed=77)
    with pytest.raises(GenerationError, match="image-000"):
        ingest(indexed, other_encoder, manifest)
    ingest(indexed, encoder, manifest)
    assert ingest(indexed, other_encoder, manifest).embedded == 6


def test_a_lost_file_comes_back_and_a_damaged_bundle_is_replaced(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    path, weights = indexed.image_path("c", "image-002"), indexed.active("c").bundle / "model.safetensors"
    path.unlink()
    weights.write_bytes(b"")
    assert ingest(indexed, encoder, manifest).unchanged == 20
    assert path.is_file()
    assert weights.stat().st_size > 0


def test_what_a_killed_run_left_is_removed_after_a_day(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    folder = indexed.image_path("c", "image-002").parent
    left = [folder / f".{folder.name}.abc.part", indexed.home.bundles_folder / ".digest.abc.part"]
    left[0].touch()
    left[1].mkdir()
    (left[1] / "model.safetensors").touch()
    ingest(indexed, encoder, manifest)
    assert all(path.exists() for path in left)
    for path in (*left, left[1] / "model.safetensors"):
        os.utime(path, (time.time() - 25 * 3600,) * 2)
    ingest(indexed, encoder, manifest)
    assert not any(path.exists() for path in left)


def test_a_generation_is_counted_only_under_the_lock_of_its_collection(
    indexed: SearchEngine, other_encoder: Encoder, manifest: Manifest
) -> None:
    sent: list[str] = []
    ours = threading.get_ident()

    def add(*arguments: Any) -> None:
        # Threads in the background read meanwhile.
        if threading.get_ident() == ours:
            sent.append(arguments[2] if len(arguments) > 1 else "BEGIN")

    for name in ("before_cursor_execute", "begin"):
        event.listen(Engine, name, add)
    try:
        ingest(indexed, other_encoder, manifest)
    finally:
        for name in ("before_cursor_execute", "begin"):
            event.remove(Engine, name, add)
    taken = next(i for i, text in enumerate(sent) if "generations SET state=" in text and "activ" in text)
    begun = max(i for i, text in enumerate(sent[:taken]) if text == "BEGIN")
    own = sent[begun:taken]
    locked = next(i for i, text in enumerate(own) if text.startswith("UPDATE collections"))
    counted = next(i for i, text in enumerate(own) if "count(" in text and "FROM embeddings" in text)
    assert locked < counted


BATCH = 4
COUNT = 40

_PROGRAM = """
import sys
from pathlib import Path
from index.ingest import ingest_manifest
from tests.index.homes import open_home
from tests.index.killing import tell_batches
from training.common.manifest import read_manifest
from training.models.encoder import load_encoder

home, bundle, data = map(Path, sys.argv[1:4])
encoder = tell_batches(load_encoder(bundle, "cpu"))
ingest_manifest(open_home(home), "c", encoder, read_manifest(data), batch_size=4, show_progress=False)
"""


def _dump(engine: SearchEngine) -> dict[str, list[tuple[str, ...]]]:
    """Everything in the catalogue, apart from what is drawn at random and the times of a generation.

    Notes of files stay for as long as a killed process might still be writing these.
    """
    found = {}
    with engine.home.catalogue.read() as session:
        for table in Table.metadata.sorted_tables:
            if table.name == OrphanRow.__tablename__:
                continue
            drawn = {"uid", "collection_id", "created", "activated"} | (
                {"id"} if table.name == "collections" else set()
            )
            columns = [column for column in table.columns if column.name not in drawn]
            found[table.name] = sorted(
                (tuple(repr(value) for value in row) for row in session.execute(select(*columns))),
            )
    return found


@pytest.fixture
def data(tmp_path: Path) -> Manifest:
    return make_manifest(tmp_path / "data", make_records(COUNT))


@pytest.mark.slow
def test_killed_and_repeated_is_as_never_killed(
    tmp_path: Path, bundle: BundleInfo, encoder: Encoder, data: Manifest
) -> None:
    clean = open_home(tmp_path / "clean")
    ingest(clean, encoder, data, batch_size=BATCH)
    kill_after(4, _PROGRAM, tmp_path / "killed", bundle.folder, data.folder)
    killed = open_home(tmp_path / "killed")
    with killed.home.catalogue.read() as session:
        there = len(session.execute(select(Table.metadata.tables["images"].c.id)).all())
    # Whole batches only: the one being embedded when the kill came left nothing.
    assert there % BATCH == 0
    assert 3 * BATCH <= there <= 4 * BATCH
    report = ingest(killed, encoder, data, batch_size=BATCH)
    assert (report.added, report.unchanged, report.embedded) == (COUNT - there, there, COUNT - there)
    assert _dump(killed) == _dump(clean)
    query = unit_vectors(1, 12)[0]
    pages = [
        engine.search(engine.active("c"), query, SearchRequest(k=COUNT)).hits for engine in (clean, killed)
    ]
    assert pages[0] == pages[1]
    files = [
        sorted(path.relative_to(home) for path in home.rglob("images/originals/**/*") if path.is_file())
        for home in (tmp_path / "clean", tmp_path / "killed")
    ]
    assert [path for path in files[1] if path.suffix != ".part"] == files[0]
    clean.close()
    killed.close()


def test_work_in_hand_is_given_up_where_the_caller_stops() -> None:
    given_up = threading.Event()

    def prepare(item: int) -> bool:
        return item == 0 or given_up.wait(60)

    batches = prefetch(range(3), prepare, 1, threads=2, give_up=given_up.set)
    assert next(batches) == [(0, True)]
    assert not given_up.is_set()
    batches.close()
    assert given_up.is_set()


def test_nothing_is_given_up_where_all_is_taken() -> None:
    assert len(list(prefetch(range(3), bool, 2, give_up=pytest.fail))) == 2
