"""A queue in front of an encoder: queries are encoded in batches, and no caller can wait for ever."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.errors import MissingModalityError, RecoquestError
from training.models.encoder import TextEmbeddings
from training.models.preprocessing import Truncation

Kind = Literal["text", "image"]

_RESTART_PAUSE_S = 0.05

_log = structlog.stdlib.get_logger(__name__)


class EncodingError(RecoquestError):
    """A query could not be turned into a vector."""


class QueueFullError(EncodingError):
    """More queries wait than the queue holds."""


class EncodingTimeoutError(EncodingError):
    """The vector was not there by the deadline."""


class QueueClosedError(EncodingError):
    """The queue is closed; its encoder is no longer in use."""


class EncodingFailedError(EncodingError):
    """The encoder raised an error on the batch."""


class QueryEncoder(Protocol):
    """What the queue needs of an encoder."""

    def embed_images(self, images: Tensor) -> NDArray[np.float32]:
        """Vectors (B, D) of uint8 images (B, 3, S, S)."""

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Vectors (B, D) of texts, with how each was cut."""


class QueueObserver(Protocol):
    """Who is told what the queue does."""

    def encoded(self, kind: Kind, size: int, seconds: float) -> None:
        """A batch has been through the encoder."""

    def restarted(self) -> None:
        """A worker died and was replaced."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of a queue: items, and seconds."""

    batch_size: int = 16
    batch_wait_s: float = 0.003
    capacity: int = 64
    deadline_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Encoded:
    """Vector (D,) of one query and how its text was cut."""

    vector: NDArray[np.float32]
    truncation: Truncation | None = None


@dataclass(slots=True)
class _Job:
    kind: Kind
    payload: str | Tensor
    deadline: float
    future: Future[Encoded] = field(default_factory=Future)


