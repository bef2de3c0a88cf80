"""A queue in front of an encoder: queries are encoded in batches, and no caller can wait for ever."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Literal, Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from app.concurrency import record_waited
from training.common.errors import MissingModalityError, RecoquestError
from training.models.embeddings import TextEmbeddings
from training.models.inputs.images import Pixels
from training.models.inputs.texts import Truncation

Kind = Literal["text", "image", "regions"]

# A pass that outlives the deadline has no caller left, but a paused machine is not yet a hanging encoder.
_DEADLINES_OF_A_PASS = 2.0
_SHORTEST_PASS_LIMIT_S = 10.0
# Under a constant load of searches, uploads get every fifth pass, of a quarter of a batch: a search waits
# behind few of them, and no upload waits for ever.
_SEARCH_PASSES_IN_A_ROW = 4
_UPLOAD_SHARE = 4
# Oldest batches among which the texts of a batch are chosen by length.
_CHOICE = 2
_SMALLER_BATCHES_S = 60.0
# No text waits to be encoded together with others behind a batch that takes longer.
_SLOW_PASS_S = 1.0
# How often an idle lane looks for such a batch.
_LOOK_S = 0.5
TOO_SLOW = "The query could not be encoded in time; try again when the service is less busy."
FAILED = "The encoder failed on this query; the service's log says why."
NO_MEMORY = "There is too little memory to encode this query now; try again in a moment."
INVALID_TEXT = "The text holds half of a surrogate pair, which is no character: send valid Unicode."

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
    """The encoder raised an error on this query alone, or gave no finite vector."""


class EncoderLostError(EncodingError):
    """The process that encodes ended, or was killed, before it answered."""


class EncoderMemoryError(EncodingError):
    """The memory did not suffice for this query alone."""


class InvalidTextError(EncodingError):
    """The text is not valid Unicode, so no tokenizer takes it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception of NumPy or torch, on the CPU or a GPU, reports a failed allocation."""
    if isinstance(error, MemoryError):
        return True
    words = str(error).lower() if isinstance(error, RuntimeError) else ""
    return "out of memory" in words or "can't allocate memory" in words


class Priority(IntEnum):
    """Order of service; the lowest number goes first."""

    PROBE = 0
    SEARCH = 1
    UPLOAD = 2


class QueryEncoder(Protocol):
    """The interface of an encoder that the queue uses."""

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        """Vectors (B, D) of prepared images (B, 3, S, S)."""

    def embed_regions(self, images: Pixels) -> NDArray[np.float32]:
        """Embeddings (B, K, D) of the regions of prepared images."""

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Vectors (B, D) of texts, with how each was cut."""


