"""A worker: takes jobs one after another, watches their processes, and gives those that are due."""

import math
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final, Literal

import structlog
import yaml
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.heartbeat import Heartbeat
from app.jobs.folder import ATTEMPT, JobFolder
from app.jobs.kinds import KINDS, read_result
from app.jobs.queue import RETRAIN, last_retraining
from app.radiology.jobs import give_sync
from app.setting_values import is_time
from app.settings import Settings
from index.catalogue import Catalogue, open_catalogue
from index.catalogue.collections import find_active
from index.catalogue.jobs import (
    Job,
    add_job,
    beat,
    claim_job,
    end_job,
    expire_lease,
    list_jobs,
    next_job,
    release_job,
)
from index.catalogue.tables import CollectionRow, ModelRow
from index.errors import CatalogueError, DiskFullError
from index.feedback import count_usable
from training.common.errors import RecoquestError
from training.common.progress import PROGRESS_VARIABLE

Order = Literal["continue", "cancel", "stop", "let go"]

# Pause of a thread without a job.
_LOOK_SECONDS: Final = 1.0
# Pause of a thread that could not look for a job, or take one.
_PAUSE_SECONDS: Final = 5.0
_MAX_WATCH_SECONDS: Final = 5.0
# Beyond the time that a job has to stop, what ending it takes.
_LAST_SECONDS: Final = 10.0
_TICK_SECONDS: Final = 0.1
_MAX_BEAT_SECONDS: Final = 2.0

_log = structlog.stdlib.get_logger(__name__)


class Worker:
    """Works until a signal stops it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalogue = open_catalogue(settings.catalogue_url)
        self._heartbeat = Heartbeat(settings)
        self._stop = Event()
        # Since when jobs have had these beats, by this machine's clock.
        self._since: dict[tuple[int, str | None, int], float] = {}

    def work(self, at_once: int = 1) -> None:
        """Do jobs, so many at once, until SIGTERM or SIGINT; what was begun is queued again.

        Call it in the main thread, which gets the signals. A second SIGINT waits for no job.
        """
        # A handler may run within anything that this thread does, so it takes no lock as an event would.
        signals: SimpleQueue[int] = SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda signal_number, _frame: signals.put(signal_number))
        tasks = (self._look_after, *(self._take_jobs for _ in range(at_once)))
        threads = [Thread(target=task, name=task.__name__, daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        _log.info("worker stops", signal=signal.Signals(signals.get()).name)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._stop.set()
        patience = time.monotonic() + self._settings.job_stop_s + _LAST_SECONDS
        for thread in threads:
            thread.join(max(0.0, patience - time.monotonic()))
        self._heartbeat.end()
        self._catalogue.close()

    def _take_jobs(self) -> None:
        """Do one job after another; what fails is logged and tried again."""
        while not self._stop.is_set():
            try:
                job = self._claimed()
                if job is not None:
                    Attempt(self._catalogue, self._settings, job, self._stop).run()
                    continue
                # Drawn, lest all threads look at the same moment.
                pause_s = _LOOK_SECONDS * random.uniform(0.9, 1.1)
            except RecoquestError as error:
                _log.warning("no job can be taken", reason=str(error))
                pause_s = _PAUSE_SECONDS
            except Exception:  # noqa: BLE001 - a thread that ended would leave jobs waiting
                _log.exception("a job was abandoned")
                pause_s = _PAUSE_SECONDS
            self._stop.wait(pause_s)

    def _claimed(self) -> Job | None:
        """The oldest waiting job, claimed by this worker; None if none waits."""
        while not self._stop.is_set():
            with self._catalogue.read() as session:
                number = next_job(session)
            if number is None:
                return None
            name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
            with self._catalogue.write() as session:
                job = claim_job(session, number, name)
            # Another worker was first where it is None: the next one may wait.
            if job is not None:
                _log.info("job taken", job=job.id, kind=job.kind, attempt=job.attempts)
                return job
        return None

    def _look_after(self) -> None:
        every_s = min(_MAX_WATCH_SECONDS, self._settings.job_lease_s / 5)
        while not self._stop.is_set():
            try:
                self.look()
                # Last: who cannot use the catalogue is of no use to any job.
                self._heartbeat.beat()
            except (RecoquestError, OSError) as error:
                _log.warning("jobs cannot be looked after", reason=str(error))
            self._stop.wait(every_s)

    def look(self) -> None:
        """Queue again what lost its worker, and give what is due."""
        with self._catalogue.read() as session:
            running = list_jobs(session, state="running")
        for job in self._silent(running):
            with self._catalogue.write() as session:
                lapsed = expire_lease(session, job)
            if lapsed is not None:
                _log.warning("a worker was lost", job=job.id, worker=job.worker, state=lapsed.state)
        give_retrainings(self._settings, self._catalogue)
        give_sync(self._settings, self._catalogue)

    def _silent(self, running: list[Job]) -> list[Job]:
        """The jobs whose beats haven't changed for as long as a worker may take."""
        now, states = time.monotonic(), {(job.id, job.worker, job.beats): job for job in running}
        self._since = {state: self._since.get(state, now) for state in states}
        lease_s = self._settings.job_lease_s
        return [states[state] for state, since in self._since.items() if now - since > lease_s]


