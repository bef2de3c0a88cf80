"""A worker in this process takes jobs, fails to, and stops; an attempt at one only notes it."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from app.jobs.worker import Worker
from index.catalogue.jobs import Job, claim_job, end_job, release_job
from index.errors import CatalogueError, DiskFullError
from tests.jobs import Jobs

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


@pytest.fixture(autouse=True)
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


def test_the_oldest_job_is_done_first_also_one_that_was_begun_before(jobs: Jobs, take: Take) -> None:
    numbers = [jobs.give("tidy") for _ in range(4)]
    with jobs.catalogue.write() as session:
        claim_job(session, numbers[1], "a worker that stops")
        release_job(session, numbers[1], "a worker that stops")
    assert take(len(numbers)) == numbers


def test_threads_of_a_worker_take_each_job_once(jobs: Jobs, take: Take) -> None:
    numbers = [jobs.give("tidy") for _ in range(12)]
    assert sorted(take(len(numbers), at_once=4)) == numbers
    assert {jobs.get(number).attempts for number in numbers} == {1}


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
    said = [line.get("reason", line["event"]) for line in lines if line["log_level"] != "info"]
    assert said == ["No answer.", "No space.", "a job was left"]
    assert pauses[:3] == [5.0] * 3


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


def test_a_second_interrupt_waits_for_no_job(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.give("tidy")
    over = threading.Event()

    class Endless:
        def __init__(self, *given: Any) -> None:
            self._stop: threading.Event = given[3]

        def run(self) -> None:
            _stop(signal.SIGINT)
            self._stop.wait()
            _stop(signal.SIGINT)
            over.wait()

    monkeypatch.setattr("app.jobs.worker.Attempt", Endless)
    with pytest.raises(KeyboardInterrupt):
        Worker(jobs.settings).work()
    over.set()
