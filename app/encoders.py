"""The encoders in use: one for each digest of an active generation, each behind its queue."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog
from PIL import Image
from torch import Tensor

from app.encoding import EncodingQueue, QueueLimits, QueueObserver
from index.bundles import check_digest
from index.results import ActiveGeneration
from training.errors import RecoquestError
from training.models.config import ImagePreprocessingConfig
from training.models.encoder import Encoder

LoadEncoder = Callable[[Path], Encoder]
_FIRST_TEXT = "ready"

_log = structlog.stdlib.get_logger(__name__)


class EncoderLoadingError(RecoquestError):
    """The encoder was not loaded in time; it may be a moment later."""


@dataclass(frozen=True, slots=True)
class LoadedEncoder:
    """An encoder with the queue that feeds it."""

    encoder: Encoder
    queue: EncodingQueue

    def prepare(self, image: Image.Image) -> Tensor:
        """Resize a decoded image to the encoder's input, uint8 (3, S, S); thread-safe."""
        return self.encoder.prepare_image(image)

    @property
    def image_config(self) -> ImagePreprocessingConfig:
        """How the encoder's input is made of an image."""
        return self.encoder.preprocessing.image.config


def warm_up(encoder: Encoder) -> None:
    """Embed an image, and a text if the encoder reads any: what is broken shows before a query needs it."""
    encoder.embed_images(encoder.prepare_image(Image.new("RGB", (8, 8)))[None])
    if "text" in encoder.modalities:
        encoder.embed_texts([_FIRST_TEXT])


class Encoders:
    """Loads encoders when they are first needed and closes them when no active generation is theirs.

    All methods but `load` belong to the event loop's thread.
    """

    def __init__(self, load: LoadEncoder, limits: QueueLimits, observer: QueueObserver | None = None) -> None:
        self._load = load
        self._limits = limits
        self._observer = observer
        self._loading: dict[str, asyncio.Task[LoadedEncoder]] = {}
        self._last_active: dict[str, float] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def of(self, active: ActiveGeneration) -> LoadedEncoder:
        """The encoder that made a generation's vectors, loaded now if it has to be.

        Raises:
            EncoderLoadingError: Loading takes longer than a query may wait; it goes on.
            BundleError: The bundle is missing or damaged; the next call tries again.
        """
        task = self._start_loading(active.digest, active.bundle)
        try:
            return await asyncio.wait_for(asyncio.shield(task), self._limits.deadline_s)
        except TimeoutError:
            raise EncoderLoadingError(
                "The collection's encoder is still being loaded; try again shortly."
            ) from None

    def follow(self, actives: Iterable[ActiveGeneration]) -> None:
        """Load the encoders of these generations and close those that have been in none for a while."""
        now = time.monotonic()
        for active in actives:
            self._start_loading(active.digest, active.bundle)
            self._last_active[active.digest] = now
        for digest, seen in list(self._last_active.items()):
            # A query that began before the change still holds the encoder; its deadline bounds how long.
            # One that is still being loaded can only be closed when it has come.
            if now - seen > 2 * self._limits.deadline_s and not self._is_loading(digest):
                self._close(digest)

    def loaded(self) -> dict[str, LoadedEncoder]:
        """Encoders that answer now, by digest."""
        return {
            digest: task.result()
            for digest, task in self._loading.items()
            if task.done() and not task.cancelled() and task.exception() is None
        }

    def waiting(self) -> int:
        """Number of queries that wait, over all queues."""
        return sum(loaded.queue.depth for loaded in self.loaded().values())

    async def close(self) -> None:
        """Stop every queue and wait for the batches in work."""
        queues = [loaded.queue for loaded in self.loaded().values()]
        for task in self._loading.values():
            task.cancel()
        self._loading.clear()
        await asyncio.gather(*(asyncio.to_thread(queue.close) for queue in queues), *self._closing)

    def _start_loading(self, digest: str, bundle: Path) -> asyncio.Task[LoadedEncoder]:
        task = self._loading.get(digest)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.create_task(self._open(digest, bundle))
            # Someone must look at the outcome even when every caller has gone.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._loading[digest] = task
            self._last_active.setdefault(digest, time.monotonic())
        return task

    async def _open(self, digest: str, bundle: Path) -> LoadedEncoder:
        started = time.monotonic()
        try:
            encoder = await asyncio.to_thread(self._load_checked, digest, bundle)
        except Exception as error:
            _log.error(
                "encoder cannot be loaded", digest=digest, error=type(error).__name__, reason=str(error)
            )
            raise
        _log.info("encoder loaded", digest=digest, seconds=round(time.monotonic() - started, 3))
        return LoadedEncoder(encoder, EncodingQueue(encoder, self._limits, self._observer))

    def _load_checked(self, digest: str, bundle: Path) -> Encoder:
        """Load an encoder, which must have this digest; its first pass, a slow one, is made here."""
        encoder = self._load(bundle)
        if encoder.info is not None:
            check_digest(encoder.info, digest)
        warm_up(encoder)
        return encoder

    def _is_loading(self, digest: str) -> bool:
        task = self._loading.get(digest)
        return task is not None and not task.done()

    def _close(self, digest: str) -> None:
        self._last_active.pop(digest)
        task = self._loading.pop(digest, None)
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            _log.info("encoder closed", digest=digest)
            closing = asyncio.create_task(asyncio.to_thread(task.result().queue.close))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