class QueueObserver(Protocol):
    """Receiver of a queue's figures."""

    def encoded(self, kind: Kind, size: int, seconds: float) -> None:
        """A batch has been through the encoder."""

    def restarted(self) -> None:
        """A worker died or hung and was replaced."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of a queue: items, and seconds.

    Attributes:
        batch_size: Most queries of one forward pass.
        batch_wait_s: Seconds that a busy worker waits for a batch to fill.
        capacity: Most queries of each priority that wait.
        deadline_s: Longest a query waits for its vector.
        hang_s: Longest forward pass; None derives it from the deadline.
    """

    batch_size: int = 16
    batch_wait_s: float = 0.003
    capacity: int = 64
    deadline_s: float = 10.0
    hang_s: float | None = None

    @property
    def pass_limit_s(self) -> float:
        """Seconds after which a forward pass is taken to hang."""
        if self.hang_s is not None:
            return self.hang_s
        return max(_DEADLINES_OF_A_PASS * self.deadline_s, _SHORTEST_PASS_LIMIT_S)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Vector (D,) of one query, how its text was cut, its tokens, and the seconds of its forward pass.

    Of the kind `regions` it is the embeddings (K, D) of an image's regions.
    """

    vector: NDArray[np.float32]
    truncation: Truncation | None = None
    tokens: int = 0
    pass_s: float = 0.0


@dataclass(slots=True, eq=False)
class Job:
    """A query with its deadline (monotonic seconds) and the future of its vector."""

    kind: Kind
    payload: str | Pixels
    deadline: float
    priority: Priority = Priority.SEARCH
    future: Future[Encoded] = field(default_factory=Future)

    @property
    def length(self) -> int:
        """Characters of a text; 0 of an image, which all cost the same."""
        return len(self.payload) if isinstance(self.payload, str) else 0

    def fits(self, other: "Job") -> bool:
        """Whether a batch may hold both: of one kind, and either uploads or searches and probes."""
        is_upload = self.priority is Priority.UPLOAD
        return self.kind == other.kind and is_upload == (other.priority is Priority.UPLOAD)


def fail(jobs: Sequence[Job], error: RecoquestError, cause: BaseException | None = None) -> None:
    """Give the queries that have no answer yet an error, each an object of its own."""
    for job in jobs:
        if job.future.running() or (not job.future.done() and job.future.set_running_or_notify_cancel()):
            # One error object for several waiting callers would gather all their tracebacks.
            own = type(error)(*error.args)
            # The frames of a traceback keep the tensors of a failed pass alive.
            own.__cause__ = None if cause is None else cause.with_traceback(None)
            with suppress(InvalidStateError):
                job.future.set_exception(own)


class PriorityQueue:
    """Queries that wait, in order of arrival; its owner's lock guards it.

    Where more wait than a batch holds, the oldest takes with it those of about its length: a pass costs as
    much for each text as for the longest. Each priority has places of its own, so that uploads cannot fill
    those of searches.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._jobs: list[Job] = []
        self._passes_before_uploads = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job, now: float) -> None:
        """Put a query at the end of its line.

        Raises:
            QueueFullError: All places of its priority are taken.
        """
        if self._is_full(job.priority):
            self.drop_stale(now)
        if self._is_full(job.priority):
            waiting = "uploads" if job.priority is Priority.UPLOAD else "searches"
            raise QueueFullError(f"Too many {waiting} are waiting; try again in a moment.")
        self._jobs.append(job)

    def head(self) -> Job | None:
        """The query that the next batch begins with; None if none waits."""
        searches_had_their_turn = self._passes_before_uploads >= _SEARCH_PASSES_IN_A_ROW

        def turn(job: Job) -> float:
            return 0.5 if searches_had_their_turn and job.priority is Priority.UPLOAD else job.priority

        return min(self._jobs, key=turn, default=None)

    def count(self, head: Job) -> int:
        """Number of queries that fit a batch with `head`."""
        return sum(job.fits(head) for job in self._jobs)

    def take(self, limit: int) -> list[Job]:
        """Take the next batch: queries of one kind, at most `limit`, either of uploads or of searches."""
        head = self.head()
        if head is None:
            return []
        if head.priority is not Priority.UPLOAD:
            self._passes_before_uploads += any(job.priority is Priority.UPLOAD for job in self._jobs)
        else:
            self._passes_before_uploads = 0
            if any(job.priority is Priority.SEARCH for job in self._jobs):
                limit = max(1, limit // _UPLOAD_SHARE)
        fitting = sorted((job for job in self._jobs if job.fits(head)), key=lambda job: job.priority)
        if len(fitting) > limit:
            # The oldest goes in any case, and the latest have to wait: none stays behind for long.
            fitting = fitting[: _CHOICE * limit]
            fitting.sort(key=lambda job: abs(job.length - head.length))
        taken = fitting[:limit]
        self._jobs = [job for job in self._jobs if job not in taken]
        return [job for job in taken if job.future.set_running_or_notify_cancel()]

    def drop_stale(self, now: float) -> None:
        """Forget queries whose caller has gone or whose deadline has passed."""
        self._jobs = _in_time(self._jobs, now)

    def clear(self) -> list[Job]:
        """Take all queries out."""
        jobs, self._jobs = self._jobs, []
        return jobs

    def _is_full(self, priority: Priority) -> bool:
        return sum(job.priority is priority for job in self._jobs) >= self._capacity


class Batches:
    """Passes batches of one kind through an encoder and answers every query of them.

    A batch of n queries takes at most 2n - 1 passes, and queries whose deadline has passed take none.
    """

    def __init__(self, encoder: QueryEncoder, size: int, observer: QueueObserver | None) -> None:
        self._encoder = encoder
        self._size = size
        self._observer = observer
        self._smaller = size
        self._smaller_until = float("-inf")
        self.last_success = float("-inf")

    @property
    def size(self) -> int:
        """Most queries of a batch: fewer for a minute after memory was short."""
        return self._smaller if time.monotonic() < self._smaller_until else self._size

    def encode(self, batch: list[Job]) -> None:
        """Answer all queries of a batch."""
        parts = [batch]
        while parts:
            part = _in_time(parts.pop(), time.monotonic())
            if part and not self._answered(part):
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]

    def _answered(self, part: list[Job]) -> bool:
        """Pass a part of a batch through the encoder; False asks for its halves."""
        started = time.perf_counter()
        try:
            results = self._vectors(part)
        except (MissingModalityError, EncodingTimeoutError) as error:
            fail(part, error)
            return True
        except Exception as error:  # noqa: BLE001 - whatever the encoder raises must reach the callers
            return self._failed(part, error)
        seconds = time.perf_counter() - started
        self._deliver(part, results, seconds)
        if self._observer is not None:
            self._observer.encoded(part[0].kind, len(part), seconds)
        return True

    def _failed(self, part: list[Job], error: Exception) -> bool:
        short = is_out_of_memory(error)
        # The replacement of a lost process is an error in the log; its end with the service is none.
        level = logging.WARNING if isinstance(error, EncoderLostError) else logging.ERROR
        _log.log(level, "encoding failed", kind=part[0].kind, size=len(part), error=type(error).__name__)
        if short and len(part) > 1:
            self._smaller, self._smaller_until = len(part) // 2, time.monotonic() + _SMALLER_BATCHES_S
        if len(part) == 1:
            reason = EncoderMemoryError(NO_MEMORY) if short else EncodingFailedError(FAILED)
            fail(part, error if isinstance(error, EncoderLostError) else reason, cause=error)
        return len(part) == 1

    def _deliver(self, part: list[Job], results: Sequence[Encoded | None], pass_s: float) -> None:
        for job, result in zip(part, results, strict=True):
            if result is None:
                _log.error("a vector is not finite", kind=job.kind)
                fail([job], EncodingFailedError(FAILED))
            else:
                self.last_success = time.monotonic()
                # Unless it was answered meanwhile.
                with suppress(InvalidStateError):
                    job.future.set_result(replace(result, pass_s=pass_s))

    def _vectors(self, batch: list[Job]) -> list[Encoded | None]:
        """The vector of each query; None where it is not finite."""
        truncations: Sequence[Truncation | None] = [None] * len(batch)
        tokens: Sequence[int] = [0] * len(batch)
        if batch[0].kind == "text":
            embeddings = self._encoder.embed_texts(
                [job.payload for job in batch if isinstance(job.payload, str)]
            )
            vectors, truncations, tokens = embeddings.vectors, embeddings.truncations, embeddings.tokens
        else:
            images = [job.payload for job in batch if not isinstance(job.payload, str)]
            embed = self._encoder.embed_images if batch[0].kind == "image" else self._encoder.embed_regions
            vectors = embed(np.stack(images))
        if len(vectors) != len(batch):
            raise EncodingFailedError(FAILED)
        return [
            Encoded(vector, cut, count) if np.isfinite(vector).all() else None
            for vector, cut, count in zip(vectors, truncations, tokens, strict=True)
        ]


