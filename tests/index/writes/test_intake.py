"""Indexed files lose position, names and comments; films are decoded by processes of which none is left."""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from index.engine import SearchEngine
from index.generations.reindex import generation_for, reindex
from index.ingest import IngestReport
from tests.dicom_films import encoded, make_film
from tests.index.samples import ingest, make_bundle, make_manifest, make_records
from tests.training.imaging.metadata_files import FILES, SECRET, jpeg
from tests.training.imaging.processes.decoding import (
    PATIENCE,
    decoders_of,
    is_there,
    kill_a_decoder_at_work,
    slow_film,
    wait_until,
)
from training.common.manifest import Manifest, Record, read_manifest, write_manifest
from training.common.rejections import Rejections
from training.imaging.images import decode_image
from training.models.bundle import BundleInfo
from training.models.encoder import Encoder, load_encoder


@pytest.fixture
def photographs(tmp_path: Path) -> Manifest:
    """Files of every format, full of metadata."""
    folder = tmp_path / "photographs"
    folder.mkdir()
    records = []
    for record, (name, make) in zip(make_records(len(FILES)), FILES.items(), strict=True):
        (folder / name).write_bytes(make())
        records.append(replace(record, id=name, image=name))
    return make_manifest(folder, records)


def counts(report: IngestReport) -> tuple[int, int, int, int]:
    assert not len(report.rejections)
    return report.added, report.updated, report.unchanged, report.embedded


def test_stored_files_show_the_same_say_nothing_and_are_known_again(
    engine: SearchEngine, encoder: Encoder, photographs: Manifest
) -> None:
    assert counts(ingest(engine, encoder, photographs)) == (len(FILES), 0, 0, len(FILES))
    for record in photographs.records:
        stored = engine.image_path("c", record.id)
        assert SECRET not in stored.read_bytes()
        assert stored.name == engine.image("c", record.id).sha256
        source = photographs.image_path(record)
        assert decode_image(stored).tobytes() == decode_image(source).tobytes()
    # Also one that the disk has lost.
    stored = engine.image_path("c", "jpeg")
    content = stored.read_bytes()
    stored.unlink()
    assert counts(ingest(engine, encoder, photographs)) == (0, 0, len(FILES), 0)
    assert stored.read_bytes() == content
    # Another picture is another one, although its metadata is the same.
    record = next(record for record in photographs.records if record.id == "jpeg")
    photographs.image_path(record).write_bytes(jpeg(progressive=True, mode="L"))
    assert counts(ingest(engine, encoder, photographs)) == (0, 1, len(FILES) - 1, 1)


