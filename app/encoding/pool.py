"""The encoders in use: one for each digest of an active generation, each behind its queue."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from app.concurrency import timed
from app.encoding.processes import EncoderProcesses, ForkServer, ServedEncoder
from app.encoding.queue import EncodingQueue, QueueClosedError, QueueLimits, QueueObserver
from app.encoding.threads import ComputeThreads, ThreadedEncoder, use_torch_threads, warm_up
from index.files.bundles import check_digest
from index.search.results import ActiveGeneration
from training.common.errors import BundleError, RecoquestError
from training.models.onnx.loading import computes_on_cpu, load_query_encoder

LoadEncoder = Callable[[Path], ServedEncoder]

_FIRST_REST_S = 1.0
_MAX_REST_S = 60.0
_LOOK_S = 1.0
# A process that computes longer than this at the end is killed.
_LAST_BATCH_S = 1.0

_log = structlog.stdlib.get_logger(__name__)


class EncoderLoader:
    """Loads encoders to be served: on the CPU into a process for each lane, where there are several.

    Args:
        device: A torch device, or "auto".
        threads: For all passes together; None: as many as there are cores.
        limit_s: Longest that a pass may take.
        replaced: Called when a process was lost.

    Raises:
        RecipeError: The device does not exist.
    """

    def __init__(
        self,
        device: str,
        threads: int | None,
        limit_s: float,
        replaced: Callable[[], object] = lambda: None,
    ) -> None:
        self._device = device
        self._threads = ComputeThreads.of(threads)
        self._limit_s = limit_s
        self._replaced = replaced
        self._server = ForkServer() if self._threads.lanes > 1 and computes_on_cpu(device) else None

    def __call__(self, bundle: Path) -> ServedEncoder:
        """Load the encoder of a bundle.

        Raises:
            BundleError: The bundle cannot be used.
        """
        if self._server is not None:
            return EncoderProcesses(self._server, bundle, self._threads, self._limit_s, self._replaced)
        return load_query_encoder(bundle, self._device, threads=self._threads.side_by_side)

    def close(self) -> None:
        """End the fork server, and with it all processes."""
        if self._server is not None:
            self._server.close()


class EncoderLoadingError(RecoquestError):
    """The encoder was not loaded in time; it may be a moment later."""


class EncoderBrokenError(BundleError):
    """The encoder could not be loaded; it is tried again later, or when its folder changes."""


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    """An encoder with the queue that feeds it."""

    encoder: ServedEncoder
    queue: EncodingQueue

    def close(self) -> None:
        """Let the batch in work end within seconds, and end what computes."""
        if isinstance(self.encoder, EncoderProcesses):
            self.queue.close(_LAST_BATCH_S)
            self.encoder.close()
        else:
            self.queue.close()


@dataclass(slots=True)
class _Failure:
    """A bundle that could not be loaded, and how often; `rest` keeps it from being tried again at once."""

    tries: int = 0
    rest: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def rests(self) -> bool:
        return self.rest is not None and not self.rest.done()


class Encoders:
    """Loads encoders when they are first needed and closes them when no active generation is theirs.

    A bundle that cannot be loaded is tried again after 1 s, 2 s, ... 60 s, and at once when its folder
    changes. All methods but `load` belong to the event loop's thread.

    Args:
        load: Opens a bundle.
        limits: Limits of each queue.
        observer: Receives the queues' figures.
        give_up: Called when an encoder in a thread of this process hangs for good: the process has to end.
    """

    def __init__(
        self,
        load: LoadEncoder,
        limits: QueueLimits,
        observer: QueueObserver | None = None,
        *,
        give_up: Callable[[], object] = lambda: None,
    ) -> None:
        self._load = load
        self._limits = limits
        self._observer = observer
        self._replaced = (lambda: None) if observer is None else observer.restarted
        self._give_up = give_up
        self._closed = False
        self._loading: dict[str, asyncio.Task[LoadedEncoder]] = {}
        self._failures: dict[str, _Failure] = {}
        self._last_active: dict[str, float] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def of(self, active: ActiveGeneration) -> LoadedEncoder:
        """The encoder that made a generation's vectors, loaded now if it has to be.

        Raises:
            EncoderLoadingError: Loading takes longer than a query may wait; it goes on.
            EncoderBrokenError: The bundle is missing or damaged and is not tried again at once.
        """
        task = self._start_loading(active.digest, active.bundle)
        if task is None:
            raise EncoderBrokenError("The collection's encoder cannot be loaded; the service's log says why.")
        if _has_loaded(task):
            return task.result()
        try:
            with timed("load"):
                return await asyncio.wait_for(asyncio.shield(task), self._limits.deadline_s)
        except TimeoutError:
            raise EncoderLoadingError(
                "The collection's encoder is still being loaded; try again shortly."
            ) from None

    def is_broken(self, digest: str) -> bool:
        """Whether the last try to load this encoder failed and none has succeeded since."""
        return digest in self._failures

    def follow(self, actives: Iterable[ActiveGeneration]) -> None:
        """Load the encoders of these generations and close those that have been in none for a while."""
        now = time.monotonic()
        for active in actives:
            self._start_loading(active.digest, active.bundle)
            self._last_active[active.digest] = now
        for digest, seen in list(self._last_active.items()):
            # A query that began before the change still holds the encoder; its deadline bounds how long.
            # One that is still being loaded can only be closed when it has come.
            task = self._loading.get(digest)
            if now - seen > 2 * self._limits.deadline_s and (task is None or task.done()):
                self._close(digest)

    def loaded(self) -> dict[str, LoadedEncoder]:
        """Encoders that answer now, by digest."""
        return {digest: task.result() for digest, task in self._loading.items() if _has_loaded(task)}

    def waiting(self) -> int:
        """Number of queries that wait, over all queues."""
        return sum(loaded.queue.depth for loaded in self.loaded().values())

    async def close(self) -> None:
        """Stop every queue and wait for the batches in work."""
        self._closed = True
        loaded = list(self.loaded().values())
        rests = [failure.rest for failure in self._failures.values() if failure.rest is not None]
        for task in (*self._loading.values(), *rests):
            task.cancel()
        self._loading.clear()
        self._failures.clear()
        await asyncio.gather(*(asyncio.to_thread(one.close) for one in loaded), *self._closing)

    def _start_loading(self, digest: str, bundle: Path) -> asyncio.Task[LoadedEncoder] | None:
        """The task that loads an encoder, begun now if it has to be; None while a broken bundle rests."""
        task = self._loading.get(digest)
        if task is None or (task.done() and not _has_loaded(task)):
            if digest in self._failures and self._failures[digest].rests:
                return None
            task = asyncio.create_task(self._open(digest, bundle))
            # Someone must look at the outcome even when every caller has gone.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._loading[digest] = task
            self._last_active.setdefault(digest, time.monotonic())
        return task

    async def _open(self, digest: str, bundle: Path) -> LoadedEncoder:
        started = time.monotonic()
        before = await asyncio.to_thread(_state_of, bundle)
        try:
            loaded = await asyncio.to_thread(self._load_ready, digest, bundle)
        except Exception as error:
            self._failed(digest, bundle, before, error)
            raise
        self._failures.pop(digest, None)
        _log.info("encoder loaded", digest=digest, seconds=round(time.monotonic() - started, 3))
        return loaded

    def _load_ready(self, digest: str, bundle: Path) -> LoadedEncoder:
        """Load an encoder, which must have this digest, and put it behind a queue after its first pass."""
        encoder = self._load(bundle)
        try:
            if encoder.info is not None:
                check_digest(encoder.info, digest)
            if self._closed:
                raise QueueClosedError("The service is shutting down; try again.")
            if isinstance(encoder, EncoderProcesses):
                queue = EncodingQueue(encoder, self._limits, self._observer, lanes=encoder.lanes)
            else:
                set_up = None if encoder.fixed_threads else partial(use_torch_threads, 1)
                threaded = ThreadedEncoder(encoder, self._limits, self._replaced, self._give_up, set_up)
                threaded.call(partial(warm_up, encoder))
                queue = EncodingQueue(threaded, self._limits, self._observer)
        except BaseException:
            if isinstance(encoder, EncoderProcesses):
                encoder.close()
            raise
        return LoadedEncoder(encoder, queue)

    def _failed(self, digest: str, bundle: Path, state: object, error: Exception) -> None:
        failure = self._failures.setdefault(digest, _Failure())
        rest_s = min(_FIRST_REST_S * 2**failure.tries, _MAX_REST_S)
        failure.tries += 1
        failure.rest = asyncio.create_task(self._rest(digest, bundle, state, rest_s))
        _log.error(
            "encoder cannot be loaded",
            digest=digest,
            error=type(error).__name__,
            reason=str(error),
            tries=failure.tries,
            next_try_s=rest_s,
        )

    async def _rest(self, digest: str, bundle: Path, state: object, seconds: float) -> None:
        """Wait until a broken bundle may be tried again: time has passed, or its folder has changed."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _LOOK_S))
            if await asyncio.to_thread(_state_of, bundle) != state:
                self._failures[digest].tries = 0
                return

    def _close(self, digest: str) -> None:
        self._last_active.pop(digest)
        task = self._loading.pop(digest, None)
        failure = self._failures.pop(digest, None)
        if failure is not None and failure.rest is not None:
            failure.rest.cancel()
        if task is not None and _has_loaded(task):
            _log.info("encoder closed", digest=digest)
            self._close_loaded(task.result())

    def _close_loaded(self, loaded: LoadedEncoder) -> None:
        closing = asyncio.create_task(asyncio.to_thread(loaded.close))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _has_loaded(task: asyncio.Task[LoadedEncoder]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _state_of(folder: Path) -> object:
    """Names, sizes and times of the files of a folder; empty if it cannot be read."""
    try:
        return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir())
    except OSError:
        return []
