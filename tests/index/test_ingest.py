"""Runs of indexing: what they write, leave out, replace, move and take over, also when they are killed."""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, event, select

from index import errors
from index.cases import put_list, read_list, save_case
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
from index.erasure import PendingErasure, keep_others_away
from index.feedback import JudgedQuery, judgements, record_judgement
from index.filters.grammar import parse_filter
from index.generations.activation import activate
from index.generations.reindex import generation_for, reindex
from index.ingest import ingest_manifest
from index.search.request import SearchRequest
from index.writes.intake import prefetch
from tests.index.homes import count_rows, in_read, in_write, open_home
from tests.index.killing import kill_after
from tests.index.meanwhile import note_calls
from tests.index.samples import ingest, make_bundle, make_manifest, make_picture, make_records, unit_vectors
from training.common.errors import DataError
from training.common.manifest import Manifest, Record, Rejections, read_manifest
from training.imaging.images import decode_image
from training.models.bundle import BundleInfo
from training.models.encoder import Encoder, load_encoder


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
    tables = (ImageRow, EmbeddingRow, TextRow, AttributeRow, GenerationRow)
    counts = [count_rows(engine, table) for table in tables]
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
        requested = SearchRequest(k=50, filter=parse_filter({"field": field, "eq": value}))
        return [hit.id for hit in engine.search(active, np.ones(12, np.float32), requested).hits]

    assert found("group", letters[:2000]) == [record.id]
    assert found("labels", letters[2000:4000]) == [record.id]
    assert found(letters[:500], letters[1000:3000]) == [record.id]
    assert found(letters[:500], letters[:2001]) == []
    with pytest.raises(errors.FilterError, match="There is no field 'comment'"):
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
    result = indexed.search(
        active, fresh, SearchRequest(k=5, filter=parse_filter({"field": "age", "eq": 99}))
    ).hits
    assert [hit.id for hit in result] == ["image-003"]


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
    with pytest.raises(errors.NoActiveGenerationError):
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
        in_write(indexed, activate, other, texts=True)

    monkeypatch.setattr("index.ingest.embed_missing_texts", overtake)
    with pytest.raises(errors.GenerationError, match="run it again with that bundle"):
        ingest(indexed, encoder, manifest)
    assert indexed.active("c").generation == other.id


def test_an_incomplete_generation_does_not_take_over(
    indexed: SearchEngine, other_encoder: Encoder, manifest: Manifest
) -> None:
    first = indexed.active("c")
    part = replace(manifest, records=manifest.records[:15])
    with pytest.raises(
        errors.GenerationError, match=r"lacks 5 of the 20 images .*image-015.*'tiny' stays active"
    ):
        ingest(indexed, other_encoder, part)
    assert indexed.active("c") == first
    report = ingest(indexed, other_encoder, manifest)
    assert report.embedded == 5
    assert indexed.active("c").digest == _digest(other_encoder)


def test_a_picture_changes_by_the_active_bundle_alone_and_is_embedded_again_beside(
    indexed: SearchEngine, encoder: Encoder, other_encoder: Encoder, manifest: Manifest
) -> None:
    with pytest.raises(errors.GenerationError):
        ingest(indexed, other_encoder, replace(manifest, records=manifest.records[:15]))
    make_picture(manifest.image_path(manifest.records[0]), seed=77)
    with pytest.raises(errors.GenerationError, match="image-000"):
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
    results = {}
    with engine.home.catalogue.read() as session:
        for table in Table.metadata.sorted_tables:
            if table.name == OrphanRow.__tablename__:
                continue
            drawn = {"uid", "collection_id", "created", "activated"} | (
                {"id"} if table.name == "collections" else set()
            )
            columns = [column for column in table.columns if column.name not in drawn]
            results[table.name] = sorted(
                tuple(repr(value) for value in row) for row in session.execute(select(*columns))
            )
    return results


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


def _renamed(manifest: Manifest, folder: Path, names: Mapping[str, str]) -> Manifest:
    """A manifest of the images that are named, with their pictures, under other ids."""
    records = []
    (folder / "images").mkdir(parents=True)
    for record in manifest.records:
        if record.id in names:
            name = names[record.id]
            copyfile(manifest.image_path(record), folder / "images" / f"{name}.png")
            records.append(replace(record, id=name, image=f"images/{name}.png"))
    return make_manifest(folder, sorted(records, key=lambda record: record.id))


def _embeddings(engine: SearchEngine) -> dict[str, bytes]:
    with engine.home.catalogue.read() as session:
        query = select(ImageRow.external_id, EmbeddingRow.vector).join(
            EmbeddingRow, EmbeddingRow.image_id == ImageRow.id
        )
        return {row.external_id: row.vector for row in session.execute(query)}


