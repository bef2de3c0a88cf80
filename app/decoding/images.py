"""Images of callers, decoded and resized by the decoding pool; no pixel is decoded in this process."""

import asyncio
import time
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.concurrency import record_waited
from app.settings import Settings
from index.files.renditions import STORED_LIMITS, Rendition
from training.common.errors import ImageError
from training.imaging.depth import Levels
from training.imaging.images import read_file, to_planes
from training.imaging.processes.pool import (
    Answer,
    DecodingObserver,
    DecodingPool,
    DecodingTimeoutError,
    PoolLimits,
    Priority,
    Task,
)
from training.imaging.processes.worker import decode_task, read_decoded
from training.models.config import ImagePreprocessingConfig
from training.models.image_input import Pixels

# The module that runs in the processes.
WORKER: Final = "app.decoding.worker"

_MAX_THUMBNAIL_BYTES: Final = 4 << 20
# Without compression, and the metadata of the file.
_RENDITION_BYTES_A_PIXEL: Final = 4
_RENDITION_BYTES: Final = 1 << 16
# Deadline of an upload's decoding in deadlines of a search, as for a writing request.
_UPLOAD_DEADLINES: Final = 6
_LEVELS: Final = TypeAdapter(Levels)


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An image file that can be used.

    Attributes:
        width: Width of the upright image.
        height: Height of the upright image.
        pixels: Pixels for the encoder (3, S, S).
        flags: Those of `PICTURE_FIELDS` that are true of the picture.
    """

    media_type: str
    width: int
    height: int
    pixels: Pixels
    flags: tuple[str, ...]

    @property
    def picture(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height


class ImageDecoders:
    """Decodes query images, uploads and thumbnails, in this order where several wait.

    Its methods raise ImageError where a file cannot be decoded or is over its limits; DecodingError where too
    many images wait, it was not done in time, or the service ends; and DecoderStartError where no process can
    be started.
    """

    def __init__(self, settings: Settings, observer: DecodingObserver | None = None) -> None:
        self.limits = settings.image_limits
        self.pool = DecodingPool(
            PoolLimits(
                worker=WORKER,
                processes=settings.concurrent_decodes,
                waiting=settings.encode_queue_size,
                deadline_s=settings.encode_deadline_s,
                memory_bytes=settings.decode_memory_bytes,
            ),
            observer,
        )

    async def decode_query(self, source: bytes | Path, config: ImagePreprocessingConfig) -> PreparedImage:
        """Decode a query image, or the file of a stored one, and resize it to the encoder's input."""
        return await self._prepare(source, config, Priority.SEARCH, self.pool.deadline_s)

    async def decode_upload(self, content: bytes, config: ImagePreprocessingConfig) -> PreparedImage:
        """Decode an image to be stored, as `decode_query` does, with lower priority than searches."""
        return await self._prepare(content, config, Priority.UPLOAD, _UPLOAD_DEADLINES * self.pool.deadline_s)

    def thumbnail(self, original: Path) -> bytes:
        """Make the WebP of a stored image; the calling thread waits, at most to the deadline."""
        header = {"task": "thumbnail", "path": str(original.absolute())}
        future = self.pool.submit(Task(header, _MAX_THUMBNAIL_BYTES), Priority.THUMBNAIL)
        try:
            return bytes(future.result(self.pool.deadline_s).body)
        except TimeoutError:
            future.cancel()
            raise _too_late() from None

    async def rendition(self, original: Path, rendition: Rendition, pixels: int) -> bytearray:
        """Make a picture of a stored image, with so many pixels; a cancelled caller leaves the queue."""
        header = {"task": "rendition", "path": str(original.absolute()), **asdict(rendition)}
        task = Task(header, _RENDITION_BYTES_A_PIXEL * pixels + _RENDITION_BYTES)
        return (await self._answer(task, Priority.THUMBNAIL, self.pool.deadline_s)).body

    async def levels(self, original: Path) -> Levels | None:
        """Find the stored values of an image file; None where its samples have 8 bits."""
        task = Task({"task": "levels", "path": str(original.absolute())}, 0)
        answer = await self._answer(task, Priority.THUMBNAIL, self.pool.deadline_s)
        values = answer.header.get("levels")
        if values is None:
            return None
        try:
            levels = _LEVELS.validate_python(values)
        except ValidationError:
            raise _nonsense() from None
        if not all(map(isfinite, (levels.smallest, levels.largest, levels.low, levels.high))):
            raise _nonsense()
        return levels

    def close(self) -> None:
        """End all processes at once."""
        self.pool.close()

    async def _prepare(
        self, source: bytes | Path, config: ImagePreprocessingConfig, priority: Priority, deadline_s: float
    ) -> PreparedImage:
        if isinstance(source, bytes):
            read_file(source, self.limits)
        limits = self.limits if isinstance(source, bytes) else STORED_LIMITS
        task = decode_task(source, limits, config.min_side, config.square)
        decoded = read_decoded(await self._answer(task, priority, deadline_s))
        if decoded.pixels.size != (config.size, config.size):
            raise _nonsense()
        pixels = to_planes(decoded.pixels)
        return PreparedImage(decoded.header.media_type, decoded.width, decoded.height, pixels, decoded.flags)

    async def _answer(self, task: Task, priority: Priority, deadline_s: float) -> Answer:
        future = self.pool.submit(task, priority, deadline_s)
        started = time.perf_counter()
        try:
            answer = await asyncio.wait_for(asyncio.wrap_future(future), deadline_s)
        except TimeoutError:
            raise _too_late() from None
        record_waited("decode", time.perf_counter() - started, answer.seconds)
        return answer


def _nonsense() -> ImageError:
    # Only a process that an image has compromised answers so.
    return ImageError("The image cannot be decoded: its decoder broke down; save it again.")


def _too_late() -> DecodingTimeoutError:
    return DecodingTimeoutError("The image could not be decoded in time; try again later.")
