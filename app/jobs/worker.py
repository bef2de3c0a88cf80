"""A worker: takes jobs one after another, and takes over those whose worker is lost."""

import os
import secrets
import socket
import time
from threading import Event, Thread
from typing import Final

import structlog

from app.jobs.attempt import Attempt
from app.jobs.heartbeat import Presence
from app.jobs.queue import JobQueue
from app.jobs.schedule import give_retrainings
from app.settings import Settings
from index.catalogue import open_catalogue
from index.catalogue.jobs import Job, claim_job, lapse_job, list_jobs
from training.errors import RecoquestError

_MOST_LOOK_SECONDS: Final = 5.0
# Beyond the time that a job has to stop, what ending it takes.
_LAST_SECONDS: Final = 10.0

_log = structlog.stdlib.get_logger(__name__)


class Worker:
    """Works until a signal stops it.

    Raises:
        CatalogueError: The catalogue cannot be used.
        QueueError: The address of the Redis cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalogue = open_catalogue(settings.catalogue_url)
        self._queue = JobQueue(settings, self._run)
        self._presence = Presence(settings)
        self._stop = Event()
        self._seen: dict[int, tuple[Job, float]] = {}

    def work(self, at_once: int = 1) -> None:
        """Do jobs, so many at once; stopped, what was begun is queued again and goes on later.

        Raises:
            QueueError: The queue's file cannot be made.
        """
        consumer = self._queue.consumer(at_once)
        self._stop = consumer.stop_flag
        watch = Thread(target=self._look_after, name="watch", daemon=True)
        watch.start()
        consumer.run()
        patience = time.monotonic() + self._settings.job_stop_s + _LAST_SECONDS
        for thread in (*(thread for _, thread in consumer.worker_threads), watch):
            thread.join(max(0.0, patience - time.monotonic()))
        self._presence.end()
        self._queue.close()
        self._catalogue.close()

    def _run(self, number: int) -> None:
        """Do a job, if it is there to be done."""
        if self._stop.is_set():
            return
        name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        with self._catalogue.write() as session:
            job = claim_job(session, number, name)
        if job is None:
            return
        _log.info("job taken", job=job.id, kind=job.kind, attempt=job.attempts)
        Attempt(self._catalogue, self._settings, job, self._stop).run()
        if self._stop.is_set():
            # Whoever works next is woken; it does nothing where the job has ended.
            self._queue.put(job.id)

    def _look_after(self) -> None:
        every_s = min(_MOST_LOOK_SECONDS, self._settings.job_lease_s / 5)
        while not self._stop.is_set():
            try:
                self.look()
                # Last: who cannot use the catalogue or the queue is of no use to any job.
                self._presence.beat()
            except (RecoquestError, OSError) as error:
                _log.warning("jobs cannot be looked after", reason=str(error))
            self._stop.wait(every_s)

    def look(self) -> None:
        """Queue again what lost its worker, give what is due, and wake somebody for what waits unheard.

        Raises:
            CatalogueError: The catalogue cannot be used.
            QueueError: The queue cannot be reached.
        """
        with self._catalogue.read() as session:
            running = list_jobs(session, state="running")
            queued = list_jobs(session, state="queued")
        for job in self._silent(running):
            with self._catalogue.write() as session:
                lapsed = lapse_job(session, job)
            if lapsed is not None:
                _log.warning("a worker was lost", job=job.id, worker=job.worker, state=lapsed.state)
                queued.append(lapsed)
        # First: what is due at this minute would be lost with a queue that cannot be reached.
        give_retrainings(self._settings, self._catalogue, self._queue)
        if queued and self._queue.is_empty():
            for job in reversed(queued):
                self._queue.put(job.id)

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
