"""A few processes that decode within limits, with one bounded queue of priorities."""

import itertools
import logging
import os
import subprocess
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter
from typing import Any, Final, Literal, Protocol

from training.common.errors import ImageError, ImageTooLargeError, RecoquestError
from training.common.workers import LossReason, Worker, WorkerLostError, WorkerPool, start_process

Outcome = Literal["done", "refused", "too-large", "memory"]
DecodeOutcome = Literal[Outcome, LossReason]

_OUTCOMES: Final = frozenset({"done", "refused", "too-large", "memory"})
# One thread each, and no memory kept after an image.
_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
# Settings may hold secrets, and a decoder of untrusted files needs none of them.
_SECRETS: Final = "RECOQUEST_"
_MAX_REASON: Final = 1_000
_TOO_SLOW: Final = "The image could not be decoded in time; try again later."
_NO_PROCESS: Final = "Images cannot be decoded now; try again in a moment."
_CLOSED: Final = "Images are decoded no more: this process is shutting down; try again."

_log = logging.getLogger(__name__)


class DecodingError(RecoquestError):
    """A task was not done by the processes of a pool."""


class DecodersBusyError(DecodingError):
    """More tasks wait than the queue holds."""


class DecodingTimeoutError(DecodingError):
    """The answer was not there by the deadline."""


class DecodersClosedError(DecodingError):
    """The pool is closed; it takes no more tasks."""


