"""Images of callers, decoded and resized by the decoding pool; no pixel is decoded in this process."""

import asyncio
import time
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import TypeAdapter, ValidationError

from app.concurrency import record_waited
from app.settings import Settings
from index.files.renditions import Rendition
from training.common.errors import ImageError
from training.common.record import PICTURE_FIELDS
from training.imaging.depth import Levels
from training.imaging.formats import MEDIA_TYPES
from training.imaging.images import check_signature
from training.imaging.processes.errors import DecodingTimeoutError
from training.imaging.processes.pool import DecodingObserver, DecodingPool, PoolLimits, Priority
from training.imaging.processes.process import Answer, DecoderLimits, Task
from training.models.config import ImagePreprocessingConfig
from training.models.inputs.images import Pixels

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
class DecodedUpload:
    """An image file that can be used.

    Attributes:
        media_type: Media type of the file.
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


@dataclass(frozen=True, slots=True)
class DecodedQuery:
    """The picture of a query.

    Attributes:
        pixels: Pixels for the encoder (3, S, S).
        picture: Width and height of the upright whole.
    """

    pixels: Pixels
    picture: tuple[int, int]


class ImageDecoders:
    """Decodes query images, uploads and thumbnails, in this order where several wait."""

    def __init__(self, settings: Settings, observer: DecodingObserver | None = None) -> None:
        self.limits = settings.image_limits
        self.pool = DecodingPool(
            PoolLimits(
                worker=WORKER,
                processes=settings.concurrent_decodes,
                waiting=settings.encode_queue_size,
                deadline_s=settings.encode_deadline_s,
                decoder=DecoderLimits(settings.decode_memory_bytes),
            ),
            observer,
        )

    async def decode_query(self, source: bytes | Path, config: ImagePreprocessingConfig) -> DecodedQuery:
        """Decode a query image, or the file of a stored one, and resize it to the encoder's input.

        Raises:
            ImageError: The bytes are no image that can be used, or one over the limits.
            DecodingError: Too many images wait, it was not done in time, or the service ends.
            DecoderStartError: No process can be started.
        """
        if isinstance(source, bytes):
            answer = await self._decode(source, config, Priority.SEARCH, self.pool.deadline_s)
        else:
            header = {"task": "prepare", "path": str(source.absolute()), "encoder": _encoder(config)}
            answer = await self._answer(Task(header, 3 * config.size**2), Priority.SEARCH)
        picture = _side(answer.header.get("width")), _side(answer.header.get("height"))
        return DecodedQuery(_pixels(answer, config.size), picture)

    async def decode_upload(self, content: bytes, config: ImagePreprocessingConfig) -> DecodedUpload:
        """Decode an image that is to be kept, as `decode_query` does, behind those of searches."""
        deadline_s = _UPLOAD_DEADLINES * self.pool.deadline_s
        answer = await self._decode(content, config, Priority.UPLOAD, deadline_s)
        width, height = _side(answer.header.get("width")), _side(answer.header.get("height"))
        media_type = answer.header.get("media_type")
        if media_type not in MEDIA_TYPES.values():
            raise _nonsense()
        pixels = _pixels(answer, config.size)
        return DecodedUpload(str(media_type), width, height, pixels, _flags(answer.header.get("flags")))

    def thumbnail(self, original: Path) -> bytes:
        """Make the WebP of a stored image; the calling thread waits, at most to the deadline.

        Raises:
            ImageError: The file cannot be decoded.
            DecodingError: Too many images wait, it was not done in time, or the service ends.
            DecoderStartError: No process can be started.
        """
        header = {"task": "thumbnail", "path": str(original.absolute())}
        future = self.pool.submit(Task(header, _MAX_THUMBNAIL_BYTES), Priority.THUMBNAIL)
        try:
            return bytes(future.result(self.pool.deadline_s).body)
        except TimeoutError:
            future.cancel()
            raise _too_late() from None

    async def rendition(self, original: Path, rendition: Rendition, pixels: int) -> bytearray:
        """Make a picture of a stored image with so many pixels; a caller that is cancelled leaves the queue.

        Raises:
            ImageTooLargeError: It takes more memory or work than an image may.
            ImageError: The file cannot be decoded.
            DecodingError: Too many images wait, it was not done in time, or the service ends.
            DecoderStartError: No process can be started.
        """
        header = {"task": "rendition", "path": str(original.absolute()), **asdict(rendition)}
        task = Task(header, _RENDITION_BYTES_A_PIXEL * pixels + _RENDITION_BYTES)
        return (await self._answer(task, Priority.THUMBNAIL)).body

    async def levels(self, original: Path) -> Levels | None:
        """Find the stored values of an image file; None where its samples have 8 bits.

        Raises:
            ImageError: The file cannot be decoded.
            DecodingError: Too many images wait, it was not done in time, or the service ends.
            DecoderStartError: No process can be started.
        """
        task = Task({"task": "levels", "path": str(original.absolute())}, 0)
        return _levels((await self._answer(task, Priority.THUMBNAIL)).header.get("levels"))

    def close(self) -> None:
        """End all processes at once."""
        self.pool.close()

    async def _decode(
        self, content: bytes, config: ImagePreprocessingConfig, priority: Priority, deadline_s: float
    ) -> Answer:
        check_signature(content, self.limits)
        header: dict[str, Any] = {
            "task": "prepare",
            "limits": asdict(self.limits),
            "encoder": _encoder(config),
        }
        task = Task(header, 3 * config.size**2, content)
        return await self._answer(task, priority, deadline_s)

    async def _answer(self, task: Task, priority: Priority, deadline_s: float | None = None) -> Answer:
        deadline_s = self.pool.deadline_s if deadline_s is None else deadline_s
        future = self.pool.submit(task, priority, deadline_s)
        started = time.perf_counter()
        try:
            answer = await asyncio.wait_for(asyncio.wrap_future(future), deadline_s)
        except TimeoutError:
            raise _too_late() from None
        record_waited("decode", time.perf_counter() - started, answer.seconds)
        return answer


def _encoder(config: ImagePreprocessingConfig) -> dict[str, Any]:
    return {"square": asdict(config.square), "min_side": config.min_side}


def _pixels(answer: Answer, size: int) -> Pixels:
    if len(answer.body) != 3 * size**2:
        raise _nonsense()
    return np.frombuffer(answer.body, dtype=np.uint8).reshape(3, size, size)


def _levels(value: object) -> Levels | None:
    if value is None:
        return None
    try:
        levels = _LEVELS.validate_python(value)
    except ValidationError:
        raise _nonsense() from None
    if not all(map(isfinite, (levels.smallest, levels.largest, levels.low, levels.high))):
        raise _nonsense()
    return levels


def _flags(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _nonsense()
    return tuple(name for name in PICTURE_FIELDS if name in value)


def _side(value: object) -> int:
    if not isinstance(value, int) or not 0 < value < 1 << 31:
        raise _nonsense()
    return value


def _nonsense() -> ImageError:
    # A process of ours answers otherwise; one that an image has taken over may not.
    return ImageError("The image cannot be decoded: its decoder broke down; save it anew.")


def _too_late() -> DecodingTimeoutError:
    return DecodingTimeoutError("The image could not be decoded in time; try again later.")