def _in_time(jobs: list[Job], now: float) -> list[Job]:
    """The queries that still have time; the others are failed."""
    fail([job for job in jobs if job.deadline <= now], EncodingTimeoutError(TOO_SLOW))
    return [job for job in jobs if not job.future.done()]


@dataclass(slots=True, eq=False)
class _Lane:
    """A thread that encodes.

    Attributes:
        began: When it took them, on the clock of `time.monotonic`.
        busy: Whether the batch before held several.
    """

    number: int
    batch: list[Job] = field(default_factory=list)
    began: float = 0.0
    busy: bool = False


class EncodingQueue:
    """Batches the queries of many callers for one encoder.

    A lane's thread takes the queries that wait, up to a batch of one kind. Only when the batch before held
    several queries, it waits a moment for more, so that a lone query is never delayed. Every query has a
    deadline; one whose caller has gone is skipped; an error reaches the query that causes it. The encoder,
    which the threads of the lanes share, bounds the time of a pass.

    The lanes after the first join in only when enough queries wait for a pass of their own, so that a few
    are still encoded together.
    """

    def __init__(
        self,
        encoder: QueryEncoder,
        limits: QueueLimits | None = None,
        observer: QueueObserver | None = None,
        *,
        lanes: int = 1,
    ) -> None:
        self._limits = limits or QueueLimits()
        self._batches = Batches(encoder, self._limits.batch_size, observer)
        self._line = PriorityQueue(self._limits.capacity)
        self._lock = threading.Lock()
        # The first lane waits apart from the others, which are woken only when there is enough for them.
        self._first, self._others = threading.Condition(self._lock), threading.Condition(self._lock)
        self._closed = False
        self._lanes = [_Lane(number) for number in range(lanes)]
        self._threads: list[threading.Thread] = []
        try:
            for lane in self._lanes:
                thread = threading.Thread(target=self._serve, args=(lane,), name="encoding-lane", daemon=True)
                thread.start()
                self._threads.append(thread)
        except RuntimeError:
            # The system has no room for another thread.
            self.close()
            raise

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
            try:
                payload.encode()
            except UnicodeEncodeError:
                raise InvalidTextError(INVALID_TEXT) from None
        now = time.monotonic()
        job = Job(kind, payload, now + self._limits.deadline_s, priority)
        with self._lock:
            if self._closed:
                raise QueueClosedError("The encoder is being replaced; try again.")
            self._line.add(job, now)
            self._first.notify()
            self._wake_another()
        return job.future

    def close(self, timeout_s: float = 5.0) -> None:
        """Refuse new queries, fail those that wait, and let the batches in work end within the time given."""
        with self._lock:
            self._closed = True
            waiting = self._line.clear()
            self._first.notify_all()
            self._others.notify_all()
        fail(waiting, QueueClosedError("The service is shutting down; try again."))
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    async def _wait_for(self, future: Future[Encoded]) -> Encoded:
        started = time.perf_counter()
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                encoded = await asyncio.wrap_future(future)
        except TimeoutError:
            raise EncodingTimeoutError(TOO_SLOW) from None
        record_waited("encode", time.perf_counter() - started, encoded.pass_s)
        return encoded

    def _serve(self, lane: _Lane) -> None:
        while not self._closed:
            with self._lock:
                self._take(lane)
            try:
                self._batches.encode(lane.batch)
            except Exception as error:  # noqa: BLE001 - the lane goes on, and the callers are told
                _log.error("encoding a batch failed", error=type(error).__name__)
                fail(lane.batch, EncodingFailedError(FAILED))
            lane.batch = []

    def _take(self, lane: _Lane) -> None:
        """Take a batch, or wait for a change and take none; the lock is held."""
        changed = self._first if lane.number == 0 else self._others
        self._line.drop_stale(time.monotonic())
        head = self._line.head()
        if head is None or not self._joins(lane, head):
            if head is not None and lane.number > 0:
                # The first may have left these to this lane's batch, which is over.
                self._first.notify()
            if not self._closed:
                changed.wait(_LOOK_S)
            return
        if lane.busy:
            changed.wait_for(partial(self._is_full, head), self._limits.batch_wait_s)
        lane.batch, lane.began = self._line.take(self._batches.size), time.monotonic()
        lane.busy = len(lane.batch) > 1
        self._wake_another()

    def _joins(self, lane: _Lane, head: Job) -> bool:
        """Whether a lane takes a batch: the first while no other works, any if enough wait for one more."""
        if not any(other.batch for other in self._lanes if other is not lane):
            return lane.number == 0
        return self._line.count(head) >= self._worth(head)

    def _wake_another(self) -> None:
        """Wake a lane after the first if one is at work and enough wait for another."""
        if any(lane.batch for lane in self._lanes):
            head = self._line.head()
            if head is not None and self._line.count(head) >= self._worth(head):
                self._others.notify()

    def _worth(self, head: Job) -> int:
        """Number of queries that justify a pass beside those at work.

        The more texts a pass has, the less it costs for each, so a few wait for the next pass of texts; not
        for one of images, nor for one that may hang, and no probe waits.
        """
        if head.kind != "text" or head.priority is Priority.PROBE:
            return 1
        slow = time.monotonic() - _SLOW_PASS_S
        batches = [lane.batch for lane in self._lanes if lane.began > slow]
        soon = any(batch[0].kind == "text" for batch in batches if batch)
        return max(1, self._batches.size // 2) if soon else 1

    def _is_full(self, head: Job) -> bool:
        return self._closed or self._line.count(head) >= self._batches.size
