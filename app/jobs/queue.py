"""The queue that wakes workers: in a file of the home folder, or in Redis for workers on several machines.

It carries numbers of jobs and nothing else. What a job is, and who has it, is in the catalogue, so a number
that is lost or there twice does no harm.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import structlog
from huey import Huey, RedisHuey, SqliteHuey
from huey.consumer import Consumer
from huey.registry import Message
from huey.serializer import Serializer
from redis import ConnectionPool
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from app.jobs import retrainings
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.disk_full import is_disk_full
from index.catalogue.jobs import Job, add_job
from training.errors import RecoquestError

_NAME: Final = "recoquest"
_POLL_SECONDS: Final = 1.0
# Longer than a worker's question for a number, which is held back until there is one or a second has passed.
_ANSWER_SECONDS: Final = 5.0

_log = structlog.stdlib.get_logger(__name__)


class QueueError(RecoquestError):
    """The queue cannot be used."""


class QueueDiskFullError(QueueError):
    """The queue's file cannot be used: its disk is full."""


class JobQueue:
    """Wakes workers; a queue in a file is made when it is first used.

    Args:
        settings: Say where it is.
        run: What a worker does with the number of a job; None for those that only give jobs.

    Raises:
        QueueError: The address of the Redis cannot be used.
    """

    def __init__(self, settings: Settings, run: Callable[[int], None] | None = None) -> None:
        self._file = queue_file(settings) if settings.queue_url is None else None
        self._made = False
        self._huey = _open(settings)

        def wake(job: int) -> None:
            if run is None:
                raise QueueError(f"Job {job} came to a process that only gives jobs.")
            run(job)

        # Messages name it by this module and name, the same in every process.
        self._wake = self._huey.task(name="job")(wake)

    def put(self, job: int) -> None:
        """Wake a worker for a job.

        Raises:
            QueueError: The queue cannot be reached.
        """
        with self._reached():
            self._wake(job)

    def is_empty(self) -> bool:
        """Whether no number waits for a worker.

        Raises:
            QueueError: The queue cannot be reached.
        """
        with self._reached():
            return bool(self._huey.pending_count() == 0)

    def server_version(self) -> str | None:
        """The version of the Redis; None where the queue is a file, or Redis does not tell.

        Raises:
            QueueError: The queue cannot be reached.
        """
        if not isinstance(self._huey, RedisHuey):
            return None
        with self._reached():
            try:
                return str(self._huey.storage.conn.info("server")["redis_version"])
            except (ResponseError, KeyError):
                return None

    def consumer(self, at_once: int) -> Consumer:
        """What takes numbers from the queue, in so many threads, until a signal stops it.

        Raises:
            QueueError: The queue's file cannot be made.
        """
        with self._reached():
            return self._huey.create_consumer(
                workers=at_once, max_delay=_POLL_SECONDS, periodic=False, scheduler_interval=60
            )

    def close(self) -> None:
        """Close what is open."""
        self._huey.storage.close()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Say in a sentence that the queue cannot be used.

        Raises:
            QueueError: It cannot.
        """
        try:
            self._make()
            yield
        except RedisTimeoutError as error:
            raise QueueError("The queue cannot be reached: it gave no answer in time.") from error
        except (RedisError, sqlite3.Error, OSError) as error:
            if self._file is None:
                raise QueueError(f"The queue cannot be reached: {error}.") from error
            if is_disk_full(error):
                raise QueueDiskFullError(
                    f"The queue {self._file} cannot be used: the disk is full."
                ) from error
            raise QueueError(f"The queue {self._file} cannot be used: {error}.") from error

    def _make(self) -> None:
        """Make the file where it is missing; what fails is tried again the next time."""
        if self._file is None or self._made:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._huey.storage.initialize_schema()
        self._made = True


def queue_file(settings: Settings) -> Path:
    """The queue where no Redis is set."""
    return settings.home / "queue.sqlite3"


def give_job(
    catalogue: Catalogue, queue: JobQueue, kind: str, arguments: list[str], *, folder: str | None = None
) -> Job:
    """Queue a job and wake a worker; a queue that cannot be reached only makes it later.

    Args:
        catalogue: Where the job is kept.
        queue: What wakes a worker.
        kind: One of `app.jobs.kinds.KINDS`.
        arguments: Of the command.
        folder: Where relative paths among them begin.

    Raises:
        JobExistsError: It is a retraining of a collection that another job retrains.
    """
    with catalogue.write() as session:
        if kind == retrainings.KIND:
            retrainings.refuse_second(session, arguments)
        job = add_job(session, kind, arguments, folder=folder)
    try:
        queue.put(job.id)
    except QueueError as error:
        _log.warning("no worker was woken", job=job.id, reason=str(error))
    return job


class _Plain(Serializer):  # type: ignore[misc]
    """Messages as JSON: the library's own form is pickle, which would run what anybody puts in the queue."""

    def _serialize(self, data: Any) -> bytes:
        return json.dumps(data).encode()

    def _deserialize(self, data: bytes) -> Message:
        return Message(*json.loads(data))


def _open(settings: Settings) -> Huey:
    options = {"results": False, "serializer": _Plain()}
    if settings.queue_url is None:
        return SqliteHuey(_NAME, filename=str(queue_file(settings)), create_tables=False, **options)
    try:
        pool = ConnectionPool.from_url(
            settings.queue_url, socket_connect_timeout=_ANSWER_SECONDS, socket_timeout=_ANSWER_SECONDS
        )
        return RedisHuey(_NAME, connection_pool=pool, **options)
    except (RedisError, ValueError) as error:
        raise QueueError(f"RECOQUEST_QUEUE_URL cannot be used: {error}.") from error