class Attempt:
    """A worker's attempt at a job that it has claimed.

    While it runs, the job's beats increase, and the process that does the job holds the lock of its folder:
    if this worker is considered lost, the next one waits until that process has ended.
    """

    def __init__(self, catalogue: Catalogue, settings: Settings, job: Job, stop: Event) -> None:
        assert job.worker is not None
        self._catalogue = catalogue
        self._settings = settings
        self._job = job
        self._worker = job.worker
        self._stop = stop
        self._folder = JobFolder.for_job(settings, job.id)
        self._beaten = time.monotonic()
        self._beat_seconds = min(_MAX_BEAT_SECONDS, settings.job_lease_s / 5)

    def run(self) -> None:
        """Do the job to its end, or until it is cancelled, the worker stops, or the job is another's."""
        if self._job.kind not in KINDS:
            self._fail(f"This worker doesn't support jobs of the kind {self._job.kind!r}: update it.")
            return
        try:
            self._folder.begin(self._job)
            while (lock := self._folder.lock()) is None:
                time.sleep(_TICK_SECONDS)
                if (order := self._order()) != "continue":
                    self._give_up(order)
                    return
            code, order = self._watched(self._started(lock))
            if code == 0 and order != "let go":
                self._succeed()
            elif order == "continue":
                self._fail(self._reason(code))
            else:
                self._give_up(order)
        except OSError as error:
            self._fail(f"{error.filename or self._folder.path}: {error.strerror or error}.")

    def _started(self, lock: int) -> "subprocess.Popen[bytes]":
        """Start the job's process, and leave the lock to it alone."""
        job, child = self._job, (sys.executable, "-m", "app.cli.process", "job")
        try:
            environment = self._settings.environment_of_a_job(os.environ)
            with self._folder.log.open("ab") as log:
                log.write(f"{ATTEMPT}{job.attempts} by {job.worker}\n".encode())
                log.flush()
                return subprocess.Popen(
                    [*child, str(os.getpid()), str(self._folder.path), job.kind, *job.arguments],
                    # Standard input passes the lock on to all processes that the job starts.
                    stdin=lock,
                    stdout=log,
                    stderr=log,
                    cwd=job.folder,
                    env={**environment, PROGRESS_VARIABLE: str(self._folder.progress)},
                    start_new_session=True,
                )
        finally:
            os.close(lock)

    def _watched(self, process: "subprocess.Popen[bytes]") -> tuple[int, Order]:
        """Wait until the process ends; return its exit code, and what it was ended for."""
        ordered: Order = "continue"
        patience = math.inf
        try:
            while ordered != "let go" and time.monotonic() <= patience:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_TICK_SECONDS), ordered
                order = self._order()
                if ordered == "continue" and order != "continue":
                    patience = time.monotonic() + self._settings.job_stop_s
                    process.terminate()
                if order != "continue" and ordered != "cancel":
                    ordered = order
        finally:
            # Unwatched, the process would keep the lock, and the next worker would wait for it.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return process.wait(), ordered

    def _order(self) -> Order:
        """Beat when it is time to, and return what is to become of the job."""
        if time.monotonic() - self._beaten < self._beat_seconds:
            return "stop" if self._stop.is_set() else "continue"
        progress = self._folder.read_progress()
        try:
            with self._catalogue.write() as session:
                job = beat(session, self._job.id, self._worker, progress)
        except (CatalogueError, DiskFullError) as error:
            _log.warning("a job's progress is not written", job=self._job.id, reason=str(error))
            # By now another worker may have it.
            return "let go" if time.monotonic() - self._beaten > self._settings.job_lease_s else "continue"
        self._beaten = time.monotonic()
        if job is None:
            return "let go"
        if job.cancelling:
            return "cancel"
        return "stop" if self._stop.is_set() else "continue"

    def _give_up(self, order: Order) -> None:
        if order == "cancel":
            self._leave(partial(end_job, state="cancelled"))
        elif order == "stop":
            self._leave(release_job)
        else:
            _log.warning("a job was lost to another worker", job=self._job.id)

    def _succeed(self) -> None:
        result = read_result(self._job.kind, self._folder.path)
        self._leave(partial(end_job, state="done", result=result), self._folder.read_progress())

    def _fail(self, error: str) -> None:
        self._leave(partial(end_job, state="failed", error=error))

    def _leave(
        self, change: Callable[[Session, int, str], Job | None], progress: dict[str, Any] | None = None
    ) -> None:
        """Commit the last progress and the last change of the job, with retries until its lease ends."""
        while True:
            try:
                with self._catalogue.write() as session:
                    if progress is not None:
                        beat(session, self._job.id, self._worker, progress)
                    job = change(session, self._job.id, self._worker)
                _log.info("job left", job=self._job.id, state=None if job is None else job.state)
                return
            except (CatalogueError, DiskFullError) as error:
                if time.monotonic() - self._beaten > self._settings.job_lease_s:
                    _log.error("the end of a job is not written", job=self._job.id, reason=str(error))
                    return
            time.sleep(_TICK_SECONDS)

    def _reason(self, code: int) -> str:
        if code < 0:
            name = signal.Signals(-code).name
            return f"Something ended it by {name}; the system does so when memory runs out. See the log."
        return self._folder.last_sentence() or f"It ended with the code {code}: see the log."


