"""A queue in front of an encoder: queries are encoded in batches, and no caller can wait for ever."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import structlog
from torch import Tensor

from app.encoding.batches import AbandonedError, Batches
from app.encoding.errors import (
    FAILED,
    INVALID_TEXT,
    TOO_SLOW,
    EncodingFailedError,
    EncodingTimeoutError,
    InvalidTextError,
    QueueClosedError,
)
from app.encoding.jobs import Encoded, Job, Kind, Priority, QueryEncoder, QueueLimits, QueueObserver, fail
from app.encoding.waiting import WaitingLine

Result = TypeVar("Result")

_RESTART_PAUSE_S = 0.05
_LONGEST_LOOK_S = 1.0
# The first may be a bad moment of the machine; when its replacement hangs too, the process cannot be mended.
_MOST_HANGING = 2

_log = structlog.stdlib.get_logger(__name__)


class EncodingQueue:
    """Batches the queries of many callers for one encoder.

    A worker thread takes the queries that wait, up to a batch of one kind. Only when the batch before held
    several queries, it waits a moment for more, so that a lone query is never delayed. Every query has a
    deadline; one whose caller has gone is skipped; an error reaches the query that causes it. A supervisor
    replaces the worker when it dies, and when a forward pass outlives its limit.

    Args:
        encoder: Computes in the worker's thread only.
        limits: Bounds of waiting, batches and times.
        observer: Receives figures.
        enter: Called by each worker's thread before its work, to set the thread up.
        give_up: Called when the replacement of a hanging worker hangs too: the process has to end.
    """

    def __init__(
        self,
        encoder: QueryEncoder,
        limits: QueueLimits | None = None,
        observer: QueueObserver | None = None,
        *,
        enter: Callable[[], None] | None = None,
        give_up: Callable[[], object] | None = None,
    ) -> None:
        self._limits = limits or QueueLimits()
        self._observer = observer
        self._enter = enter
        self._give_up = give_up
        self._batches = Batches(encoder, self._limits.batch_size, observer)
        self._line = WaitingLine(self._limits.capacity)
        self._calls: deque[tuple[Callable[[], None], Future[Any]]] = deque()
        self._hanging: list[_Worker] = []
        self._changed = threading.Condition()
        self._closed = False
        self._busy = False
        self._supervisor = threading.Thread(target=self._supervise, name="encoding-supervisor", daemon=True)
        self._supervisor.start()

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

    async def encode_image(self, image: Tensor, *, priority: Priority = Priority.SEARCH) -> Encoded:
        """Vector of a prepared uint8 image (3, S, S); raises as `encode_text` does."""
        return await self._wait_for(self.submit("image", image, priority=priority))

    def submit(
        self, kind: Kind, payload: str | Tensor, *, priority: Priority = Priority.SEARCH
    ) -> Future[Encoded]:
        """Put a query into the queue and return at once.

        Raises:
            InvalidTextError: The text is not valid Unicode.
            QueueFullError: As many queries of this priority wait as the queue holds.
            QueueClosedError: The queue was closed.
        """
        if isinstance(payload, str):
            _check_unicode(payload)
        now = time.monotonic()
        job = Job(kind, payload, now + self._limits.deadline_s, priority)
        with self._changed:
            if self._closed:
                raise QueueClosedError("The encoder is being replaced; try again.")
            self._line.add(job, now)
            self._changed.notify()
        return job.future

    def call(self, work: Callable[[], Result]) -> Future[Result]:
        """Have the encoder's thread do something before all queries; no limit of time applies."""
        future: Future[Result] = Future()
        with self._changed:
            if self._closed:
                raise QueueClosedError("The encoder is being replaced; try again.")
            self._calls.append((partial(_call, work, future), future))
            self._changed.notify()
        return future

    def close(self, timeout_s: float = 5.0) -> None:
        """Refuse new queries, fail those that wait, and let the batch in work end within the time given."""
        with self._changed:
            self._closed = True
            waiting = self._line.clear()
            for _, future in self._calls:
                future.cancel()
            self._changed.notify_all()
        fail(waiting, QueueClosedError("The service is shutting down; try again."))
        self._supervisor.join(timeout_s)

    async def _wait_for(self, future: Future[Encoded]) -> Encoded:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._limits.deadline_s)
        except TimeoutError:
            raise EncodingTimeoutError(TOO_SLOW) from None

    def _supervise(self) -> None:
        while not self._closed:
            worker = _Worker(self._work)
            worker.start()
            while worker.lives(self._look_s):
                if worker.pass_seconds > self._limits.pass_limit_s:
                    self._abandon(worker)
                    break
            if self._closed:
                return
            fail(worker.batch, EncodingFailedError(FAILED))
            if self._observer is not None:
                self._observer.restarted()
            time.sleep(_RESTART_PAUSE_S)

    @property
    def _look_s(self) -> float:
        return min(self._limits.pass_limit_s / 4, _LONGEST_LOOK_S)

    def _abandon(self, worker: "_Worker") -> None:
        """Give up a worker whose pass hangs, and wait while there are as many such as may be at once."""
        worker.abandon()
        fail(worker.batch, EncodingTimeoutError(TOO_SLOW))
        self._hanging = [one for one in (*self._hanging, worker) if one.is_alive()]
        _log.error("a forward pass hangs", limit_s=self._limits.pass_limit_s, hanging=len(self._hanging))
        if len(self._hanging) >= _MOST_HANGING and not self._closed:
            _log.critical("the encoder hangs again after its worker was replaced: the process has to end")
            if self._give_up is not None:
                self._give_up()
        while len(self._hanging) >= _MOST_HANGING and not self._closed:
            time.sleep(self._look_s)
            with self._changed:
                self._line.drop_stale(time.monotonic())
            self._hanging = [one for one in self._hanging if one.is_alive()]

    def _work(self, worker: "_Worker") -> None:
        try:
            if self._enter is not None:
                self._enter()
            while batch := self._next_batch(worker):
                self._batches.encode(batch, worker)
                worker.batch = []
        except AbandonedError:
            _log.warning("a forward pass that hung has ended")
        except BaseException as error:  # noqa: BLE001 - a thread's end is reported here or nowhere
            _log.error("encoding worker died", error=type(error).__name__)

    def _next_batch(self, worker: "_Worker") -> list[Job]:
        """Wait for queries and take a batch of them; empty once closed."""
        while not self._closed:
            with self._changed:
                call = self._calls.popleft()[0] if self._calls else None
                batch = self._take(worker) if call is None else []
            if call is not None:
                call()
            elif batch:
                return batch
        return []

    def _take(self, worker: "_Worker") -> list[Job]:
        """Take a batch, or wait for a change and take none; the lock is held."""
        self._line.drop_stale(time.monotonic())
        head = self._line.head()
        if head is None:
            if not self._closed:
                self._changed.wait()
            return []
        if self._busy:
            self._changed.wait_for(partial(self._is_full, head), self._limits.batch_wait_s)
        worker.batch = self._line.take(self._batches.size)
        self._busy = len(worker.batch) > 1
        return worker.batch

    def _is_full(self, head: Job) -> bool:
        return self._closed or self._line.count(head) >= self._batches.size


