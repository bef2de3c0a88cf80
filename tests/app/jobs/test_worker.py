"""Real workers in processes of their own: what becomes of jobs, also when workers stop or are killed."""

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from app.heartbeat import count_workers
from app.jobs.folder import JobFolder
from index.catalogue.collections import Generation
from index.catalogue.jobs import Job, cancel_job
from index.engine import SearchEngine
from index.generations.activation import generation_of
from index.generations.reindex import generation_for
from index.ingest import ingest_manifest
from index.writes.vectors import count_lacking
from tests.app.jobs.trainings import (
    OVERRIDES,
    give_long_training,
    give_training,
    in_training,
    wait_for_the_lock,
)
from tests.index.samples import make_bundle, make_manifest, make_records
from tests.jobs import Jobs
from training.models.bundle import read_bundle
from training.models.encoder import load_encoder
from training.recipes.load import load_recipe
from training.trainer.run import train

# They begin many processes, each of which takes seconds to import what it needs.
pytestmark = pytest.mark.timeout(900)

IMAGES = 1500


def _child(worker: "subprocess.Popen[bytes]") -> int:
    """The process that does the job of a worker."""
    tasks = Path(f"/proc/{worker.pid}/task").glob("*/children")
    (child,) = [int(number) for task in tasks for number in task.read_text().split()]
    return child


def _folder(jobs: Jobs, number: int) -> JobFolder:
    return JobFolder.of(jobs.settings, number)


def test_jobs_are_done_or_fail_and_keep_what_they_ran_with(jobs: Jobs, tmp_path: Path) -> None:
    good = jobs.give("tidy")
    bad = jobs.give("import", "karpathy", "nowhere", folder=tmp_path)
    elsewhere = jobs.give("tidy", folder=tmp_path / "gone")
    unknown = jobs.give("dance")
    (jobs.settings.home / "jobs" / str(bad)).mkdir(parents=True)
    settings = tmp_path / "worker.env"
    settings.write_text(
        "RECOQUEST_KEEP_GENERATIONS=7\nRECOQUEST_KEEP_JOBS_DAYS=0\nRECOQUEST_REFRESH_S=0.5\n"
        "RECOQUEST_CORS_ORIGINS=https://a.org,https://b.org\nRECOQUEST_ADMIN_KEY=a-very-secret-key\n"
    )
    assert count_workers(jobs.settings) == 0
    with jobs.worker("--env-file", str(settings)) as worker:
        done = jobs.wait(good)
        assert (done.state, done.error, done.attempts) == ("done", None, 1)
        failed = jobs.wait(bad)
        assert failed.state == "failed"
        assert "nowhere" in (failed.error or "")
        assert str(failed.error) in jobs.log(bad)
        assert "gone: No such file" in (jobs.wait(elsewhere).error or "")
        assert "no jobs of the kind 'dance'" in (jobs.wait(unknown).error or "")
        assert count_workers(jobs.settings) == 1
        worker.terminate()
        worker.wait(60)
        assert count_workers(jobs.settings) == 0
    # What lay where its folder is to be, such as that of a job of a lost catalogue, is put aside.
    assert len(list(jobs.settings.home.glob(f"jobs/{bad}.before-*"))) == 1
    kept = json.loads((_folder(jobs, good).path / "environment.json").read_text())
    assert kept["command"] == ["recoquest", "tidy"]
    given = [
        kept["settings"][name] for name in ("keep_generations", "keep_jobs_days", "refresh_s", "cors_origins")
    ]
    assert given == [7, 0, 0.5, ["https://a.org", "https://b.org"]]
    assert (kept["settings"]["device"], kept["settings"]["admin_key"]) == ("cpu", None)
    assert kept["packages"]["torch"] == "2.13.0" or kept["packages"]["torch"].startswith("2.13.0+")


@pytest.mark.slow
def test_each_of_many_jobs_is_begun_once_by_one_of_two_workers(jobs: Jobs, tmp_path: Path) -> None:
    numbers = [jobs.give("import", "karpathy", f"nowhere-{n}", folder=tmp_path) for n in range(8)]
    with jobs.worker("--at-once", "2"), jobs.worker("--at-once", "2"):
        ended = [jobs.wait(number) for number in numbers]
    assert [job.attempts for job in ended] == [1] * len(numbers)
    assert [jobs.log(number).count("--- Attempt") for number in numbers] == [1] * len(numbers)
    by = Counter((job.worker or "").rpartition(":")[0] for job in ended)
    assert len(by) == 2, by


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_training_whose_worker_ends_goes_on_with_the_next_as_if_nothing_had_been(
    jobs: Jobs, scenes: Path, tmp_path: Path, how: signal.Signals
) -> None:
    number = give_training(jobs, scenes)
    with jobs.worker() as worker:
        jobs.wait(number, in_training)
        worker.send_signal(how)
        worker.wait(60)
    wait_for_the_lock(_folder(jobs, number))
    left = jobs.get(number)
    assert left.state == ("running" if how is signal.SIGKILL else "queued")
    with jobs.worker():
        done = jobs.wait(number)
    assert (done.state, done.attempts) == ("done", 2), jobs.log(number)
    assert done.lapses == (1 if how is signal.SIGKILL else 0)
    assert done.progress is not None
    assert done.progress["done"] == done.progress["total"]
    run = _folder(jobs, number).path / "run"
    assert done.result == json.loads((run / "bundle" / "metrics.json").read_text())
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").open() if '"train"' in line]
    assert steps == list(range(1, len(steps) + 1))
    assert load_recipe(str(run / "recipe.yaml")).data.cache_images == "memory"
    recipe = load_recipe("demo-scenes", OVERRIDES)
    straight = train(recipe, scenes, tmp_path / "straight", device="cpu", show_progress=False)
    assert read_bundle(run / "bundle").digest == read_bundle(straight.bundle).digest


