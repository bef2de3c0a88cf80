"""One attempt at a job: a process that does it, and who watches it until it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Event
from typing import Final, Literal

import structlog
from sqlalchemy.orm import Session

from app.jobs.folder import ATTEMPT, JobFolder
from app.jobs.kinds import KINDS, read_result
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.jobs import Job, beat, end_job, release_job
from index.errors import CatalogueError, DiskFullError
from training.common.progress import PROGRESS_VARIABLE

Order = Literal["go on", "cancel", "stop", "let go"]
_TICK_SECONDS: Final = 0.1
_MAX_BEAT_SECONDS: Final = 2.0

_log = structlog.stdlib.get_logger(__name__)


class Attempt:
    """A worker's attempt at a job that it has claimed.

    While it lasts, the job's beats go up, and the lock of the job's folder is held by the process that does
    the job: should this worker be taken for lost, the next one waits until that process is gone.

    Args:
        catalogue: Catalogue of the job.
        settings: Settings of the worker.
        job: Job as it was claimed.
        stop: Set when the worker is to stop.
    """

    def __init__(self, catalogue: Catalogue, settings: Settings, job: Job, stop: Event) -> None:
        assert job.worker is not None
        self._catalogue = catalogue
        self._settings = settings
        self._job = job
        self._worker = job.worker
        self._stop = stop
        self._folder = JobFolder.of(settings, job.id)
        self._beaten = time.monotonic()
        self._beat_seconds = min(_MAX_BEAT_SECONDS, settings.job_lease_s / 5)

    def run(self) -> None:
        """Do the job to its end, or until it is cancelled, the worker stops, or the job is another's."""
        if self._job.kind not in KINDS:
            self._fail(f"This worker knows no jobs of the kind {self._job.kind!r}: update it.")
            return
        try:
            self._folder.begin(self._job)
            lock = self._locked()
            if isinstance(lock, int):
                self._end(*self._watched(self._started(lock)))
            else:
                self._give_up(lock)
        except OSError as error:
            self._fail(f"{error.filename or self._folder.path}: {error.strerror or error}.")

    def _locked(self) -> int | Order:
        """Wait for the folder's lock; instead of it, why waiting has ended."""
        while (lock := self._folder.lock()) is None:
            time.sleep(_TICK_SECONDS)
            order = self._order()
            if order != "go on":
                return order
        return lock

    def _started(self, lock: int) -> "subprocess.Popen[bytes]":
        """Start the job's process, and leave the lock to it alone."""
        job, child = self._job, (sys.executable, "-m", "app.cli.process", "job")
        try:
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
                    env=self._environment(),
                    start_new_session=True,
                )
        finally:
            os.close(lock)

    def _environment(self) -> dict[str, str]:
        settings = self._settings.environment_of_a_job(os.environ)
        return {**settings, PROGRESS_VARIABLE: str(self._folder.progress)}

    def _watched(self, process: "subprocess.Popen[bytes]") -> tuple[int, Order]:
        """Wait until the process ends; return its exit code, and what it was ended for."""
        try:
            return self._watch(process)
        except BaseException:
            # Unwatched, the process would keep the lock, and the next worker would wait for it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise

    def _watch(self, process: "subprocess.Popen[bytes]") -> tuple[int, Order]:
        ordered: Order = "go on"
        patience = 0.0
        while True:
            try:
                return process.wait(_TICK_SECONDS), ordered
            except subprocess.TimeoutExpired:
                order = self._order()
            if ordered == "go on" and order != "go on":
                patience = time.monotonic() + self._settings.job_stop_s
                process.terminate()
            if order != "go on" and ordered != "cancel":
                ordered = order
            if ordered == "let go" or (ordered != "go on" and time.monotonic() > patience):
                os.killpg(process.pid, signal.SIGKILL)
                return process.wait(), ordered

    def _order(self) -> Order:
        """Beat when it is time to, and return what is to become of the job."""
        if time.monotonic() - self._beaten < self._beat_seconds:
            return "stop" if self._stop.is_set() else "go on"
        progress = self._folder.read_progress()
        try:
            with self._catalogue.write() as session:
                job = beat(session, self._job.id, self._worker, progress)
        except (CatalogueError, DiskFullError) as error:
            _log.warning("a job's progress is not written", job=self._job.id, reason=str(error))
            # By now another worker may have it.
            return "let go" if time.monotonic() - self._beaten > self._settings.job_lease_s else "go on"
        self._beaten = time.monotonic()
        if job is None:
            return "let go"
        if job.cancelling:
            return "cancel"
        return "stop" if self._stop.is_set() else "go on"

    def _end(self, code: int, order: Order) -> None:
        """Write down how the process ended."""
        if code == 0 and order != "let go":
            self._finalise(self._done)
        elif order == "go on":
            self._fail(self._reason(code))
        else:
            self._give_up(order)

    def _give_up(self, order: Order) -> None:
        """Leave the job undone, for the reason given."""
        if order == "cancel":
            self._finalise(lambda session: end_job(session, self._job.id, self._worker, "cancelled"))
        elif order == "stop":
            self._finalise(lambda session: release_job(session, self._job.id, self._worker))
        else:
            _log.warning("a job was lost to another worker", job=self._job.id)

    def _done(self, session: Session) -> Job | None:
        beat(session, self._job.id, self._worker, self._folder.read_progress())
        result = read_result(self._job.kind, self._folder.path)
        return end_job(session, self._job.id, self._worker, "done", result=result)

    def _fail(self, error: str) -> None:
        self._finalise(lambda session: end_job(session, self._job.id, self._worker, "failed", error=error))

    def _finalise(self, change: Callable[[Session], Job | None]) -> None:
        """Commit the last change of the job, with retries until its lease ends."""
        while True:
            try:
                with self._catalogue.write() as session:
                    job = change(session)
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
            return f"Something ended it by {name}; the system does so for want of memory. See the log."
        return self._folder.last_sentence() or f"It ended with the code {code}: see the log."