def _judge(engine: SearchEngine, image: str, query: JudgedQuery, *, relevant: bool = True) -> None:
    in_write(engine, record_judgement, "c", query, image, relevant, limit=100)


def _judged(engine: SearchEngine) -> set[tuple[str, Sequence[str], bool]]:
    with engine.home.catalogue.read() as session:
        return {(one.image, one.query.images, one.relevant) for one in judgements(session, "c")}


def test_a_renamed_folder_keeps_all_that_belongs_to_its_images(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    before = _embeddings(indexed)
    _judge(indexed, "image-003", JudgedQuery(texts=("a dog",)))
    _judge(indexed, "image-004", JudgedQuery(images=("image-003", "image-009")), relevant=False)
    with indexed.home.catalogue.write() as session:
        put_list(session, "c", "list", "List")
        save_case(session, "c", "list", "image-007", "a note", None)
    names = {record.id: record.id.replace("image", "IMAGE") for record in manifest.records}
    report = ingest(indexed, encoder, _renamed(manifest, tmp_path / "new", names), prune=True)
    assert (dict(report.moved), report.embedded, report.absent, report.added) == (names, 0, (), 0)
    assert report.taken == 20
    assert _embeddings(indexed) == {names[name]: vector for name, vector in before.items()}
    assert _judged(indexed) == {("IMAGE-003", (), True), ("IMAGE-004", ("IMAGE-003", "IMAGE-009"), False)}
    _, entries, *_ = in_read(indexed, read_list, "c", "list", limit=10)
    assert [(entry.image, entry.note) for entry in entries] == [("IMAGE-007", "a note")]
    assert indexed.image("c", "IMAGE-003").texts == manifest.records[3].texts
    with pytest.raises(errors.UnknownImageError):
        indexed.image("c", "image-003")


def test_files_that_change_places_keep_their_judgements(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    before = _embeddings(indexed)
    _judge(indexed, "image-001", JudgedQuery(images=("image-002",)))
    _judge(indexed, "image-005", JudgedQuery(images=("image-001",)))
    names = {record.id: record.id for record in manifest.records}
    names |= {"image-001": "image-002", "image-002": "image-001"}
    report = ingest(indexed, encoder, _renamed(manifest, tmp_path / "new", names))
    assert (len(report.moved), report.embedded, report.replaced) == (2, 0, ())
    assert _judged(indexed) == {("image-002", ("image-001",), True), ("image-005", ("image-002",), True)}
    assert _embeddings(indexed)["image-001"] == before["image-002"]


def test_files_that_are_numbered_anew_move_and_the_one_that_is_gone_is_named(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    """The first file is deleted, and each of the others takes the number before its own."""
    before = _embeddings(indexed)
    _judge(indexed, "image-000", JudgedQuery(texts=("gone",)))
    _judge(indexed, "image-001", JudgedQuery(texts=("kept",)))
    names = {f"image-{n:03d}": f"image-{n - 1:03d}" for n in range(1, 20)}
    report = ingest(indexed, encoder, _renamed(manifest, tmp_path / "new", names), prune=True)
    assert (len(report.moved), report.embedded, report.absent, report.pruned) == (19, 0, (), 0)
    assert report.replaced == ("image-000",)
    assert _judged(indexed) == {("image-000", (), True)}
    assert _embeddings(indexed) == {new: before[name] for name, new in names.items()}


def _copies(folder: Path, names: Sequence[str]) -> Manifest:
    """A manifest of equal files with these ids, and of one that stays."""
    records = [Record(name, f"images/{name.rpartition('-')[2]}", "train") for name in names]
    for record in records:
        make_picture(folder / record.image, 7)
    make_picture(folder / "images/own.png", 8)
    return make_manifest(folder, [*records, Record("own", "images/own.png", "train")])


@pytest.mark.parametrize(
    "names",
    [
        ("old-a.png", "new-a.png new-copy.png", "old-a.png>new-a.png", "new-copy.png", ""),
        ("old-a.png", "b-a.png c-a.png", "", "", "b-a.png c-a.png"),
        ("old-a.png", "new-b.png", "old-a.png>new-b.png", "", ""),
        (
            "old-a.png old-b.png",
            "new-a.png new-b.png new-c.png",
            "old-a.png>new-a.png old-b.png>new-b.png",
            "new-c.png",
            "",
        ),
        ("old-a.png old-b.png", "new-a.png new-c.png", "old-a.png>new-a.png", "", "new-c.png"),
    ],
)
def test_a_file_that_moved_and_was_copied_has_copies(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path, names: Sequence[str]
) -> None:
    former, new, moved, copies, ambiguous = names
    ingest(engine, encoder, _copies(tmp_path / "a", former.split()))
    report = ingest(engine, encoder, _copies(tmp_path / "b", new.split()))
    assert report.moved == dict(one.split(">") for one in moved.split())
    assert report.copies == tuple(copies.split())
    assert report.ambiguous == tuple(ambiguous.split())
    assert report.added == len(report.copies) + len(report.ambiguous)


def test_equal_files_move_by_their_names_and_others_are_named(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path
) -> None:
    ingest(engine, encoder, _copies(tmp_path / "a", ["old-one.png", "old-two.png", "old-three.png"]))
    report = ingest(engine, encoder, _copies(tmp_path / "b", ["new-two.png", "new-x.png", "new-y.png"]))
    assert report.moved == {"old-two.png": "new-two.png"}
    assert report.ambiguous == ("new-x.png", "new-y.png")
    assert report.absent == ("old-one.png", "old-three.png")
    assert report.added == 2


def test_what_is_being_erased_gets_no_other_id(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    with keep_others_away(tmp_path / "home"), indexed.home.catalogue.read() as session:
        PendingErasure.begin(tmp_path / "home", session, "c", ["image-004"])
    names = {record.id: f"other-{record.id}" for record in manifest.records}
    report = ingest(indexed, encoder, _renamed(manifest, tmp_path / "new", names))
    assert (len(report.moved), report.absent) == (19, ("image-004",))


@pytest.mark.parametrize(
    ("stay", "limit", "removed"),
    [(21, None, None), (24, None, 10), (24, 9, None), (21, 13, 13), (21, 0.3, None), (21, 0.5, 13)],
)
def test_pruning_stops_above_its_limit_before_anything_is_changed(
    engine: SearchEngine,
    encoder: Encoder,
    tmp_path: Path,
    stay: int,
    limit: float | None,
    removed: int | None,
) -> None:
    records = [
        replace(record, metadata={"folder": "nas" if number > 20 else "disk"})
        for number, record in enumerate(make_records(34))
    ]
    manifest = make_manifest(tmp_path / "data", records)
    ingest(engine, encoder, manifest)
    make_picture(manifest.folder / "images/new.png", 100)
    shorter = make_manifest(
        manifest.folder, [*manifest.records[:stay], Record("new", "images/new.png", "train")]
    )
    if removed is not None:
        assert ingest(engine, encoder, shorter, prune=True, prune_limit=limit).pruned == removed
        assert engine.collection("c").count == 34 - removed + 1
        return
    most = 9 if limit == 9 else 10
    reported = rf"would remove {34 - stay} of the 34 .* \({34 - stay} in 'nas'\), .* the limit of {most}; .*"
    with pytest.raises(DataError, match=rf"{reported} give --prune-limit {34 - stay}\.$"):
        ingest(engine, encoder, shorter, prune=True, prune_limit=limit)
    assert engine.collection("c").count == 34
    with pytest.raises(errors.UnknownImageError):
        engine.image("c", "new")


def _shorter(manifest: Manifest, count: int) -> Manifest:
    return make_manifest(manifest.folder, manifest.records[:count])


def test_what_the_manifest_no_longer_has_is_counted_and_goes_with_its_files_where_that_is_asked_for(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.catalogue.lookup.AT_ONCE", 2)
    saved = note_calls(monkeypatch, SearchEngine, "save_snapshot", lambda _, collection: collection)
    assert ingest(indexed, encoder, manifest).absent == ()
    gone = {name: indexed.image_path("c", name) for name in (f"image-{n:03d}" for n in range(15, 20))}
    shorter = _shorter(manifest, 15)
    report = ingest(indexed, encoder, shorter)
    assert (report.absent, report.pruned, report.unchanged) == (tuple(gone), 0, 15)
    assert all(indexed.image("c", name).id == name for name in gone)
    # Where nothing has changed, no snapshot is written.
    assert saved == []
    report = ingest(indexed, encoder, shorter, prune=True)
    assert (report.pruned, report.unchanged, len(report.absent)) == (5, 15, 5)
    assert saved == ["c"]
    for name, path in gone.items():
        with pytest.raises(errors.UnknownImageError):
            indexed.image("c", name)
        assert not path.exists()
    assert indexed.collection("c").count == 15
    again = ingest(indexed, encoder, shorter, prune=True)
    assert (again.pruned, again.absent) == (0, ())


def test_each_step_shows_how_far_it_is(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[Any] = []

    @contextmanager
    def progress_bar(description: str, total: int, *, shown: bool) -> Iterator[Any]:
        advanced: list[tuple[int, str]] = []
        bars.append((description, total, shown, advanced))
        yield SimpleNamespace(advance=lambda count, note="": advanced.append((count, note)))

    monkeypatch.setattr("index.ingest.progress_bar", progress_bar)
    manifest.image_path(manifest.records[9]).write_bytes(b"no image")
    allowed = replace(manifest, rejections=Rejections(20, 0.1))
    ingest_manifest(engine, "c", encoder, allowed, batch_size=8)
    ingest_manifest(engine, "c", encoder, _shorter(manifest, 8), batch_size=8, prune_limit=20, prune=True)
    assert bars == [
        ("Indexing c", 20, True, [(8, ""), (8, "1 left out"), (4, "1 left out")]),
        ("Comparing with c", 8, True, [(8, "")]),
        ("Indexing c", 8, True, [(8, "")]),
        ("Removing from c", 11, True, [(11, "")]),
    ]


def test_a_stopped_pruning_goes_on(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.catalogue.lookup.AT_ONCE", 2)
    ingest(engine, encoder, manifest)
    shorter = _shorter(manifest, 15)
    with monkeypatch.context() as stopped:

        def stop(seconds: float) -> None:
            raise KeyboardInterrupt

        stopped.setattr("index.ingest.sleep", stop)
        with pytest.raises(KeyboardInterrupt):
            ingest(engine, encoder, shorter, prune=True)
    assert engine.collection("c").count == 18
    assert ingest(engine, encoder, shorter, prune=True).pruned == 3
    assert engine.collection("c").count == 15


def test_images_of_other_splits_and_unusable_lines_stay(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    (manifest.folder / manifest.records[4].image).unlink()
    lines = [json.loads(line) for line in (manifest.folder / "manifest.jsonl").read_text().splitlines()]
    lines[5]["split"] = "no split"
    del lines[6]
    (manifest.folder / "manifest.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    read = read_manifest(manifest.folder, max_rejected=0.2).split("train")
    report = ingest(indexed, encoder, read, prune=True)
    assert (report.absent, report.pruned) == (("image-006",), 1)
    assert (report.found, report.refused_lines) == (19, 2)
    # They stay as they were.
    assert report.outdated == ("image-004", "image-005")
    assert indexed.image("c", "image-004").texts == manifest.records[4].texts
    assert report.found == report.taken + report.refused_lines + len(report.rejections) + report.left_out
    assert indexed.collection("c").count == 19


def test_nothing_is_removed_by_a_manifest_that_cannot_tell(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    other = [replace(record, id=f"other-{record.id}") for record in make_records(4)]
    for number, record in enumerate(other, 100):
        make_picture(tmp_path / "other" / record.image, number)
    with pytest.raises(DataError, match="None of the 20 images of 'c' is in the manifest"):
        ingest(indexed, encoder, make_manifest(tmp_path / "other", other), prune=True)
    with (manifest.folder / "manifest.jsonl").open("a") as file:
        file.write('{"id": "image-0')
    with pytest.raises(DataError, match=r"Lines of the manifest in .* whose id cannot be read: 1\."):
        ingest(indexed, encoder, read_manifest(manifest.folder, max_rejected=0.1), prune=True)
    assert indexed.collection("c").count == 20


def test_another_bundle_takes_over_without_the_images_that_go(
    indexed: SearchEngine, manifest: Manifest, tmp_path: Path
) -> None:
    other = load_encoder(make_bundle(tmp_path / "other", seed=5).folder, "cpu")
    shorter = _shorter(manifest, 12)
    with pytest.raises(errors.IncompleteGenerationError) as refused:
        ingest(indexed, other, shorter)
    assert refused.value.__notes__ == ["8 images of it are not in the manifest: --prune removes them."]
    report = ingest(indexed, other, shorter, prune=True)
    assert report.pruned == 8
    assert report.took_over is not None
    assert indexed.collection("c").count == 12


def test_texts_that_the_encoder_cuts_are_counted(
    engine: SearchEngine, encoder: Encoder, manifest: Manifest
) -> None:
    long = " ".join(["effusion"] * 200)
    records = [
        replace(record, texts=(long, f"{long} {number}", "short") if number < 3 else ("short",))
        for number, record in enumerate(manifest.records)
    ]
    # The same text of three images is one text.
    assert ingest(engine, encoder, make_manifest(manifest.folder, records)).truncated == 4
    assert ingest(engine, encoder, manifest).truncated == 0