class DecoderStartError(RecoquestError):
    """No decoding process can be started."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task for a process.

    Attributes:
        header: JSON values; `task` names it.
        answer_bytes: Limit of the answer's body.
        content: A file.
    """

    header: dict[str, Any]
    answer_bytes: int
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a process, well-formed yet untrusted, and the seconds that it took."""

    outcome: Outcome
    header: dict[str, Any]
    body: bytearray
    seconds: float = 0.0


class Priority(IntEnum):
    """Priority of a task."""

    SEARCH = 0
    UPLOAD = 1
    THUMBNAIL = 2


class DecodingObserver(Protocol):
    """Receiver of figures: outcomes of tasks and restarts of processes."""

    def decoded(self, outcome: DecodeOutcome) -> None:
        """A task has ended."""

    def decoder_restarted(self, reason: LossReason) -> None:
        """A process was lost and is replaced."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Bounds of a pool.

    Attributes:
        worker: Module that runs in the processes and calls `worker.serve`.
        processes: Number of processes.
        waiting: Maximum number of waiting tasks.
        deadline_s: Default seconds from the submission of a task to its answer.
        memory_bytes: Address space of a process beyond what it takes when it is idle.
        cpu_s: CPU seconds of a task.
    """

    worker: str
    processes: int
    waiting: int
    deadline_s: float
    memory_bytes: int
    cpu_s: int = 5


@dataclass(slots=True)
class _Job:
    task: Task
    rank: tuple[Priority, int]
    deadline: float
    future: Future[Answer] = field(default_factory=Future)


_RANK: Final = attrgetter("rank")


class DecodingPool:
    """Runs tasks in processes that are killed when they overrun or are stopped, and replaced.

    A task whose process was stopped is done once more by the next one. A task that waits is dropped when its
    caller has gone or its time is over. One at work keeps its slot until its process has answered or
    has ended, whatever its caller does.
    """

    def __init__(self, limits: PoolLimits, observer: DecodingObserver | None = None) -> None:
        self._limits = limits
        self._observer = observer
        self._jobs: list[_Job] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._busy = 0
        self._workers = WorkerPool(self._start, limits.processes, self._report_restart)
        self._threads = [
            threading.Thread(target=self._serve, name="decoding", daemon=True)
            for _ in range(limits.processes)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Number of tasks that wait."""
        return len(self._jobs)

    @property
    def busy(self) -> int:
        """Number of tasks at work."""
        return self._busy

    @property
    def pids(self) -> list[int]:
        """The processes that are ready, by their number in the system."""
        return [worker.pid for worker in self._workers.workers if worker.is_ready]

    @property
    def deadline_s(self) -> float:
        """Longest that a task takes, its wait included."""
        return self._limits.deadline_s

    def submit(self, task: Task, priority: Priority, deadline_s: float | None = None) -> Future[Answer]:
        """Put a task into the queue and return at once.

        In a full queue it replaces the latest task of lower priority. The future raises ImageTooLargeError
        when the image is over its limits, including memory and CPU time, ImageError when it is none or
        crashes the process, DecodersBusyError when a task of higher priority replaced it,
        DecodingTimeoutError, DecodersClosedError, or DecoderStartError.

        Raises:
            DecodersBusyError: The queue is full of tasks of this priority or a higher one.
            DecodersClosedError: The pool was closed.
        """
        with self._changed:
            if self._closed:
                raise DecodersClosedError(_CLOSED)
            until = time.monotonic() + (deadline_s or self._limits.deadline_s)
            job = _Job(task, (priority, next(self._order)), until)
            self._drop_stale()
            if len(self._jobs) >= self._limits.waiting:
                last = max(self._jobs, key=_RANK)
                full = DecodersBusyError("Too many images are waiting; try again in a moment.")
                if last.rank[0] <= priority:
                    raise full
                self._jobs.remove(last)
                _fail(last, full)
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def close(self, timeout_s: float = 2.0) -> None:
        """Refuse new tasks, fail those that wait, and kill all processes."""
        with self._changed:
            self._closed = True
            jobs, self._jobs = self._jobs, []
            self._changed.notify_all()
        self._workers.close()
        for job in jobs:
            _fail(job, DecodersClosedError(_CLOSED))
        until = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _drop_stale(self) -> None:
        now, kept = time.monotonic(), []
        for job in self._jobs:
            if job.deadline <= now:
                _fail(job, DecodingTimeoutError(_TOO_SLOW))
            elif not job.future.cancelled():
                kept.append(job)
        self._jobs = kept

    def _next(self) -> _Job | None:
        """Wait for the first task by priority and take it; None once closed."""
        with self._changed:
            while not self._closed:
                self._drop_stale()
                if not self._jobs:
                    self._changed.wait()
                    continue
                job = min(self._jobs, key=_RANK)
                self._jobs.remove(job)
                if job.future.set_running_or_notify_cancel():
                    self._busy += 1
                    return job
            return None

    def _start(self) -> Worker:
        """Start a process; it ends with the thread that does so, one that serves until the pool is closed."""
        kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(_SECRETS)}
        return start_process(
            self._limits.worker,
            self._limits.memory_bytes,
            self._limits.cpu_s,
            environment={**kept, **_ENVIRONMENT},
            stderr=subprocess.DEVNULL,
        )

    def _serve(self) -> None:
        while not self._closed:
            job = None
            try:
                # Before there is a task for it: starting takes longer than decoding.
                with self._workers.taken():
                    job = self._next()
            except WorkerLostError as lost:
                if not self._closed:
                    _log.error("decoding process does not start: %s", lost.__cause__ or lost)
                    job = self._next()
            if job is not None:
                self._work(job)
            # Free the image: the variable would keep it until the next job comes.
            del job

    def _work(self, job: _Job, *, again: bool = False) -> None:
        """Do a task; its caller gets any error."""
        worker: Worker | None = None
        try:
            with self._workers.taken() as worker:
                answer = self._answer(worker, job)
        except WorkerLostError as lost:
            # The system kills processes where memory is short, whatever they decode.
            if worker is not None and lost.reason in ("stopped", "crash") and not again:
                self._work(job, again=True)
            elif worker is not None:
                self._finish(job, lost.reason, _loss_error(lost, self._limits))
            elif self._closed:
                self._finish(job, "closed", DecodersClosedError(_CLOSED))
            else:
                self._finish(job, "crash", DecoderStartError(_NO_PROCESS))
        except BaseException as error:  # noqa: BLE001 - else its caller would wait for ever
            self._finish(job, "crash", error)
        else:
            reason = str(answer.header.get("reason", ""))[:_MAX_REASON]
            results: dict[Outcome, Answer | Exception] = {
                "done": answer,
                "refused": ImageError(reason),
                "too-large": ImageTooLargeError(reason),
                "memory": _loss_error(WorkerLostError("memory"), self._limits),
            }
            self._finish(job, answer.outcome, results[answer.outcome])

    def _answer(self, worker: Worker, job: _Job) -> Answer:
        started = time.monotonic()
        header, body = worker.ask(job.task.header, job.task.content, job.task.answer_bytes, job.deadline)
        outcome = header.get("outcome")
        if outcome not in _OUTCOMES:
            raise WorkerLostError("crash")
        if outcome == "memory":
            worker.kill("memory")
        return Answer(outcome, header, body, time.monotonic() - started)

    def _finish(self, job: _Job, outcome: DecodeOutcome, result: Answer | BaseException) -> None:
        with self._changed:
            self._busy -= 1
        if self._observer is not None:
            self._observer.decoded(outcome)
        if isinstance(result, BaseException):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)

    def _report_restart(self, reason: LossReason) -> None:
        if self._closed:
            return
        _log.warning("decoding process replaced: %s", reason)
        if self._observer is not None:
            self._observer.decoder_restarted(reason)


def _fail(job: _Job, error: Exception) -> None:
    if job.future.set_running_or_notify_cancel():
        job.future.set_exception(error)


def _loss_error(lost: WorkerLostError, limits: PoolLimits) -> Exception:
    errors: dict[LossReason, Exception] = {
        "memory": ImageTooLargeError(
            f"Decoding the image takes more memory than the {limits.memory_bytes / 1e6:,.0f} MB that one may "
            "take; make it smaller."
        ),
        "cpu": ImageTooLargeError(
            f"Decoding the image takes more than {limits.cpu_s} seconds of work; make it smaller, or save it "
            "anew."
        ),
        "crash": ImageError("The image cannot be decoded: its decoder broke down; save it anew."),
        "closed": DecodersClosedError(_CLOSED),
    }
    error = errors.get(lost.reason) or DecodingTimeoutError(_TOO_SLOW)
    error.__cause__ = lost
    return error
