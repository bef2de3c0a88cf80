"""A queue in front of an encoder: queries are encoded in batches, and no caller can wait for ever."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from app.concurrency import record_waited
from app.encoding.batches import AbandonedError, Batches
from app.encoding.errors import (
    FAILED,
    INVALID_TEXT,
    TOO_SLOW,
    EncodingError,
    EncodingFailedError,
    EncodingTimeoutError,
    InvalidTextError,
    QueueClosedError,
)
from app.encoding.jobs import Encoded, Job, Kind, Priority, QueryEncoder, QueueLimits, QueueObserver, fail
from app.encoding.waiting import PriorityQueue
from app.encoding.worker import Worker
from training.models.inputs.images import Pixels

Result = TypeVar("Result")

_RESTART_PAUSE_S = 0.05
_MAX_LOOK_S = 1.0
# No text waits to be encoded together with others behind a pass that takes longer.
_SLOW_PASS_S = 1.0

_log = structlog.stdlib.get_logger(__name__)


class EncodingQueue:
    """Batches the queries of many callers for one encoder.

    A worker thread takes the queries that wait, up to a batch of one kind. Only when the batch before held
    several queries, it waits a moment for more, so that a lone query is never delayed. Every query has a
    deadline; one whose caller has gone is skipped; an error reaches the query that causes it. A supervisor
    replaces a worker when it dies, and when a forward pass outlives its limit.

    There is a worker for each lane. The lanes beside the first join in only when enough queries wait for a
    pass of their own, so that a few are still encoded together.

    Args:
        encoder: Computes in the workers' threads only.
        limits: Bounds of waiting, batches and times.
        observer: Receives figures.
        lanes: Number of workers that encode side by side.
        enter: Called by a worker's thread before each pass, with whether no other lane is at work.
        give_up: Called when the replacements of hanging workers hang too: the process has to end.
    """

    def __init__(
        self,
        encoder: QueryEncoder,
        limits: QueueLimits | None = None,
        observer: QueueObserver | None = None,
        *,
        lanes: int = 1,
        enter: Callable[[bool], None] | None = None,
        give_up: Callable[[], object] | None = None,
    ) -> None:
        self._limits = limits or QueueLimits()
        self._observer = observer
        self._enter = enter
        self._give_up = give_up
        self._batches = Batches(encoder, self._limits.batch_size, observer)
        self._line = PriorityQueue(self._limits.capacity)
        self._calls: deque[tuple[Callable[[], None], Future[Any]]] = deque()
        self._hanging: list[Worker] = []
        self._lock = threading.Lock()
        # The first lane waits apart from the others, which are woken only when there is enough for them.
        self._first, self._others = threading.Condition(self._lock), threading.Condition(self._lock)
        self._closed = False
        self._workers: dict[int, Worker] = {}
        self._supervisors = [
            threading.Thread(target=self._supervise, args=(lane,), name="encoding-supervisor", daemon=True)
            for lane in range(lanes)
        ]
        for supervisor in self._supervisors:
            supervisor.start()

    @property
    def depth(self) -> int:
        """Number of queries that wait."""
        return len(self._line)

    @property
    def seconds_since_success(self) -> float:
        """Seconds since the encoder last finished a batch; infinite before the first."""
        return time.monotonic() - self._batches.last_success

    async def encode_text(self, text: str, *, priority: Priority = Priority.SEARCH) -> Encoded:
        """Vector of a text.

        Raises:
            InvalidTextError: The text is not valid Unicode.
            EncodingError: The queue is full or closed, the deadline passed, or the encoder failed.
            MissingModalityError: The encoder was trained without texts.
        """
        return await self._wait_for(self.submit("text", text, priority=priority))

    async def encode_image(self, image: Pixels, *, priority: Priority = Priority.SEARCH) -> Encoded:
        """Vector of a prepared image (3, S, S); raises as `encode_text` does."""
        return await self._wait_for(self.submit("image", image, priority=priority))

    async def encode_regions(self, image: Pixels) -> NDArray[np.float32]:
        """Embeddings (K, D) of the regions of a prepared image (3, S, S); raises as `encode_text` does."""
        return (await self._wait_for(self.submit("regions", image))).vector

    def submit(
        self, kind: Kind, payload: str | Pixels, *, priority: Priority = Priority.SEARCH
    ) -> Future[Encoded]:
        """Put a query into the queue and return at once.

        Raises:
            InvalidTextError: The text is not valid Unicode.
            QueueFullError: The queue is full of queries of this priority.
            QueueClosedError: The queue was closed.
        """
        if isinstance(payload, str):
            _check_unicode(payload)
        now = time.monotonic()
        job = Job(kind, payload, now + self._limits.deadline_s, priority)
        with self._lock:
            if self._closed:
                raise QueueClosedError("The encoder is being replaced; try again.")
            self._line.add(job, now)
            self._first.notify()
            self._wake_another()
        return job.future

    def call(self, work: Callable[[], Result]) -> Future[Result]:
        """Have the encoder's thread do something before all queries; no limit of time applies."""
        future: Future[Result] = Future()
        with self._lock:
            if self._closed:
                raise QueueClosedError("The encoder is being replaced; try again.")
            self._calls.append((partial(_call, work, future), future))
            self._first.notify()
        return future

    def close(self, timeout_s: float = 5.0) -> None:
        """Refuse new queries, fail those that wait, and let the batch in work end within the time given."""
        with self._lock:
            self._closed = True
            waiting = self._line.clear()
            for _, future in self._calls:
                future.cancel()
            self._first.notify_all()
            self._others.notify_all()
        fail(waiting, QueueClosedError("The service is shutting down; try again."))
        end = time.monotonic() + timeout_s
        for supervisor in self._supervisors:
            supervisor.join(max(0.0, end - time.monotonic()))

    async def _wait_for(self, future: Future[Encoded]) -> Encoded:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                encoded = await asyncio.wrap_future(future)
        except TimeoutError:
            raise EncodingTimeoutError(TOO_SLOW) from None
        record_waited("encode", time.perf_counter() - started, encoded.pass_s)
        return encoded

    def _supervise(self, lane: int) -> None:
        while not self._closed:
            worker = self._workers[lane] = Worker(lane, self._work)
            if not self._starts(worker):
                time.sleep(self._look_s)
                continue
            while worker.lives(self._look_s):
                if worker.pass_seconds > self._limits.pass_limit_s:
                    self._abandon(worker)
                    break
                if worker.pass_seconds > _SLOW_PASS_S:
                    self._wake_beside(worker)
            if self._closed:
                return
            self._clear(worker, EncodingFailedError(FAILED))
            if self._observer is not None:
                self._observer.restarted()
            time.sleep(_RESTART_PAUSE_S)

    def _starts(self, worker: Worker) -> bool:
        """Start a worker; whether the system has a thread for it, else it is tried again."""
        try:
            worker.start()
        except RuntimeError as error:
            _log.error("an encoding worker does not start", reason=str(error))
            return False
        return True

    @property
    def _look_s(self) -> float:
        return min(self._limits.pass_limit_s / 4, _MAX_LOOK_S)

    def _clear(self, worker: Worker, error: EncodingError) -> None:
        """Fail the queries of a worker that is gone, and let another lane take those that wait."""
        fail(worker.batch, error)
        with self._lock:
            worker.batch = []
            self._first.notify_all()
            self._others.notify_all()

    def _abandon(self, worker: Worker) -> None:
        """Give up a worker whose pass hangs, and wait while there are as many such as may be at once."""
        worker.abandon()
        self._clear(worker, EncodingTimeoutError(TOO_SLOW))
        # Every lane may hang once, and one replacement.
        most = len(self._supervisors) + 1
        with self._lock:
            self._hanging = [one for one in (*self._hanging, worker) if one.is_alive()]
            hanging = len(self._hanging)
        _log.error("a forward pass hangs", limit_s=self._limits.pass_limit_s, hanging=hanging)
        if hanging >= most and not self._closed:
            _log.critical("the encoder hangs again after its worker was replaced: the process has to end")
            if self._give_up is not None:
                self._give_up()
        while len(self._hanging) >= most and not self._closed:
            time.sleep(self._look_s)
            with self._lock:
                self._line.drop_stale(time.monotonic())
                self._hanging = [one for one in self._hanging if one.is_alive()]

    def _work(self, worker: Worker) -> None:
        try:
            while batch := self._next_batch(worker):
                if self._enter is not None:
                    self._enter(self._is_alone(worker))
                self._batches.encode(batch, worker)
                worker.batch = []
        except AbandonedError:
            # A batch that it took just before it was given up.
            fail(worker.batch, EncodingTimeoutError(TOO_SLOW))
            _log.warning("a forward pass that hung has ended")
        except BaseException as error:  # noqa: BLE001 - a thread's end is reported here or nowhere
            _log.error("encoding worker died", error=type(error).__name__)

    def _next_batch(self, worker: Worker) -> list[Job]:
        """Wait for queries and take a batch of them; empty once closed."""
        while not self._closed:
            with self._lock:
                call = self._calls.popleft()[0] if self._calls and worker.lane == 0 else None
                batch = self._take(worker) if call is None else []
            if call is not None:
                call()
            elif batch:
                return batch
        return []

    def _take(self, worker: Worker) -> list[Job]:
        """Take a batch, or wait for a change and take none; the lock is held."""
        changed = self._first if worker.lane == 0 else self._others
        self._line.drop_stale(time.monotonic())
        head = self._line.head()
        if head is None or not self._joins(worker, head):
            if head is not None and worker.lane > 0:
                # The first may have left these to this worker's batch, which is over.
                self._first.notify()
            if not self._closed:
                changed.wait()
            return []
        if worker.busy:
            changed.wait_for(partial(self._is_full, head), self._limits.batch_wait_s)
        worker.batch = self._line.take(self._batches.size)
        worker.busy = len(worker.batch) > 1
        self._wake_another()
        return worker.batch

    def _is_alone(self, worker: Worker) -> bool:
        return not any(other.batch for other in list(self._workers.values()) if other is not worker)

    def _joins(self, worker: Worker, head: Job) -> bool:
        """Whether a worker takes a batch: the first while no other works, any if enough wait for one more."""
        if self._is_alone(worker):
            return worker.lane == 0
        return self._line.count(head) >= self._worth(head)

    def _wake_another(self) -> None:
        """Wake a lane beside the first if one is at work and enough wait for another."""
        if any(worker.batch for worker in self._workers.values()):
            head = self._line.head()
            if head is not None and self._line.count(head) >= self._worth(head):
                self._others.notify()

    def _wake_beside(self, slow: Worker) -> None:
        """Let another lane take what waits behind a pass that has become slow: few are worth a pass now."""
        with self._lock:
            if slow.lane > 0:
                self._first.notify()
            self._wake_another()

    def _worth(self, head: Job) -> int:
        """Number of queries that justify a pass beside those at work.

        The more texts a pass has, the less it costs for each, so a few wait for the next pass of texts; not
        for one of images, nor for one that may hang, and no probe waits.
        """
        if head.kind != "text" or head.priority is Priority.PROBE:
            return 1
        soon = any(
            worker.batch and worker.batch[0].kind == "text" and worker.pass_seconds < _SLOW_PASS_S
            for worker in list(self._workers.values())
        )
        return max(1, self._batches.size // 2) if soon else 1

    def _is_full(self, head: Job) -> bool:
        return self._closed or self._line.count(head) >= self._batches.size


def _call(work: Callable[[], Result], future: Future[Result]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidTextError(INVALID_TEXT) from None
