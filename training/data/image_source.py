"""Images of a training run as uint8 tensors, prepared before the first step or decoded on demand."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Protocol

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.common.errors import ImageError
from training.common.host import decoding_threads, processes_here
from training.common.manifest import Manifest, Rejections
from training.data.prepared_rows import (
    PreparedRows,
    Room,
    Row,
    RowMaker,
    Together,
    find_room,
    image_files,
    prepare,
)
from training.imaging.images import PIXELS_VERSION, to_planes
from training.imaging.processes.file_decoder import FileDecoder
from training.models.image_input import Pixels
from training.models.preprocessing import ImagePreprocessing

# Increase it if resizing changes the pixels of an image.
_SQUARE_VERSION: Final = 1
_CHUNK: Final = 256

CacheImages = bool | Literal["memory"]


class ImageSource(ABC):
    """Images by their position among the readable ones.

    Attributes:
        readable: Manifest rows whose image can be read, as far as is known.
    """

    readable: Sequence[int]

    @abstractmethod
    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """Images uint8 (K, 3, S, S), or encodings (K, W) float32, and which K of the rows they are."""

    @abstractmethod
    def blank(self, count: int) -> Tensor:
        """Dummy images (count, ...) with the shape and type of loaded ones."""

    @abstractmethod
    def close(self) -> None:
        """Stop decoding threads and processes; nothing can be loaded afterwards."""


@dataclass(frozen=True)
class Decoder:
    """Read the images of a manifest."""

    manifest: Manifest
    preprocessing: ImagePreprocessing

    @property
    def shape(self) -> tuple[int, int, int]:
        """(3, S, S)."""
        size = self.preprocessing.config.size
        return 3, size, size

    @property
    def key(self) -> str:
        """Identifies everything but the file that determines the pixels."""
        config = self.preprocessing.config
        return (
            f"{PIXELS_VERSION}.{_SQUARE_VERSION} {config.square} {config.min_side} Pillow {PIL.__version__}"
        )

    def decode(self, row: int, files: FileDecoder) -> Pixels | ImageError:
        """The image of a record, or why it can't be read."""
        config = self.preprocessing.config
        try:
            path = self.manifest.image_path(self.manifest.records[row])
            decoded = files.decode(path, min_side=config.min_side, square=config.square)
            return to_planes(decoded.pixels)
        except ImageError as error:
            return error


class DecodingThreads:
    """Threads that decode a manifest's images, and processes for formats that would block threads."""

    def __init__(self, decoder: Decoder, threads: int, processes: int) -> None:
        self._decoder = decoder
        self._files = FileDecoder(processes)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    def decode(self, rows: Sequence[int]) -> Iterator[Pixels | ImageError]:
        """The images of these records in order, or why they can't be read."""
        return self._pool.map(partial(self._decoder.decode, files=self._files), rows)

    def close(self) -> None:
        """Stop threads and processes."""
        # Threads wait for the processes, so stop those first.
        self._files.close()
        self._pool.shutdown(cancel_futures=True)


class ImageEncoding(Protocol):
    """Encode each image as a row of numbers that replaces it in a run.

    Attributes:
        shape: Shape of a row.
        key: Identifies everything but the image that determines the numbers.
        what: Name of the rows in messages.
    """

    shape: tuple[int, ...]
    key: str
    what: str

    def __call__(self, images: Sequence[Pixels]) -> Sequence[NDArray[np.float32]]:
        """Rows of images (3, S, S)."""


class PreparedImages(ImageSource):
    """All images, prepared once: in memory, mapped from disk, or on a GPU with twice the space."""

    def __init__(self, rows: PreparedRows, device: torch.device | None = None) -> None:
        self.readable = rows.readable
        self._rows = rows
        self._on_device: Tensor | None = None
        count, array = len(rows.places), rows.array
        if device is None or device.type != "cuda":
            return
        if count * rows.row_bytes < torch.cuda.mem_get_info(device)[0] / 2:
            dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
            self._on_device = torch.empty((count, *array.shape[1:]), dtype=dtype, device=device)
            for start in range(0, count, _CHUNK):
                chunk = slice(start, start + _CHUNK)
                self._on_device[chunk] = torch.from_numpy(array[rows.places[chunk]]).to(device)

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """The images of these rows, on their device."""
        kept = list(range(len(rows)))
        if self._on_device is None:
            # Indexing uint8 with torch is ten times slower.
            return torch.from_numpy(self._rows.array[self._rows.places[rows]]), kept
        return self._on_device[torch.from_numpy(rows).to(self._on_device.device, non_blocking=True)], kept

    def blank(self, count: int) -> Tensor:
        """Zeros on the images' device."""
        array = self._rows.array
        zero = torch.from_numpy(np.zeros(1, array.dtype))
        if self._on_device is not None:
            zero = self._on_device.new_zeros(1)
        return zero.expand(count, *array.shape[1:])

    def close(self) -> None:
        """Nothing to stop."""