@pytest.mark.slow
def test_a_worker_that_was_only_asleep_gives_its_job_up_and_never_do_two_processes_work_on_it(
    jobs: Jobs, scenes: Path
) -> None:
    number = give_training(jobs, scenes)
    with jobs.worker() as asleep:
        first = jobs.wait(number, in_training)
        asleep.send_signal(signal.SIGSTOP)
        with jobs.worker():
            taken = jobs.wait(number, lambda job: job.worker not in (None, first.worker) or job.has_ended)
            asleep.send_signal(signal.SIGCONT)
            done = jobs.wait(number)
    assert (taken.attempts, done.state) == (2, "done"), jobs.log(number)
    lines = (_folder(jobs, number).path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines if '"train"' in line]
    assert steps == list(range(1, len(steps) + 1))


@pytest.fixture
def begun(engine: SearchEngine, tmp_path: Path) -> Generation:
    """A generation without vectors beside the one that is searched."""
    encoders = [
        load_encoder(make_bundle(tmp_path / name, seed=seed, name=name).folder, "cpu")
        for seed, name in enumerate(("first", "second"))
    ]
    manifest = make_manifest(tmp_path / "data", make_records(IMAGES))
    ingest_manifest(engine, "c", encoders[0], manifest, show_progress=False)
    return generation_for(engine.home, "c", encoders[1])


def _embedding(job: Job) -> bool:
    assert not job.has_ended, job
    return job.progress is not None and job.progress["what"].startswith("Embedding c") and job.beats > 1


@pytest.mark.slow
def test_an_embedding_whose_worker_is_killed_goes_on_with_the_next(
    jobs: Jobs, engine: SearchEngine, begun: Generation
) -> None:
    number = jobs.give("reindex", "c", "--generation", begun.id, "--batch-size", 1, "--activate")
    with jobs.worker() as worker:
        jobs.wait(number, _embedding)
        worker.kill()
        worker.wait()
    wait_for_the_lock(_folder(jobs, number))
    with engine.home.catalogue.read() as session:
        missing = count_lacking(session, begun)
    assert 0 < missing < IMAGES
    with jobs.worker():
        done = jobs.wait(number)
    assert (done.state, done.lapses) == ("done", 1), jobs.log(number)
    assert f"is complete; {missing:,} images were embedded" in jobs.log(number)
    with engine.home.catalogue.read() as session:
        assert generation_of(session, "c", begun.id) == begun
    assert engine.active("c").generation == begun.id


@pytest.mark.slow
def test_a_cancelled_job_stops_and_the_next_one_begins(jobs: Jobs, scenes: Path) -> None:
    number, other = give_long_training(jobs, scenes), jobs.give("tidy")
    with jobs.worker():
        jobs.wait(number, in_training)
        with jobs.catalogue.write() as session:
            assert cancel_job(session, number).cancelling
        cancelled = jobs.wait(number)
        assert (cancelled.state, cancelled.error) == ("cancelled", None)
        assert jobs.wait(other).state == "done"
    run = _folder(jobs, number).path / "run"
    assert (run / "checkpoints" / "last.pt").exists()
    assert not (run / "bundle").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "state"), [(signal.SIGSTOP, "cancelled"), (signal.SIGKILL, "failed")])
def test_a_job_that_does_not_stop_is_killed_and_one_that_the_system_kills_fails_and_says_so(
    jobs: Jobs, scenes: Path, sent: signal.Signals, state: str
) -> None:
    number = give_long_training(jobs, scenes)
    with jobs.worker() as worker:
        jobs.wait(number, in_training)
        os.kill(_child(worker), sent)
        if sent == signal.SIGSTOP:
            with jobs.catalogue.write() as session:
                cancel_job(session, number)
        ended = jobs.wait(number)
    assert (ended.state, "SIGKILL" in (ended.error or "")) == (state, state == "failed")
    wait_for_the_lock(_folder(jobs, number))
