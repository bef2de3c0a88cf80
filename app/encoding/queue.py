"""A queue in front of an encoder: queries are encoded in batches, and no caller can wait for ever."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from operator import attrgetter
from typing import Literal, Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from app.concurrency import record_waited
from training.common.errors import MissingModalityError, RecoquestError
from training.models.image_input import Pixels
from training.models.text_input import TextEmbeddings, Truncation

Kind = Literal["text", "image", "regions"]

# A pass that exceeds the deadline has no caller left, but a paused machine is not yet a hanging encoder.
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
_PAYLOAD = attrgetter("payload")
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

    If more queries wait than a batch holds, the oldest is batched with those of similar length: a pass costs
    as much for each text as for the longest. Each priority has its own capacity, so that uploads can't use up
    that of searches.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: dict[Priority, list[Job]] = {priority: [] for priority in Priority}
        self._passes_before_uploads = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, job: Job, now: float) -> None:
        """Put a query at the end of its line.

        Raises:
            QueueFullError: The capacity of its priority is used up.
        """
        if len(self._waiting[job.priority]) >= self._capacity:
            self.drop_stale(now)
        if len(self._waiting[job.priority]) >= self._capacity:
            waiting = "uploads" if job.priority is Priority.UPLOAD else "searches"
            raise QueueFullError(f"Too many {waiting} are waiting; try again in a moment.")
        self._waiting[job.priority].append(job)

    def head(self) -> Job | None:
        """The query that the next batch begins with; None if none waits."""
        probes, searches, uploads = self._waiting.values()
        line = probes or searches or uploads
        if line is searches and self._passes_before_uploads >= _SEARCH_PASSES_IN_A_ROW:
            line = uploads or searches
        return line[0] if line else None

    def count(self, head: Job) -> int:
        """Number of queries that fit a batch with `head`."""
        return len(self._fitting(head))

    def take(self, limit: int) -> list[Job]:
        """Take the next batch: queries of one kind, at most `limit`, either of uploads or of searches."""
        head = self.head()
        if head is None:
            return []
        if head.priority is Priority.UPLOAD:
            self._passes_before_uploads = 0
            if self._waiting[Priority.SEARCH]:
                limit = max(1, limit // _UPLOAD_SHARE)
        elif self._waiting[Priority.UPLOAD]:
            self._passes_before_uploads += 1
        fitting = self._fitting(head)
        if len(fitting) > limit:
            # The oldest goes in any case, and the latest have to wait: none stays behind for long.
            fitting = fitting[: _CHOICE * limit]
            fitting.sort(key=lambda job: abs(job.length - head.length))
        batch = []
        for job in fitting[:limit]:
            self._waiting[job.priority].remove(job)
            if job.future.set_running_or_notify_cancel():
                batch.append(job)
        return batch

    def drop_stale(self, now: float) -> None:
        """Drop queries whose caller is gone or whose deadline has passed."""
        for priority, line in self._waiting.items():
            if line:
                self._waiting[priority] = _in_time(line, now)

    def clear(self) -> list[Job]:
        """Take all queries out."""
        jobs = [job for line in self._waiting.values() for job in line]
        self._waiting = {priority: [] for priority in Priority}
        return jobs

    def _fitting(self, head: Job) -> list[Job]:
        """Queries of one kind, either uploads or probes and searches."""
        probes, searches, uploads = self._waiting.values()
        line = uploads if head.priority is Priority.UPLOAD else probes + searches
        return [job for job in line if job.kind == head.kind]


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
        """Pass a part of a batch through the encoder; False: it must be halved."""
        started = time.perf_counter()
        try:
            vectors, truncations, tokens = self._vectors(part)
        except (MissingModalityError, EncodingTimeoutError) as error:
            fail(part, error)
            return True
        except Exception as error:  # noqa: BLE001 - every error of the encoder must reach the callers
            return self._failed(part, error)
        seconds = time.perf_counter() - started
        for job, vector, cut, count in zip(part, vectors, truncations, tokens, strict=True):
            if not np.isfinite(vector).all():
                _log.error("a vector is not finite", kind=job.kind)
                fail([job], EncodingFailedError(FAILED))
                continue
            self.last_success = time.monotonic()
            # Unless it was answered meanwhile.
            with suppress(InvalidStateError):
                job.future.set_result(Encoded(vector, cut, count, seconds))
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

    def _vectors(
        self, batch: list[Job]
    ) -> tuple[NDArray[np.float32], Sequence[Truncation | None], Sequence[int]]:
        """The vector of each query, how its text was cut, and its tokens."""
        truncations: Sequence[Truncation | None] = [None] * len(batch)
        tokens: Sequence[int] = [0] * len(batch)
        if batch[0].kind == "text":
            embeddings = self._encoder.embed_texts([*map(_PAYLOAD, batch)])
            vectors, truncations, tokens = embeddings.vectors, embeddings.truncations, embeddings.tokens
        else:
            embed = self._encoder.embed_images if batch[0].kind == "image" else self._encoder.embed_regions
            vectors = embed(np.stack([*map(_PAYLOAD, batch)]))
        if not len(vectors) == len(truncations) == len(tokens) == len(batch):
            raise EncodingFailedError(FAILED)
        return vectors, truncations, tokens


def _in_time(jobs: list[Job], now: float) -> list[Job]:
    """The queries that still have time; the others are failed."""
    left = []
    for job in jobs:
        if job.deadline <= now:
            fail([job], EncodingTimeoutError(TOO_SLOW))
        elif not job.future.done():
            left.append(job)
    return left


class EncodingQueue:
    """Batches the queries of many callers for one encoder.

    A lane's thread takes the queries that wait, up to a batch of one kind. Only if the previous batch had
    several queries, it waits a moment for more, so that a lone query is never delayed. Every query has a
    deadline; one whose caller is gone is skipped; an error reaches the query that causes it. The encoder,
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
        # When the batch of a lane began, on the clock of `time.monotonic`, and its kind.
        self._at_work: dict[int, tuple[float, Kind]] = {}
        self._threads: list[threading.Thread] = []
        try:
            for lane in range(lanes):
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
            if self._at_work:
                self._wake_another()
        return job.future

    def close(self, timeout_s: float = 5.0) -> None:
        """Refuse new queries, fail those that wait, and let running batches end within a time."""
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

    def _serve(self, lane: int) -> None:
        busy = False
        while not self._closed:
            with self._lock:
                batch = self._take(lane, busy=busy)
            try:
                self._batches.encode(batch)
            except Exception as error:  # noqa: BLE001 - the lane continues, and the callers get the error
                _log.error("encoding a batch failed", error=type(error).__name__)
                fail(batch, EncodingFailedError(FAILED))
            # An idle lane keeps no pictures.
            busy, batch = len(batch) > 1, []

    def _take(self, lane: int, *, busy: bool) -> list[Job]:
        """Wait for a batch and take it; the lane's last one is over. Requires the lock.

        The first lane takes all waiting queries if no other lane works; any lane takes enough for one more
        pass. `busy`: the last batch had several.
        """
        self._at_work.pop(lane, None)
        changed = self._others if lane else self._first
        while not self._closed:
            self._line.drop_stale(time.monotonic())
            head = self._line.head()
            if head is not None and (self._is_enough(head) if self._at_work else lane == 0):
                if busy:
                    changed.wait_for(partial(self._is_full, head), self._limits.batch_wait_s)
                batch = self._line.take(self._batches.size)
                if batch:
                    self._at_work[lane] = time.monotonic(), batch[0].kind
                    self._wake_another()
                return batch
            if head is not None and lane:
                # The first may have left these to this lane's batch, which is over.
                self._first.notify()
            changed.wait(_LOOK_S)
        return []

    def _wake_another(self) -> None:
        """Wake a lane after the first if enough wait for another pass than those at work."""
        head = self._line.head()
        if head is not None and self._is_enough(head):
            self._others.notify()

    def _is_enough(self, head: Job) -> bool:
        """Whether enough queries wait for another pass than those at work.

        The more texts a pass has, the less it costs for each, so a few wait for the next pass of texts; not
        for one of images, nor for one that may hang, and no probe waits.
        """
        enough = 1
        if head.kind == "text" and head.priority is not Priority.PROBE:
            slow = time.monotonic() - _SLOW_PASS_S
            if any(kind == "text" and began > slow for began, kind in self._at_work.values()):
                enough = max(1, self._batches.size // 2)
        return self._line.count(head) >= enough

    def _is_full(self, head: Job) -> bool:
        return self._closed or self._line.count(head) >= self._batches.size
