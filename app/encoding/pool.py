"""The encoders in use: one for each digest of an active generation, each behind its queue."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
from training.models.onnx import computes_on_cpu, load_query_encoder

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

    Raises:
        RecipeError: The device does not exist.
    """

    def __init__(
        self, device: str, threads: int | None, limit_s: float, replaced: Callable[[], object] = lambda: None
    ) -> None:
        self._device = device
        self._threads = ComputeThreads.share(threads)
        self._limit_s = limit_s
        self._replaced = replaced
        self._server = ForkServer() if self._threads.lanes > 1 and computes_on_cpu(device) else None

    def __call__(self, bundle: Path) -> ServedEncoder:
        """Load the encoder of a bundle, or raise a BundleError."""
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
class _Entry:
    """An encoder that is in use, loaded or not.

    Attributes:
        loading: The last attempt to load it.
        last_active: Time at which it was last the encoder of an active generation.
        loaded: It with its queue, once it is loaded.
        failures: Number of tries that failed, in a row.
        rest: Keeps a bundle that failed from being tried again at once.
    """

    loading: asyncio.Task[LoadedEncoder]
    last_active: float
    loaded: LoadedEncoder | None = None
    failures: int = 0
    rest: asyncio.Task[None] | None = None

    @property
    def rests(self) -> bool:
        return self.rest is not None and not self.rest.done()


class Encoders:
    """Loads encoders when they are first needed and closes them when no active generation is theirs.

    A bundle that cannot be loaded is tried again after 1 s, 2 s, ... 60 s, and at once when its folder
    changes. All methods but `load` belong to the event loop's thread.

    Args:
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
        self._entries: dict[str, _Entry] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def get(self, active: ActiveGeneration) -> LoadedEncoder:
        """The encoder that made a generation's vectors, loaded now if it has to be.

        Raises:
            EncoderLoadingError: Loading takes longer than a query may wait; it continues.
            EncoderBrokenError: The bundle is missing or damaged and is not tried again at once.
        """
        entry = self._entries.get(active.digest)
        if entry is not None and entry.loaded is not None:
            return entry.loaded
        entry = self._begun(active)
        if entry.rests:
            raise EncoderBrokenError("The collection's encoder cannot be loaded; the service's log says why.")
        try:
            with timed("load"):
                return await asyncio.wait_for(asyncio.shield(entry.loading), self._limits.deadline_s)
        except TimeoutError:
            raise EncoderLoadingError(
                "The collection's encoder is still being loaded; try again shortly."
            ) from None

    def is_broken(self, digest: str) -> bool:
        """Whether the last try to load this encoder failed and none has succeeded since."""
        return digest in self._entries and self._entries[digest].failures > 0

    def follow(self, actives: Iterable[ActiveGeneration]) -> None:
        """Load the encoders of these generations and close those that have been in none for a while."""
        now = time.monotonic()
        for active in actives:
            self._begun(active).last_active = now
        for digest, entry in list(self._entries.items()):
            # A query that began before the change still holds the encoder; its deadline bounds how long.
            # One that is still being loaded can only be closed when it has come.
            if now - entry.last_active > 2 * self._limits.deadline_s and entry.loading.done():
                self._close(digest)

    def loaded(self) -> dict[str, LoadedEncoder]:
        """Encoders that answer now, by digest."""
        return {digest: entry.loaded for digest, entry in self._entries.items() if entry.loaded}

    def waiting(self) -> int:
        """Number of queries that wait, over all queues."""
        return sum(loaded.queue.depth for loaded in self.loaded().values())

    async def close(self) -> None:
        """Stop every queue and wait for the batches in work."""
        self._closed = True
        for entry in self._entries.values():
            entry.loading.cancel()
        for digest in list(self._entries):
            self._close(digest)
        await asyncio.gather(*self._closing)

    def _begun(self, active: ActiveGeneration) -> _Entry:
        """The entry of an encoder, whose loading is begun now if it has to be."""
        entry = self._entries.get(active.digest)
        if entry is None:
            entry = self._entries[active.digest] = _Entry(self._start(active), time.monotonic())
        elif entry.loading.done() and entry.loaded is None and not entry.rests:
            entry.loading = self._start(active)
        return entry

    def _start(self, active: ActiveGeneration) -> asyncio.Task[LoadedEncoder]:
        task = asyncio.create_task(self._open(active.digest, active.bundle))
        # The outcome must be retrieved even if every caller is gone.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _open(self, digest: str, bundle: Path) -> LoadedEncoder:
        started = time.monotonic()
        before = await asyncio.to_thread(_state_of, bundle)
        try:
            loaded = await asyncio.to_thread(self._load_ready, digest, bundle)
        except Exception as error:
            self._failed(self._entries[digest], digest, bundle, before, error)
            raise
        self._entries[digest].loaded, self._entries[digest].failures = loaded, 0
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

    def _failed(self, entry: _Entry, digest: str, bundle: Path, state: object, error: Exception) -> None:
        rest_s = min(_FIRST_REST_S * 2**entry.failures, _MAX_REST_S)
        entry.failures += 1
        entry.rest = asyncio.create_task(_rest(bundle, state, rest_s))
        _log.error(
            "encoder cannot be loaded",
            digest=digest,
            error=type(error).__name__,
            reason=str(error),
            tries=entry.failures,
            next_try_s=rest_s,
        )

    def _close(self, digest: str) -> None:
        entry = self._entries.pop(digest)
        if entry.rest is not None:
            entry.rest.cancel()
        if entry.loaded is not None:
            _log.info("encoder closed", digest=digest)
            closing = asyncio.create_task(asyncio.to_thread(entry.loaded.close))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _rest(bundle: Path, state: object, seconds: float) -> None:
    """Wait until a broken bundle may be tried again: time has passed, or its folder has changed."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _LOOK_S))
        if await asyncio.to_thread(_state_of, bundle) != state:
            return


def _state_of(folder: Path) -> object:
    """Names, sizes and times of the files of a folder; empty if it cannot be read."""
    try:
        return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir())
    except OSError:
        return []
