"""DICOM films are indexed by decoding processes: a killed one costs nothing, and none is left."""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from index.engine import SearchEngine
from index.generations.reindex import generation_for, reindex
from tests.dicom_films import encoded, make_film
from tests.index.samples import ingest, make_bundle, make_manifest, make_records
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