class EncodingQueue:
    """Batches the queries of many callers for one encoder.

    A worker thread takes whatever waits, up to a batch of one kind. Only when the batch before held several
    queries, it waits a moment for more, so that a lone query is never delayed. Every query has a deadline;
    one whose caller has gone is skipped; an error reaches all callers of its batch. A supervisor replaces
    the worker when it dies.
    """

    def __init__(
        self,
        encoder: QueryEncoder,
        limits: QueueLimits | None = None,
        observer: QueueObserver | None = None,
    ) -> None:
        self._encoder = encoder
        self._limits = limits or QueueLimits()
        self._observer = observer
        self._jobs: deque[_Job] = deque()
        self._in_flight: list[_Job] = []
        self._changed = threading.Condition()
        self._closed = False
        self._busy = False
        self._last_success = float("-inf")
        self._supervisor = threading.Thread(target=self._supervise, name="encoding-supervisor", daemon=True)
        self._supervisor.start()

    @property
    def depth(self) -> int:
        """Number of queries that wait."""
        return len(self._jobs)

    @property
    def seconds_since_success(self) -> float:
        """Seconds since the encoder last finished a batch; infinite before the first."""
        return time.monotonic() - self._last_success

    async def encode_text(self, text: str, *, urgent: bool = False) -> Encoded:
        """Vector of a text.

        Args:
            text: The query.
            urgent: Goes before all that wait, for checks of health.

        Raises:
            EncodingError: The queue is full or closed, the deadline passed, or the encoder failed.
            MissingModalityError: The encoder was trained without texts.
        """
        return await self._wait_for(self.submit("text", text, urgent=urgent))

    async def encode_image(self, image: Tensor, *, urgent: bool = False) -> Encoded:
        """Vector of a prepared uint8 image (3, S, S); raises as `encode_text` does."""
        return await self._wait_for(self.submit("image", image, urgent=urgent))

    def submit(self, kind: Kind, payload: str | Tensor, *, urgent: bool = False) -> Future[Encoded]:
        """Put a query into the queue and return at once.

        Raises:
            QueueFullError: As many queries wait as the queue holds.
            QueueClosedError: The queue was closed.
        """
        job = _Job(kind, payload, time.monotonic() + self._limits.deadline_s)
        with self._changed:
            if self._closed:
                raise QueueClosedError("The encoder is being replaced; try again.")
            if len(self._jobs) >= self._limits.capacity and not urgent:
                self._drop_stale()
            if len(self._jobs) >= self._limits.capacity:
                raise QueueFullError("Too many searches are waiting; try again in a moment.")
            if urgent:
                self._jobs.appendleft(job)
            else:
                self._jobs.append(job)
            self._changed.notify()
        return job.future

    def close(self, timeout_s: float = 5.0) -> None:
        """Refuse new queries, fail those that wait, and let the batch in work end within the time given."""
        with self._changed:
            self._closed = True
            waiting = list(self._jobs)
            self._jobs.clear()
            self._changed.notify_all()
        _fail(waiting, QueueClosedError("The service is shutting down; try again."))
        self._supervisor.join(timeout_s)

    async def _wait_for(self, future: Future[Encoded]) -> Encoded:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._limits.deadline_s)
        except TimeoutError:
            raise EncodingTimeoutError(_TOO_SLOW) from None

    def _supervise(self) -> None:
        while not self._closed:
            worker = threading.Thread(target=self._work, name="encoding-worker", daemon=True)
            worker.start()
            worker.join()
            if self._closed:
                return
            _fail(self._in_flight, EncodingFailedError(_FAILED))
            if self._observer is not None:
                self._observer.restarted()
            time.sleep(_RESTART_PAUSE_S)

    def _work(self) -> None:
        try:
            while batch := self._next_batch():
                self._encode(batch)
                self._in_flight = []
        except BaseException as error:  # noqa: BLE001 - a thread's end is reported here or nowhere
            _log.error("encoding worker died", error=type(error).__name__)

    def _next_batch(self) -> list[_Job]:
        """Wait for queries and take those of one kind, oldest first; empty once closed."""
        with self._changed:
            while not self._closed:
                self._drop_stale()
                if not self._jobs:
                    self._changed.wait()
                    continue
                kind = self._jobs[0].kind
                if self._busy:
                    self._changed.wait_for(partial(self._is_full, kind), self._limits.batch_wait_s)
                if batch := self._take(kind):
                    self._busy = len(batch) > 1
                    self._in_flight = batch
                    return batch
            return []

    def _is_full(self, kind: Kind) -> bool:
        return self._closed or sum(job.kind == kind for job in self._jobs) >= self._limits.batch_size

    def _take(self, kind: Kind) -> list[_Job]:
        batch: list[_Job] = []
        rest: deque[_Job] = deque()
        for job in self._jobs:
            if job.kind != kind or len(batch) == self._limits.batch_size:
                rest.append(job)
            elif job.future.set_running_or_notify_cancel():
                batch.append(job)
        self._jobs = rest
        return batch

    def _drop_stale(self) -> None:
        """Forget queries whose caller has gone or whose deadline has passed."""
        now = time.monotonic()
        if any(job.future.cancelled() or job.deadline <= now for job in self._jobs):
            _fail([job for job in self._jobs if job.deadline <= now], EncodingTimeoutError(_TOO_SLOW))
            self._jobs = deque(job for job in self._jobs if not job.future.done())

    def _encode(self, batch: list[_Job]) -> None:
        started = time.perf_counter()
        try:
            results = self._vectors(batch)
        except MissingModalityError as error:
            _fail(batch, error)
            return
        except Exception as error:  # noqa: BLE001 - whatever the encoder raises must reach the callers
            _log.error("encoding failed", kind=batch[0].kind, size=len(batch), error=type(error).__name__)
            _fail(batch, EncodingFailedError(_FAILED), cause=error)
            return
        seconds = time.perf_counter() - started
        self._last_success = time.monotonic()
        for job, result in zip(batch, results, strict=True):
            job.future.set_result(result)
        if self._observer is not None:
            self._observer.encoded(batch[0].kind, len(batch), seconds)

    def _vectors(self, batch: list[_Job]) -> list[Encoded]:
        truncations: Sequence[Truncation | None] = [None] * len(batch)
        if batch[0].kind == "text":
            embeddings = self._encoder.embed_texts(
                [job.payload for job in batch if isinstance(job.payload, str)]
            )
            vectors, truncations = embeddings.vectors, embeddings.truncations
        else:
            images = [job.payload for job in batch if isinstance(job.payload, Tensor)]
            vectors = self._encoder.embed_images(torch.stack(images))
        if len(vectors) != len(batch) or not np.isfinite(vectors).all():
            raise EncodingFailedError(_FAILED)
        return [Encoded(vector, cut) for vector, cut in zip(vectors, truncations, strict=True)]


_TOO_SLOW = "The query could not be encoded in time; try again when the service is less busy."
_FAILED = "The encoder failed on this query; the service's log says why."


def _fail(jobs: Sequence[_Job], error: RecoquestError, cause: BaseException | None = None) -> None:
    for job in jobs:
        if job.future.running() or (not job.future.done() and job.future.set_running_or_notify_cancel()):
            # One error object for several waiting callers would gather all their tracebacks.
            own = type(error)(*error.args)
            own.__cause__ = cause
            job.future.set_exception(own)