def give_retrainings(settings: Settings, catalogue: Catalogue, at: datetime | None = None) -> list[Job]:
    """Submit the retrainings that are due; repeated calls, or other workers, submit nothing twice."""
    minute = (at or datetime.now(UTC)).replace(second=0, microsecond=0)
    submitted = []
    for collection in settings.retrain:
        with catalogue.write() as session:
            row = select(CollectionRow.id).where(CollectionRow.name == collection)
            if session.execute(row).first() is not None and _is_due(session, settings, collection, minute):
                promote = ["--promote"] if settings.retrain_promote else []
                submitted.append(add_job(session, RETRAIN, [collection, *promote]))
    return submitted


def _is_due(session: Session, settings: Settings, collection: str, minute: datetime) -> bool:
    last = last_retraining(session, collection)
    if last is not None and not last.has_ended:
        return False
    since = "" if last is None else last.created
    is_later = since < minute.isoformat(timespec="microseconds")
    if settings.retrain_at is not None and is_later and is_time(settings.retrain_at, minute):
        return True
    active = find_active(session, collection)
    if settings.retrain_feedback is None or active is None:
        return False
    query = select(ModelRow.recipe).where(ModelRow.digest == active[0].digest)
    recipe = yaml.safe_load(session.execute(query).scalar_one()) or {}
    # Judged texts are learned from by a recipe that takes texts one by one.
    if (recipe.get("data") or {}).get("text_unit", "sentence") != "sentence":
        return False
    return count_usable(session, collection, since=since).usable >= settings.retrain_feedback