class _Worker(threading.Thread):
    """A thread that encodes; the supervisor sees how long its pass takes and may give it up."""

    def __init__(self, work: Callable[["_Worker"], None]) -> None:
        super().__init__(name="encoding-worker", daemon=True)
        self._todo = work
        self._guard = threading.Lock()
        self._abandoned = False
        self._pass_began: float | None = None
        self.batch: list[Job] = []

    @property
    def pass_seconds(self) -> float:
        """Seconds that the pass in work has taken; 0 between passes."""
        began = self._pass_began
        return 0.0 if began is None else time.monotonic() - began

    def run(self) -> None:
        """Encode until the queue is closed or the thread given up."""
        self._todo(self)

    def lives(self, seconds: float) -> bool:
        """Wait for the thread's end; whether it still runs."""
        self.join(seconds)
        return self.is_alive()

    def abandon(self) -> None:
        """Let the thread end as soon as its pass does."""
        with self._guard:
            self._abandoned = True

    def begin_pass(self) -> None:
        """Take note that a forward pass begins."""
        with self._guard:
            if self._abandoned:
                raise AbandonedError
            self._pass_began = time.monotonic()

    def end_pass(self) -> None:
        """Take note that the forward pass is over."""
        with self._guard:
            self._pass_began = None
            if self._abandoned:
                raise AbandonedError


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
