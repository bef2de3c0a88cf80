"""A worker: takes jobs one after another, and takes over those whose worker is lost."""

import os
import random
import secrets
import signal
import socket
import time
from queue import SimpleQueue
from threading import Event, Thread
from typing import Final

import structlog

from app.heartbeat import Heartbeat
from app.jobs.attempt import Attempt
from app.jobs.schedule import give_retrainings, give_sync
from app.settings import Settings
from index.catalogue import open_catalogue
from index.catalogue.jobs import Job, claim_job, expire_lease, list_jobs, next_job
from training.common.errors import RecoquestError

# Pause of a thread that has found no job.
_LOOK_SECONDS: Final = 1.0
# Pause of a thread that could not look for a job, or take one.
_PAUSE_SECONDS: Final = 5.0
_MAX_WATCH_SECONDS: Final = 5.0
# Beyond the time that a job has to stop, what ending it takes.
_LAST_SECONDS: Final = 10.0

_log = structlog.stdlib.get_logger(__name__)


class Worker:
    """Works until a signal stops it.

    Raises:
        CatalogueError: The catalogue cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalogue = open_catalogue(settings.catalogue_url)
        self._heartbeat = Heartbeat(settings)
        self._stop = Event()
        self._seen: dict[int, tuple[Job, float]] = {}

    def work(self, at_once: int = 1) -> None:
        """Do jobs, so many at once, until SIGTERM or SIGINT; what was begun is queued again.

        Call it in the main thread, which gets the signals. A second SIGINT waits for no job.
        """
        # A handler may run within anything that this thread does, so it takes no lock as an event would.
        signals: SimpleQueue[int] = SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda given, _frame: signals.put(given))
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
                _log.exception("a job was left")
                pause_s = _PAUSE_SECONDS
            self._stop.wait(pause_s)

    def _claimed(self) -> Job | None:
        """The oldest job that waits, given to this worker; None when none waits."""
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
        """Queue again what lost its worker, and give what is due.

        Raises:
            CatalogueError: The catalogue cannot be used.
        """
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
        """The jobs whose beats have stood still, by this machine's clock, for as long as a worker may."""
        now = time.monotonic()
        before = self._seen
        self._seen = {}
        for job in running:
            seen = before.get(job.id)
            same = seen is not None and (seen[0].worker, seen[0].beats) == (job.worker, job.beats)
            self._seen[job.id] = (job, seen[1] if seen is not None and same else now)
        return [job for job, since in self._seen.values() if now - since > self._settings.job_lease_s]
