"""The folder of a job: its lock, its progress, and that it goes long after its end unless it is needed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from app.generations.build import drop_superseded_generations
from app.jobs.folder import ATTEMPT, JobFolder, remove_old_folders
from index.catalogue.collections import now
from index.catalogue.jobs import claim_job, end_job
from index.catalogue.tables import GenerationRow, JobRow
from index.engine import SearchEngine
from index.generations.reindex import generation_for
from index.ingest import ingest_manifest
from tests.app.commands import run_command
from tests.index.samples import make_bundle, make_manifest, make_records
from tests.jobs import Jobs, opened_jobs
from training.models.encoder import load_encoder


def test_the_lock_is_held_until_the_last_process_that_has_it_ends(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    lock = folder.lock()
    assert lock is not None
    assert folder.lock() is None
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,)
    ) as process:
        os.close(lock)
        assert folder.lock() is None
        process.communicate(b"\n")
    again = folder.lock()
    assert again is not None
    os.close(again)


def test_the_last_sentence_is_of_the_latest_attempt(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    first = f"{ATTEMPT}1 by a\nrecoquest: Stopped.\n{ATTEMPT}2 by b\nTraining\n"
    folder.log.write_text(first)
    assert folder.last_sentence() is None
    folder.log.write_text(f"{first}recoquest: One.\n{'.' * 100_000}\nrecoquest: Two.\n")
    assert folder.last_sentence() == "Two."


def test_progress_that_is_none_is_none(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    assert folder.read_progress() is None
    for content in ("", "[1]", '{"done"'):
        folder.progress.write_text(content)
        assert folder.read_progress() is None


DAYS = 90


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with opened_jobs(tmp_path / "home", None) as opened:
        yield opened


def _job(jobs: Jobs, kind: str, days: float | None, result: dict[str, object] | None = None) -> int:
    """A job with a folder that ended so many days ago, or that is at work."""
    number = jobs.give(kind)
    with jobs.catalogue.write() as session:
        claimed = claim_job(session, number, "worker")
        assert claimed is not None
        JobFolder.for_job(jobs.settings, number).begin(claimed)
        if days is not None:
            end_job(session, number, "worker", "done", result=result)
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
    lock = JobFolder.for_job(jobs.settings, old).lock()
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


def test_registered_models_stay_and_the_command_says_what_went(
    jobs: Jobs, engine: SearchEngine, tmp_path: Path
) -> None:
    used = make_bundle(tmp_path / "used", seed=0)
    unused = make_bundle(tmp_path / "unused", seed=1)
    manifest = make_manifest(tmp_path / "data", make_records(3))
    ingest_manifest(engine, "c", load_encoder(used.folder, "cpu"), manifest, show_progress=False)
    numbers = {}
    for kind, position in (("train", "run/bundle"), ("retrain", "retraining/run/bundle")):
        for bundle in (used, unused):
            number = numbers[kind, bundle.digest] = _job(jobs, kind, DAYS + 1)
            shutil.copytree(bundle.folder, JobFolder.for_job(jobs.settings, number).path / position)
    # Of a job of another catalogue: its kind is not known any more.
    aside = jobs.settings.home / "jobs" / f"{numbers['train', unused.digest]}.before-then"
    shutil.copytree(used.folder, aside / "retraining/run/bundle")
    gone = numbers["train", unused.digest], numbers["retrain", unused.digest]
    home = jobs.settings.home
    message = run_command("tidy", home=home)
    assert f"Removed what was written by job {max(gone)}, {min(gone)}." in message.output
    assert (aside / "retraining/run/bundle").is_dir()
    shutil.rmtree(aside)
    assert _kept(jobs) == {numbers["train", used.digest], numbers["retrain", used.digest]}
    assert run_command("jobs", "log", gone[0], home=home).output == "It is not kept any more.\n"


class _Retrained:
    """Collections with an active generation each, and jobs that have retrained their models."""

    def __init__(self, jobs: Jobs, engine: SearchEngine, folder: Path) -> None:
        self._jobs, self._engine, self._folder = jobs, engine, folder
        encoder = load_encoder(make_bundle(folder / "first", seed=0).folder, "cpu")
        manifest = make_manifest(folder / "data", make_records(3))
        for collection in ("c", "d"):
            ingest_manifest(engine, collection, encoder, manifest, show_progress=False)

    def retrain(self, collection: str, days: float, seed: int) -> int:
        """The generation that a job that ended so many days ago has left waiting, its model in its folder."""
        bundle = make_bundle(self._folder / f"{collection}-{seed}-{days}", seed=seed)
        generation = generation_for(self._engine.home, collection, load_encoder(bundle.folder, "cpu")).id
        result = {"collection": collection, "generation": generation, "bundle": bundle.digest}
        number = _job(self._jobs, "retrain", days, {"verdict": "waiting", **result})
        position = JobFolder.for_job(self._jobs.settings, number).path / "retraining/run/bundle"
        shutil.copytree(bundle.folder, position)
        return generation

    def generations(self) -> set[int]:
        with self._engine.home.catalogue.read() as session:
            return set(session.execute(select(GenerationRow.id)).scalars())


@pytest.fixture
def retrained(jobs: Jobs, engine: SearchEngine, tmp_path: Path) -> _Retrained:
    return _Retrained(jobs, engine, tmp_path)


def test_generations_that_wait_in_vain_go_with_their_models_and_folders(
    jobs: Jobs, retrained: _Retrained
) -> None:
    active = retrained.generations()
    superseded = retrained.retrain("c", DAYS + 9, seed=1)
    was_active = retrained.retrain("c", DAYS + 8, seed=2)
    with jobs.catalogue.write() as session:
        row = update(GenerationRow).where(GenerationRow.id == was_active)
        session.execute(row.values(state="retired", activated=now()))
    again = retrained.retrain("c", DAYS + 7, seed=3)
    recent = retrained.retrain("c", DAYS - 1, seed=4)
    # A retraining that learned the same as one before has left the same generation.
    assert retrained.retrain("c", DAYS - 2, seed=3) == again
    newest = retrained.retrain("c", DAYS - 3, seed=5)
    # No later job of this collection has made one.
    only = retrained.retrain("d", DAYS + 1, seed=6)
    _job(jobs, "retrain", DAYS - 1)
    _job(jobs, "retrain", DAYS - 1, {"verdict": "rejected", "collection": "d", "generation": None})
    home = jobs.settings.home
    with pytest.MonkeyPatch.context() as for_ever:
        for_ever.setenv("RECOQUEST_KEEP_JOBS_DAYS", "0")
        assert run_command("tidy", home=home).output == "Garbage is removed.\n"
    message = run_command("tidy", home=home)
    assert f"c: dropped generation {superseded}, which was never activated.\n" in message.output
    assert message.output.count("dropped") == 1
    assert retrained.generations() == {*active, was_active, again, recent, newest, only}
    assert _kept(jobs) == set(range(2, 10))


def test_of_two_old_ones_the_latest_stays(retrained: _Retrained, jobs: Jobs, engine: SearchEngine) -> None:
    active = retrained.generations()
    first, last = (retrained.retrain("d", days, seed) for days, seed in ((DAYS + 2, 1), (DAYS + 1, 2)))
    assert drop_superseded_generations(jobs.settings, engine.home) == [("d", first)]
    assert drop_superseded_generations(jobs.settings, engine.home) == []
    assert retrained.generations() == {*active, last}