class StreamedImages(ImageSource):
    """Images decoded for every batch, for data that doesn't fit into memory."""

    def __init__(
        self, decoder: Decoder, rejections: Rejections, threads: int, processes: int | None = None
    ) -> None:
        self.readable = range(len(decoder.manifest.records))
        self._decoder = decoder
        self._rejections = rejections
        self._broken: set[int] = set()
        self._threads = DecodingThreads(decoder, threads, processes or threads)

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """The readable images of these rows; broken ones are counted once."""
        images, kept = [], []
        numbers = rows.tolist()
        for index, (row, image) in enumerate(zip(numbers, self._threads.decode(numbers), strict=True)):
            if isinstance(image, np.ndarray):
                images.append(image)
                kept.append(index)
            elif row not in self._broken:
                self._broken.add(row)
                _reject(self._decoder, self._rejections, row, str(image))
        if not images:
            raise self._rejections.error("No image of a whole batch can be read: mend the data.")
        return torch.from_numpy(np.stack(images)), kept

    def blank(self, count: int) -> Tensor:
        """Black images."""
        return torch.zeros(1, dtype=torch.uint8).expand(count, *self._decoder.shape)

    def close(self) -> None:
        """Stop decoding threads and processes."""
        self._threads.close()


def open_images(
    decoder: Decoder,
    rejections: Rejections,
    *,
    cache: CacheImages,
    threads: int,
    device: torch.device,
    processes: Together,
    show_progress: bool = True,
    encoding: ImageEncoding | None = None,
) -> ImageSource:
    """Open the images of a manifest; all processes of a run must call it together.

    Args:
        decoder: Reads an image.
        rejections: Counts broken images.
        cache: Prepare all images now, on disk for later runs as well, or only in memory ("memory"); False:
            decode them for every batch.
        threads: Decoding threads, and processes for DICOM files; 0: one thread per core, and the number of
            processes that `decoding_threads` allows, divided among this machine's processes of the run.
        device: Keeps the images if they fit into half of its free memory.
        processes: The processes of the run; the main one writes the disk cache while the others wait.
        show_progress: Show a bar on standard error.
        encoding: Prepare encodings instead of images.

    Raises:
        DataError: Too many images are broken.
    """
    count = len(decoder.manifest.records)
    row_bytes = math.prod(decoder.shape) if encoding is None else 4 * math.prod(encoding.shape)
    room = find_room(
        count * row_bytes, count, on_disk=cache is True, processes=processes, costly=encoding is not None
    )

    # Only one process writes the disk cache.
    pool_size = threads or max(1, decoding_threads() // (1 if room.disk else processes_here()))
    threads = threads or os.cpu_count() or 1

    def opened() -> ImageSource:
        if cache or encoding is not None:
            with closing(DecodingThreads(decoder, threads, pool_size)) as decoding:
                rows = _prepared(decoder, rejections, decoding, encoding, room, shown=show_progress)
            if rows is not None:
                return PreparedImages(rows, device)
        return StreamedImages(decoder, rejections, threads, pool_size)

    return processes.main_first(opened) if room.disk else opened()


def _prepared(
    decoder: Decoder,
    rejections: Rejections,
    decoding: DecodingThreads,
    encoding: ImageEncoding | None,
    room: Room,
    *,
    shown: bool,
) -> PreparedRows | None:
    manifest = decoder.manifest
    of_files = manifest.folder, len(manifest.records), partial(image_files, manifest)
    if encoding is None:
        maker = RowMaker(*of_files, decoder.shape, np.dtype(np.uint8), decoder.key, "images", decoding.decode)
    else:
        maker = RowMaker(
            *of_files,
            encoding.shape,
            np.dtype(np.float32),
            f"{decoder.key} {encoding.key}",
            encoding.what,
            lambda rows: _encoded(list(decoding.decode(rows)), encoding),
        )
    return prepare(maker, partial(_reject, decoder, rejections), room, show_progress=shown)


def _encoded(decoded: Sequence[Pixels | ImageError], encoding: ImageEncoding) -> Iterator[Row | ImageError]:
    encoded = iter(encoding([image for image in decoded if isinstance(image, np.ndarray)]))
    for image in decoded:
        yield image if isinstance(image, ImageError) else next(encoded)


def _reject(decoder: Decoder, rejections: Rejections, row: int, reason: str) -> None:
    record = decoder.manifest.records[row]
    rejections.add(record.line, f"{record.image}: {reason}".rstrip("."))
