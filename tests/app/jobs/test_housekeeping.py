"""Folders of jobs that ended long ago go, but for those that something still needs."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from app.cli.main import build
from app.engine import open_engine
from app.jobs.folder import JobFolder
from app.jobs.housekeeping import remove_old_folders
from index.catalogue.tables import JobRow
from index.ingest import ingest_manifest
from index.jobs import claim_job, end_job
from tests.index.samples import make_bundle, make_manifest, make_records
from tests.jobs import Jobs, opened_jobs
from training.models.encoder import load_encoder

DAYS = 90


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with opened_jobs(tmp_path / "home", None) as opened:
        yield opened


def _job(jobs: Jobs, kind: str, days: float | None) -> int:
    """A job with a folder that ended so many days ago, or that is at work."""
    number = jobs.give(kind)
    with jobs.catalogue.write() as session:
        claimed = claim_job(session, number, "worker")
        assert claimed is not None
        JobFolder.of(jobs.settings, number).begin(claimed)
        if days is not None:
            end_job(session, number, "worker", "done")
            ended = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="microseconds")
            session.execute(update(JobRow).where(JobRow.id == number).values(ended=ended))
    return number


def _kept(jobs: Jobs) -> set[int]:
    return {int(folder.name) for folder in (jobs.settings.home / "jobs").iterdir()}


def test_only_folders_of_jobs_that_ended_long_ago_go(jobs: Jobs) -> None:
    recent, running = _job(jobs, "tidy", DAYS - 0.5), _job(jobs, "train", None)
    old, failed = _job(jobs, "tidy", DAYS + 0.5), _job(jobs, "train", DAYS + 0.5)
    waiting = jobs.give("train")
    (jobs.settings.home / "jobs" / str(waiting)).mkdir()
    for_ever = jobs.settings.model_copy(update={"keep_jobs_days": 0})
    assert remove_old_folders(for_ever, jobs.catalogue) == []
    assert sorted(remove_old_folders(jobs.settings, jobs.catalogue)) == [old, failed]
    assert _kept(jobs) == {recent, running, waiting}
    assert jobs.get(old).state == "done"
    assert remove_old_folders(jobs.settings, jobs.catalogue) == []


def test_a_folder_that_a_process_still_writes_to_stays(jobs: Jobs) -> None:
    old = _job(jobs, "tidy", DAYS + 1)
    lock = JobFolder.of(jobs.settings, old).lock()
    assert lock is not None
    assert remove_old_folders(jobs.settings, jobs.catalogue) == []
    os.close(lock)
    assert remove_old_folders(jobs.settings, jobs.catalogue) == [old]


def test_what_lay_in_the_place_of_a_folder_goes_with_it(jobs: Jobs) -> None:
    folders = jobs.settings.home / "jobs"
    for number in range(1, 4):
        (folders / str(number)).mkdir(parents=True)
    ages = (DAYS + 1, DAYS + 1, DAYS - 1)
    assert [_job(jobs, "tidy", age) for age in ages] == [1, 2, 3]
    (held,) = JobFolder(folders / "2").aside()
    lock = held.lock()
    assert lock is not None
    assert sorted(remove_old_folders(jobs.settings, jobs.catalogue)) == [1, 2]
    (recent,) = JobFolder(folders / "3").aside()
    assert {path.name for path in folders.iterdir()} == {"3", recent.path.name, held.path.name}
    os.close(lock)
    assert remove_old_folders(jobs.settings, jobs.catalogue) == [2]
    assert {path.name for path in folders.iterdir()} == {"3", recent.path.name}


def test_registered_models_stay_and_the_command_says_what_went(jobs: Jobs, tmp_path: Path) -> None:
    used = make_bundle(tmp_path / "used", seed=0)
    unused = make_bundle(tmp_path / "unused", seed=1)
    engine = open_engine(jobs.settings)
    manifest = make_manifest(tmp_path / "data", make_records(3))
    ingest_manifest(engine, "c", load_encoder(used.folder, "cpu"), manifest, show_progress=False)
    engine.close()
    numbers = {}
    for kind, place in (("train", "run/bundle"), ("retrain", "retraining/run/bundle")):
        for bundle in (used, unused):
            number = numbers[kind, bundle.digest] = _job(jobs, kind, DAYS + 1)
            shutil.copytree(bundle.folder, JobFolder.of(jobs.settings, number).path / place)
    # Of a job of another catalogue: its kind is not known any more.
    aside = jobs.settings.home / "jobs" / f"{numbers['train', unused.digest]}.before-then"
    shutil.copytree(used.folder, aside / "retraining/run/bundle")
    gone = numbers["train", unused.digest], numbers["retrain", unused.digest]
    home = ("--home", str(jobs.settings.home))
    said = CliRunner().invoke(build(), ["tidy", *home])
    assert said.exit_code == 0, said.output
    assert f"Removed what was written by job {max(gone)}, {min(gone)}." in said.output
    assert (aside / "retraining/run/bundle").is_dir()
    shutil.rmtree(aside)
    assert _kept(jobs) == {numbers["train", used.digest], numbers["retrain", used.digest]}
    log = CliRunner().invoke(build(), ["jobs", "log", str(gone[0]), *home])
    assert (log.exit_code, log.output) == (0, "It is not kept any more.\n")
