"""The images of a training run as uint8 tensors: all kept in memory, or decoded when they are needed."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from training.data.decoding.images import decode_image
from training.data.manifest import Manifest, Rejections
from training.errors import ImageError
from training.memory import check_cache
from training.progress import progress_bar

_CHUNK = 256

ToUint8 = Callable[[Image.Image], Tensor]


class ImageSource(ABC):
    """Images by their place among the readable ones.

    Attributes:
        readable: The rows of the manifest whose image can be read, as far as is known.
    """

    readable: Sequence[int]

    @abstractmethod
    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """Images uint8 (K, 3, S, S) and which K of the given rows they are; fewer when one is broken."""

    @abstractmethod
    def close(self) -> None:
        """End the threads that decode, if any; nothing can be loaded afterwards."""


@dataclass(frozen=True)
class Decoder:
    """Reads one image of a manifest.

    Attributes:
        manifest: Names the files.
        to_uint8: Makes (3, size, size) of a decoded image.
        size: Side of the result.
        min_side: How many pixels both sides of a decoded image need; None: all that there are.
    """

    manifest: Manifest
    to_uint8: ToUint8
    size: int
    min_side: int | None = None

    def decode(self, row: int) -> Tensor | ImageError:
        """The image of a record, or why it cannot be read."""
        try:
            path = self.manifest.image_path(self.manifest.records[row])
            return self.to_uint8(decode_image(path, min_side=self.min_side))
        except ImageError as error:
            return error


class CachedImages(ImageSource):
    """All images in memory, decoded once; on the GPU when they fit there."""

    def __init__(self, pixels: Tensor, readable: Sequence[int]) -> None:
        self._pixels = pixels
        self._rows = torch.tensor(readable, dtype=torch.int64, device=pixels.device)
        self.readable = readable

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """The images of these rows, on the device of the cache."""
        places = torch.from_numpy(rows).to(self._pixels.device)
        return self._pixels[self._rows[places]], list(range(len(rows)))

    def close(self) -> None:
        """There are no threads."""


class StreamedImages(ImageSource):
    """Images decoded for every batch, for data that memory cannot hold."""

    def __init__(self, decoder: Decoder, rejections: Rejections, threads: int) -> None:
        self.readable = range(len(decoder.manifest.records))
        self._decoder = decoder
        self._rejections = rejections
        self._broken: set[int] = set()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """The images of these rows but the broken ones, each of which is counted once."""
        images, kept = [], []
        wanted = rows.tolist()
        for place, image in enumerate(self._pool.map(self._decoder.decode, wanted)):
            if isinstance(image, Tensor):
                images.append(image)
                kept.append(place)
            elif wanted[place] not in self._broken:
                self._broken.add(wanted[place])
                _reject(self._decoder, wanted[place], image, self._rejections)
        if not images:
            raise self._rejections.error("No image of a whole batch can be read: mend the data.")
        return torch.stack(images), kept

    def close(self) -> None:
        """End the threads that decode."""
        self._pool.shutdown(cancel_futures=True)


def open_images(
    decoder: Decoder,
    rejections: Rejections,
    *,
    cache: bool,
    threads: int,
    device: torch.device,
    show_progress: bool = True,
) -> ImageSource:
    """The images of a manifest.

    Args:
        decoder: Reads one.
        rejections: Where broken images are counted.
        cache: Keep all in memory.
        threads: That decode; 0: as many as there are cores.
        device: Where the cache goes if at most half of the free memory there is needed.
        show_progress: Show a bar on standard error.

    Raises:
        DataError: Too many images are broken, or the cache is larger than the memory.
    """
    threads = threads or os.cpu_count() or 1
    if not cache:
        return StreamedImages(decoder, rejections, threads)
    _check_memory(decoder)
    pixels, readable = _decode_all(decoder, rejections, threads, show_progress)
    if device.type == "cuda" and pixels.nbytes < torch.cuda.mem_get_info(device)[0] / 2:
        pixels = pixels.to(device)
    return CachedImages(pixels, readable)


def _decode_all(
    decoder: Decoder, rejections: Rejections, threads: int, show_progress: bool
) -> tuple[Tensor, list[int]]:
    total = len(decoder.manifest.records)
    pixels = torch.empty((total, 3, decoder.size, decoder.size), dtype=torch.uint8)
    readable = []
    with (
        ThreadPoolExecutor(threads, thread_name_prefix="decode") as pool,
        progress_bar("reading images", total, shown=show_progress) as bar,
    ):
        for start in range(0, total, _CHUNK):
            rows = range(start, min(start + _CHUNK, total))
            for row, image in zip(rows, pool.map(decoder.decode, rows), strict=True):
                if isinstance(image, Tensor):
                    pixels[row] = image
                    readable.append(row)
                else:
                    _reject(decoder, row, image, rejections)
                bar.advance()
    return pixels, readable


def _reject(decoder: Decoder, row: int, error: ImageError, rejections: Rejections) -> None:
    record = decoder.manifest.records[row]
    rejections.add(record.line, f"{record.image}: {error}".rstrip("."))


def _check_memory(decoder: Decoder) -> None:
    check_cache("The resized images", len(decoder.manifest.records) * 3 * decoder.size**2)
