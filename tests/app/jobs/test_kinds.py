"""Kinds of jobs: their commands and results, and that each makes what it is for."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from app.jobs.folder import JobFolder
from app.jobs.kinds import command_line, read_result
from index.catalogue.jobs import Job
from index.engine import SearchEngine
from index.search.request import SearchRequest
from tests.e2e.work import TINY
from tests.jobs import Jobs
from training.common.manifest import read_manifest
from training.evaluation.embedding import embed_manifest
from training.evaluation.evaluate import EvaluationReport, label_template_of, measure
from training.models.bundle import read_bundle
from training.models.encoder import load_encoder


def test_a_training_goes_on_from_its_checkpoint_and_begins_anew_without_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = ["recipe", "--data", "d"]
    begun = ["train", "--out", str(run), "--processes", "2", *given]
    assert command_line("train", given, tmp_path, 2) == begun
    # A process that is killed before its first checkpoint leaves a folder in which no run could begin.
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / ".last.pt.part").touch()
    assert command_line("train", given, tmp_path, 2) == begun
    assert not run.exists()
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "last.pt").touch()
    assert command_line("train", given, tmp_path, 2) == [*begun[:5], "--resume", *given]
    assert command_line("tidy", [], tmp_path, 2) == ["tidy"]
    assert command_line("pacs_sync", ["films"], tmp_path, 2) == ["pacs", "sync", "films"]


def test_a_result_is_read_where_there_is_one(tmp_path: Path) -> None:
    assert read_result("evaluate", tmp_path) is None
    (tmp_path / "report.json").write_text('{"rsum": 1}')
    assert read_result("evaluate", tmp_path) == {"rsum": 1}
    assert read_result("tidy", tmp_path) is None
    (tmp_path / "report.json").write_text('{"rsum": "' + "x" * 100_000 + '"}')
    assert read_result("evaluate", tmp_path) is None


SETS = [part for setting in (*TINY, "train.epochs=1") for part in ("--set", setting)]
# Vectors are kept in half precision.
NEAR = 2e-3


@pytest.fixture
def photos(scenes: Path, tmp_path: Path) -> Path:
    """A folder in which `photos` has the images and `photos.csv` says what they show."""
    records = read_manifest(scenes).records
    (tmp_path / "photos").symlink_to(scenes)
    with (tmp_path / "photos.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("image", "text", "labels", "split"))
        for record in records:
            for text in record.texts:
                table.writerow((record.image, text, ";".join(record.labels), record.split))
    return tmp_path


def _done(jobs: Jobs, kind: str, *arguments: object, folder: Path) -> Job:
    """A job that has been given and has succeeded."""
    job = jobs.wait(jobs.give(kind, *arguments, folder=folder))
    assert (job.state, job.error, job.attempts) == ("done", None, 1), jobs.log(job.id)
    return job


def _check_search(engine: SearchEngine, bundle: Path, data: Path) -> None:
    """The collection has all images, and a search finds those that come first by their cosines."""
    encoder, manifest = load_encoder(bundle, "cpu"), read_manifest(data)
    embedded = embed_manifest(encoder, manifest, show_progress=False)
    active = engine.active("photos")
    assert (active.digest, active.count) == (read_bundle(bundle).digest, len(manifest.records))
    for text in ("two sailboats on a lake", manifest.records[0].texts[0]):
        query = encoder.embed_texts([text]).vectors[0]
        cosines = embedded.image_vectors @ query
        hits = engine.search(active, query, SearchRequest(k=10)).hits
        assert [hit.score for hit in hits] == pytest.approx(np.sort(cosines)[::-1][:10].tolist(), abs=NEAR)
        by_id = {record.id: cosine for record, cosine in zip(embedded.records, cosines, strict=True)}
        assert [hit.score for hit in hits] == pytest.approx([by_id[hit.id] for hit in hits], abs=NEAR)


# They begin many processes, each of which takes seconds to import what it needs.
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_folder_of_images_becomes_a_collection_and_figures(
    jobs: Jobs, engine: SearchEngine, scenes: Path, photos: Path
) -> None:
    drawn = read_manifest(scenes).records
    with jobs.worker():
        imported = _done(jobs, "import", "folder", "photos", "data", "--table", "photos.csv", folder=photos)
        assert f"Wrote {len(drawn)} records" in jobs.log(imported.id)
        manifest = read_manifest(photos / "data")
        assert [(record.texts, record.split) for record in manifest.records] == [
            (record.texts, record.split) for record in drawn
        ]

        trained = _done(jobs, "train", "demo-scenes", "--data", "data", *SETS, folder=photos)
        bundle = JobFolder.for_job(jobs.settings, trained.id).path / "run" / "bundle"
        assert trained.result == json.loads((bundle / "metrics.json").read_text())
        assert trained.result

        indexed = _done(jobs, "index", "photos", "--bundle", bundle, "--data", "data", folder=photos)
        assert f"taken ({len(drawn)} added" in jobs.log(indexed.id)
        _check_search(engine, bundle, photos / "data")

        evaluated = _done(jobs, "evaluate", bundle, "--data", "data", "--device", "cpu", folder=photos)
    encoder = load_encoder(bundle, "cpu", for_pairs=True)
    held_out = read_manifest(photos / "data").split("test")
    assert encoder.info is not None
    figures = EvaluationReport.model_validate(evaluated.result)
    expected = measure(
        encoder,
        embed_manifest(encoder, held_out, show_progress=False),
        label_template=label_template_of(encoder.info.recipe),
        factors=True,
    )
    assert figures.images == len(held_out.records) > 0
    assert figures.metrics() == pytest.approx(expected.metrics(), rel=1e-4)
    assert "rsum" in figures.metrics()