def test_a_setting_keeps_files_whole_which_lose_it_later_without_being_embedded_again(
    engine: SearchEngine, encoder: Encoder, photographs: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a home of an older version is indexed again, and back again."""
    assert any(record.texts for record in photographs.records)
    kept = partial(ingest, engine, encoder, photographs, keep_metadata=True)
    assert counts(kept()) == (len(FILES), 0, 0, len(FILES))
    assert counts(kept()) == (0, 0, len(FILES), 0)
    # Neither images nor texts go through the encoder again.
    monkeypatch.delattr(Encoder, "embed_texts")
    vectors = {record.id: engine.image("c", record.id) for record in photographs.records}
    assert counts(ingest(engine, encoder, photographs)) == (0, len(FILES), 0, 0)
    assert all(SECRET not in path.read_bytes() for path in engine.home.store.originals())
    assert len(list(engine.home.store.originals())) == len(FILES)
    assert {key: image.texts for key, image in vectors.items()} == {
        record.id: engine.image("c", record.id).texts for record in photographs.records
    }
    assert counts(ingest(engine, encoder, photographs)) == (0, 0, len(FILES), 0)
    assert counts(kept()) == (0, len(FILES), 0, 0)
    for record in photographs.records:
        assert engine.image_path("c", record.id).read_bytes() == photographs.image_path(record).read_bytes()


def test_another_bundle_takes_over_files_that_were_stored_whole(
    engine: SearchEngine, encoder: Encoder, other_encoder: Encoder, photographs: Manifest
) -> None:
    """As when a home of an older version gets a new model: no picture has changed, only its metadata."""
    ingest(engine, encoder, photographs, keep_metadata=True)
    report = ingest(engine, other_encoder, photographs)
    assert counts(report) == (0, len(FILES), 0, len(FILES))
    assert report.took_over is not None
    assert engine.active("c").generation == report.took_over.id
    assert all(SECRET not in path.read_bytes() for path in engine.home.store.originals())
    assert len(list(engine.home.store.originals())) == len(FILES)
    assert counts(ingest(engine, other_encoder, photographs)) == (0, 0, len(FILES), 0)


def test_a_file_that_cannot_be_followed_is_left_out_with_a_reason(
    engine: SearchEngine, encoder: Encoder, photographs: Manifest
) -> None:
    record = next(record for record in photographs.records if record.id == "png-deep")
    path = photographs.image_path(record)
    path.write_bytes(path.read_bytes().replace(b"prVt", b"PrVt"))
    assert decode_image(path).size == (24, 40)
    (refused,) = ingest(engine, encoder, photographs).rejections.items
    assert "kind PrVt, so that its metadata cannot be removed" in refused.reason


FILMS: Final = 6

_INDEX = """
import sys
from pathlib import Path
from index.ingest import ingest_manifest
from tests.index.homes import open_home
from training.common.manifest import read_manifest
from training.models.encoder import load_encoder

home, data, bundle = map(Path, sys.argv[1:])
engine = open_home(home)
ingest_manifest(engine, "films", load_encoder(bundle, "cpu"), read_manifest(data), show_progress=False)
"""


def films_in(folder: Path, contents: list[bytes]) -> Manifest:
    folder.mkdir()
    records = [Record(id=str(number), image=f"{number}.dcm", split="test") for number in range(len(contents))]
    for record, content in zip(records, contents, strict=True):
        (folder / record.image).write_bytes(content)
    write_manifest(folder, records)
    manifest = read_manifest(folder)
    return Manifest(folder, manifest.records, Rejections(len(records), max_share=0.5))


def test_vectors_of_films_are_those_of_pixels_decoded_here(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path
) -> None:
    manifest = films_in(tmp_path / "data", [encoded(make_film(number)) for number in range(4)])
    report = ingest(engine, encoder, manifest, "films")
    assert (report.added, report.embedded, len(report.rejections)) == (4, 4, 0)
    active = engine.active("films")
    for record in manifest.records:
        pixels = encoder.prepare_image(decode_image(manifest.image_path(record)))
        expected = encoder.embed_images(pixels[None])[0]
        np.testing.assert_allclose(engine.vector_of(active, record.id), expected, atol=1e-3)
    assert decoders_of(os.getpid()) == []


def test_no_process_begins_where_there_is_no_film(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    manifest = make_manifest(tmp_path / "data", make_records(4))
    assert ingest(engine, encoder, manifest).added == 4


@pytest.mark.slow
def test_a_killed_process_costs_an_indexing_nothing(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path
) -> None:
    manifest = films_in(tmp_path / "data", [slow_film()] * FILMS)
    with ThreadPoolExecutor(1) as killer:
        killed = killer.submit(kill_a_decoder_at_work, os.getpid())
        report = ingest(engine, encoder, manifest, "films")
        assert not is_there(killed.result(PATIENCE))
    assert (report.added, len(report.rejections)) == (FILMS, 0)
    assert decoders_of(os.getpid()) == []


@pytest.mark.slow
def test_a_killed_process_costs_a_reindexing_nothing(
    engine: SearchEngine, encoder: Encoder, tmp_path: Path
) -> None:
    manifest = films_in(tmp_path / "data", [slow_film()] + [encoded(make_film(n)) for n in range(1, 4)])
    ingest(engine, encoder, manifest, "films")
    other = load_encoder(make_bundle(tmp_path / "other", seed=5).folder, "cpu")
    generation = generation_for(engine.home, "films", other)
    with ThreadPoolExecutor(1) as killer:
        killed = killer.submit(kill_a_decoder_at_work, os.getpid())
        assert reindex(engine, generation, other, show_progress=False) == 4
        assert not is_there(killed.result(PATIENCE))
    assert decoders_of(os.getpid()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_where_an_indexing_is_stopped(
    bundle: BundleInfo, tmp_path: Path, number: signal.Signals
) -> None:
    films_in(tmp_path / "data", [slow_film()] * 3 * FILMS)
    shutil.copytree(bundle.folder, tmp_path / "bundle")
    folders = [str(tmp_path / name) for name in ("home", "data", "bundle")]
    with subprocess.Popen([sys.executable, "-c", _INDEX, *folders], stderr=subprocess.PIPE) as process:
        wait_until(lambda: bool(decoders_of(process.pid)))
        pids = decoders_of(process.pid)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == -number
    wait_until(lambda: not any(is_there(pid) for pid in pids))
