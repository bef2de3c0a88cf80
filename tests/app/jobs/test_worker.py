"""Workers: how they take jobs and give retrainings, and what becomes of jobs when they stop or are killed."""

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import Mock

import pytest
from sqlalchemy import Update, update
from structlog.testing import capture_logs

from app.heartbeat import Heartbeat, count_workers
from app.jobs.folder import JobFolder
from app.jobs.queue import give_job
from app.jobs.worker import Attempt, Worker, give_retrainings
from app.radiology.jobs import give_sync
from app.settings import Settings, SettingsError, load_settings
from index.catalogue.collections import Generation
from index.catalogue.jobs import Job, add_job, cancel_job, claim_job, end_job, release_job
from index.catalogue.tables import ImageRow, JobRow, ModelRow
from index.engine import SearchEngine
from index.errors import CatalogueError, DiskFullError, JobExistsError
from index.feedback import JudgedQuery, record_judgement
from index.generations.activation import generation_of
from index.generations.reindex import generation_for
from index.ingest import ingest_manifest
from index.writes.vectors import count_lacking
from tests.app.conftest import COLLECTION, Indexed
from tests.app.jobs.trainings import (
    OVERRIDES,
    check_done,
    check_steps,
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

# Name of the threads that take jobs.
TAKING: Final = "_take_jobs"
# Does jobs, so many at once, until so many have been done; returns their numbers in order.
Take = Callable[..., list[int]]


def _stop(number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


class _NotedAttempt:
    """Notes its job and ends it; the last of the jobs that are to be done stops the worker."""

    def __init__(self, jobs: Jobs, taken: list[int], count: int, *given: Any) -> None:
        self._jobs, self._taken, self._count = jobs, taken, count
        self._job: Job = given[2]

    def run(self) -> None:
        with self._jobs.catalogue.write() as session:
            assert self._job.worker is not None
            end_job(session, self._job.id, self._job.worker, "done")
        self._taken.append(self._job.id)
        if len(self._taken) == self._count:
            _stop()


@pytest.fixture
def handlers() -> Iterator[None]:
    """Leave the handlers of signals as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def take(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Take:
    def take(count: int, at_once: int = 1) -> list[int]:
        taken: list[int] = []
        monkeypatch.setattr("app.jobs.worker.Attempt", partial(_NotedAttempt, jobs, taken, count))
        Worker(jobs.settings).work(at_once)
        return taken

    return take


def _wait_by(monkeypatch: pytest.MonkeyPatch, wait: Callable[[float], float]) -> None:
    """Have threads that take jobs wait for as long as `wait` says when they would for so many seconds."""

    class NotedEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread().name == TAKING:
                assert timeout is not None
                timeout = wait(timeout)
            return super().wait(timeout)

    monkeypatch.setattr("app.jobs.worker.Event", NotedEvent)


@pytest.mark.usefixtures("handlers")
def test_the_oldest_job_is_done_first_also_one_that_was_begun_before(jobs: Jobs, take: Take) -> None:
    numbers = [jobs.give("tidy") for _ in range(4)]
    with jobs.catalogue.write() as session:
        claim_job(session, numbers[1], "a worker that stops")
        release_job(session, numbers[1], "a worker that stops")
    assert take(len(numbers)) == numbers


@pytest.mark.usefixtures("handlers")
def test_threads_of_a_worker_take_each_job_once(jobs: Jobs, take: Take) -> None:
    numbers = [jobs.give("tidy") for _ in range(12)]
    assert sorted(take(len(numbers), at_once=4)) == numbers
    assert {jobs.get(number).attempts for number in numbers} == {1}


@pytest.mark.usefixtures("handlers")
def test_a_job_that_another_worker_claims_meanwhile_is_left_to_it(
    jobs: Jobs, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other = jobs.give("tidy"), jobs.give("tidy")

    def claim(session: Any, job: int, worker: str) -> Job | None:
        if job == lost:
            claim_job(session, job, "another worker")
        return claim_job(session, job, worker)

    monkeypatch.setattr("app.jobs.worker.claim_job", claim)
    assert take(1) == [other]
    assert jobs.get(lost).worker == "another worker"


@pytest.mark.usefixtures("handlers")
def test_what_fails_is_logged_and_tried_again_after_a_pause(
    jobs: Jobs, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = jobs.give("tidy")
    errors = [CatalogueError("No answer."), DiskFullError("No space."), ValueError("A defect.")]
    pauses: list[float] = []

    def claim(session: Any, job: int, worker: str) -> Job | None:
        if errors:
            raise errors.pop(0)
        return claim_job(session, job, worker)

    def wait(seconds: float) -> float:
        pauses.append(seconds)
        return 0.0

    monkeypatch.setattr("app.jobs.worker.claim_job", claim)
    _wait_by(monkeypatch, wait)
    with capture_logs() as lines:
        assert take(1) == [number]
    messages = [line.get("reason", line["event"]) for line in lines if line["log_level"] != "info"]
    assert messages == ["No answer.", "No space.", "a job was abandoned"]
    assert pauses[:3] == [5.0] * 3


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_worker_that_waits_for_jobs_at_once(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    pauses: list[float] = []

    def wait(seconds: float) -> float:
        pauses.append(seconds)
        _stop(number)
        return 1000.0

    _wait_by(monkeypatch, wait)
    Worker(jobs.settings).work()
    assert pauses == [pytest.approx(1.0, rel=0.1)]
    assert TAKING not in {thread.name for thread in threading.enumerate()}


@pytest.mark.usefixtures("handlers")
def test_a_second_interrupt_waits_for_no_job(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.give("tidy")
    over = threading.Event()

    class Endless:
        def __init__(self, *value: Any) -> None:
            self._stop: threading.Event = value[3]

        def run(self) -> None:
            _stop(signal.SIGINT)
            self._stop.wait()
            _stop(signal.SIGINT)
            over.wait()

    monkeypatch.setattr("app.jobs.worker.Attempt", Endless)
    with pytest.raises(KeyboardInterrupt):
        Worker(jobs.settings).work()
    over.set()


Attempted = Callable[..., tuple[Job, list[str]]]


@pytest.fixture
def attempt(jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attempted:
    """Attempts job 1 with a script as its process, to be stopped once $5, the job's folder, has `stop`."""
    program, number = tmp_path / "program", jobs.give("evaluate", folder=tmp_path)
    monkeypatch.setattr("app.jobs.worker.sys", SimpleNamespace(executable=str(program)))
    monkeypatch.setattr("app.jobs.worker._MAX_BEAT_SECONDS", 0.0)
    with jobs.catalogue.write() as session:
        claimed: Any = claim_job(session, number, "w")
    stop: Any = SimpleNamespace(is_set=(_folder(jobs, number).path / "stop").exists)

    def run(script: str, **settings: float) -> tuple[Job, list[str]]:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        with capture_logs() as lines:
            Attempt(jobs.catalogue, jobs.settings.model_copy(update=settings), claimed, stop).run()
        return jobs.get(number), [line["event"] for line in lines]

    return run


@pytest.mark.parametrize(
    ("script", "stop_s", "state", "error"),
    [
        ("echo '{\"done\": 1}' > $RECOQUEST_PROGRESS; echo '{}' > $5/report.json", 60, "done", None),
        ("echo 'recoquest: No space.' >&2; exit 1", 60, "failed", "No space."),
        ("exit 3", 60, "failed", "It ended with the code 3: see the log."),
        ("kill -9 $$", 60, "failed", "SIGKILL; the system does so when memory runs out. See the log."),
        ("touch $5/stop; exec sleep 60", 60, "queued", None),
        ("trap '' TERM; touch $5/stop; exec sleep 60", 0, "queued", None),
        ("trap 'exit 0' TERM; touch $5/stop; while :; do sleep 0.01; done", 60, "done", None),
    ],
)
def test_an_attempt_ends_as_its_process_does(
    attempt: Attempted, jobs: Jobs, script: str, stop_s: float, state: str, error: str | None
) -> None:
    job, told = attempt(script, job_stop_s=stop_s)
    assert (job.state, job.worker, told) == (state, None if state == "queued" else "w", ["job left"])
    assert str(job.error).endswith(str(error))
    assert (job.progress, job.result) == (({"done": 1}, {}) if "report.json" in script else (None, None))
    assert jobs.log(1).startswith("--- Attempt 1 by w\n")


def test_an_attempt_ends_with_its_claim_its_cancellation_or_its_lease(
    attempt: Attempted, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    down, lost = Mock(side_effect=CatalogueError("No answer.")), "a job was lost to another worker"
    for worker, state, event in (("another", "running", lost), ("w", "cancelled", "job left")):
        with jobs.catalogue.write() as session:
            session.execute(update(JobRow).values(worker=worker, cancelling=worker == "w"))
        job, told = attempt("exec sleep 60")
        assert (job.state, job.worker, told) == (state, worker, [event])
    monkeypatch.setattr("app.jobs.worker.end_job", down)
    assert attempt("exit 3", job_lease_s=0)[1] == ["the end of a job is not written"]
    monkeypatch.setattr("app.jobs.worker.end_job", end_job)
    monkeypatch.setattr("app.jobs.worker.beat", down)
    assert attempt("sleep 0.3")[1][-1] == "job left"
    assert attempt("exec sleep 60", job_lease_s=0)[1] == ["a job's progress is not written", lost]


@pytest.mark.usefixtures("attempt")
def test_a_worker_is_lost_once_its_beats_have_stood_still_for_longer_than_a_lease(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((1000.0, 1015.0, 1015.1))
    monkeypatch.setattr("app.jobs.worker.time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr("app.jobs.worker.open_catalogue", lambda _: jobs.catalogue)
    worker = Worker(jobs.settings)
    with capture_logs() as lines:
        for state in ("running", "running", "queued"):
            worker.look()
            assert jobs.get(1).state == state
    assert [(line["event"], line["worker"]) for line in lines] == [("a worker was lost", "w")]


NIGHT = datetime(2100, 1, 3, 3, 0, 42, tzinfo=UTC)
Give = Callable[..., list[Job]]


@pytest.fixture
def give(own: Indexed) -> Iterator[Give]:
    """Gives what is due by these settings at this time, as a worker would that looks then."""
    with own.engine() as engine:

        def give_at(at: datetime = NIGHT, **settings: Any) -> list[Job]:
            settings.setdefault("retrain", (COLLECTION,))
            changed = Settings(home=own.settings.home, **settings)
            return give_retrainings(changed, engine.home.catalogue, at)

        yield give_at


def _end(own: Indexed, job: Job) -> None:
    with own.write() as session:
        claim_job(session, job.id, "w")
        end_job(session, job.id, "w", "done")


def _judge(own: Indexed, count: int, query: str) -> None:
    with own.write() as session:
        for record in own.manifest.records[:count]:
            record_judgement(session, COLLECTION, JudgedQuery(texts=(query,)), record.id, True, limit=1000)


def test_at_its_time_each_collection_is_retrained_once(own: Indexed, give: Give) -> None:
    at = {"retrain_at": "0 3 * * 0"}
    assert give(NIGHT - timedelta(minutes=1), **at) == []
    assert give(NIGHT + timedelta(days=1), **at) == []
    (job,) = give(NIGHT, **at, retrain_promote=True)
    assert (job.kind, job.arguments) == ("retrain", [COLLECTION, "--promote"])
    # As long as one is under way no other is given.
    assert give(NIGHT + timedelta(days=7), **at) == []
    _end(own, job)
    (again,) = give(NIGHT + timedelta(days=7), **at)
    assert again.arguments == [COLLECTION]


def test_none_is_given_beside_one_that_somebody_else_gave(own: Indexed, give: Give) -> None:
    with own.write() as session:
        other = add_job(session, "retrain", ["--gain", "1", COLLECTION])
    assert give(retrain_at="* * * * *") == []
    _end(own, other)
    assert len(give(retrain_at="* * * * *")) == 1


def test_in_the_same_minute_none_is_given_twice(own: Indexed, give: Give) -> None:
    now = datetime.now(UTC)
    (job,) = give(now, retrain_at="* * * * *")
    _end(own, job)
    assert give(now, retrain_at="* * * * *") == []
    assert len(give(now + timedelta(minutes=1), retrain_at="* * * * *")) == 1


def _change(own: Indexed, change: Update) -> None:
    with own.write() as session:
        session.execute(change)


def test_feedback_that_is_not_learned_from_gives_none(own: Indexed, give: Give) -> None:
    _judge(own, 5, "of images that are held out")
    assert give(retrain_feedback=5) == []
    _change(own, update(ImageRow).values(split="train"))
    _change(own, update(ModelRow).values(recipe="data: {text_unit: report}"))
    assert give(retrain_feedback=5) == []
    _change(own, update(ModelRow).values(recipe="data: {text_unit: sentence}"))
    assert len(give(retrain_feedback=5)) == 1


def test_enough_new_feedback_gives_one(own: Indexed, give: Give) -> None:
    _change(own, update(ImageRow).values(split="train"))
    _judge(own, 4, "first")
    assert give(retrain_feedback=5) == []
    _judge(own, 1, "second")
    (job,) = give(retrain_feedback=5)
    _end(own, job)
    assert give(retrain_feedback=5) == []
    _judge(own, 5, "third")
    assert len(give(retrain_feedback=5)) == 1


def test_nothing_is_due_by_default_or_for_a_collection_that_is_not_there(own: Indexed, give: Give) -> None:
    _judge(own, 5, "first")
    assert give() == []
    assert give(retrain=("none",), retrain_at="* * * * *") == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [("3 a.m.", "give 5 parts: minute, hour"), ("61 3 * * *", "RECOQUEST_RETRAIN_AT: ")],
)
def test_a_time_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str, expected: str) -> None:
    monkeypatch.setenv("RECOQUEST_RETRAIN_AT", value)
    with pytest.raises(SettingsError, match=expected):
        load_settings()


def test_a_sync_with_the_archive_is_given_at_its_times_and_never_beside_another(own: Indexed) -> None:
    arguments = ["films", "--modality", "DX", "--quarantined", "/srv/a list.csv"]
    given = "films --modality DX --quarantined '/srv/a list.csv'"
    settings = Settings(home=own.settings.home, pacs_sync=given, pacs_sync_at="*/10 * * * *")
    ten, minutes = datetime(2100, 1, 3, 3, 10, 42, tzinfo=UTC), timedelta(minutes=1)
    with own.engine() as engine:
        catalogue = engine.home.catalogue
        assert give_sync(settings, catalogue, ten - minutes) is None
        assert give_sync(own.settings, catalogue, ten) is None
        job = give_sync(settings, catalogue, ten)
        assert job is not None
        assert (job.kind, job.arguments) == ("pacs_sync", arguments)
        assert give_sync(settings, catalogue, ten + 10 * minutes) is None
        with pytest.raises(JobExistsError, match="waits to sync the same"):
            give_job(catalogue, "pacs_sync", arguments)
        assert give_job(catalogue, "pacs_sync", ["others"]).arguments == ["others"]
        _end(own, job)
        assert give_sync(settings, catalogue, ten + 10 * minutes) is not None


def _files(settings: Settings) -> set[str]:
    return {file.name for file in (settings.home / "workers").iterdir()}


def test_who_says_nothing_any_more_does_not_count(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    assert count_workers(settings) == 0
    heartbeat = Heartbeat(settings)
    heartbeat.beat()
    (ours,) = _files(settings)
    for name, seconds in (("here:1", 3), ("here:2", 40), ("gone:3", 4000)):
        file = settings.home / "workers" / name
        file.touch()
        os.utime(file, (time.time() - seconds,) * 2)
    assert count_workers(settings) == 2
    os.utime(settings.home / "workers" / ours, (0, 0))
    assert count_workers(settings) == 1
    heartbeat.beat()
    assert count_workers(settings) == 2
    heartbeat.end()
    assert _files(settings) == {"here:1", "here:2"}


IMAGES = 1500


def _child(worker: "subprocess.Popen[bytes]") -> int:
    """The process that does the job of a worker."""
    tasks = Path(f"/proc/{worker.pid}/task").glob("*/children")
    (child,) = [int(number) for task in tasks for number in task.read_text().split()]
    return child


def _folder(jobs: Jobs, number: int) -> JobFolder:
    return JobFolder.for_job(jobs.settings, number)


# They begin many processes, each of which takes seconds to import what it needs.
@pytest.mark.slow
@pytest.mark.timeout(900)
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
        assert "support jobs of the kind 'dance'" in (jobs.wait(unknown).error or "")
        assert count_workers(jobs.settings) == 1
        worker.terminate()
        worker.wait(60)
        assert count_workers(jobs.settings) == 0
    # An existing folder in its place, such as that of a job of a lost catalogue, is moved aside.
    assert len(list(jobs.settings.home.glob(f"jobs/{bad}.before-*"))) == 1
    kept = json.loads((_folder(jobs, good).path / "environment.json").read_text())
    assert kept["command"] == ["recoquest", "tidy"]
    origins = ["https://a.org", "https://b.org"]
    expected = {"keep_generations": 7, "keep_jobs_days": 0, "refresh_s": 0.5, "cors_origins": origins}
    assert kept["settings"] == kept["settings"] | expected | {"device": "cpu", "admin_key": None}
    assert kept["packages"]["torch"] == "2.13.0" or kept["packages"]["torch"].startswith("2.13.0+")


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_each_of_many_jobs_is_begun_once_by_one_of_two_workers(jobs: Jobs, tmp_path: Path) -> None:
    numbers = [jobs.give("import", "karpathy", f"nowhere-{n}", folder=tmp_path) for n in range(8)]
    with jobs.worker("--at-once", "2"), jobs.worker("--at-once", "2"):
        ended = [jobs.wait(number) for number in numbers]
    assert [job.attempts for job in ended] == [1] * len(numbers)
    assert [jobs.log(number).count("--- Attempt") for number in numbers] == [1] * len(numbers)
    by = Counter((job.worker or "").rpartition(":")[0] for job in ended)
    assert len(by) == 2, by


@pytest.mark.timeout(900)
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
    run = _folder(jobs, number).path / "run"
    check_done(done, run)
    assert load_recipe(str(run / "recipe.yaml")).data.cache_images == "memory"
    recipe = load_recipe("demo-scenes", OVERRIDES)
    straight = train(recipe, scenes, tmp_path / "straight", device="cpu", show_progress=False)
    assert read_bundle(run / "bundle").digest == read_bundle(straight.bundle).digest


@pytest.mark.timeout(900)
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
    check_steps(_folder(jobs, number).path / "run")


@pytest.fixture
def begun(engine: SearchEngine, tmp_path: Path) -> Generation:
    """A generation without vectors next to the searched one."""
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


@pytest.mark.timeout(900)
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


@pytest.mark.timeout(900)
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


@pytest.mark.timeout(900)
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
