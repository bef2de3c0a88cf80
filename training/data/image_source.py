"""The images of a training run as uint8 tensors: prepared before the first step, or when they are needed."""

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
from training.models.inputs.images import Pixels
from training.models.preprocessing import ImagePreprocessing

# To be raised when resizing gives other pixels of the same image.
_SQUARE_VERSION: Final = 1
_CHUNK: Final = 256

CacheImages = bool | Literal["memory"]


class ImageSource(ABC):
    """Images by their place among the readable ones.

    Attributes:
        readable: The rows of the manifest whose image can be read, as far as is known.
    """

    readable: Sequence[int]

    @abstractmethod
    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """Images uint8 (K, 3, S, S) and which K of the given rows they are; fewer when one is broken.

        Of encoded images their rows (K, W) float32.
        """

    @abstractmethod
    def blank(self, count: int) -> Tensor:
        """Made images (count, ...) of the shape and type of those that are loaded."""

    @abstractmethod
    def close(self) -> None:
        """End the threads and processes that decode, if any; nothing can be loaded afterwards."""


@dataclass(frozen=True)
class Decoder:
    """Reads the images of a manifest.

    Attributes:
        manifest: Names the files.
        preprocessing: Makes (3, S, S) of a decoded image.
    """

    manifest: Manifest
    preprocessing: ImagePreprocessing

    @property
    def shape(self) -> tuple[int, int, int]:
        """(3, S, S)."""
        size = self.preprocessing.config.size
        return 3, size, size

    @property
    def key(self) -> str:
        """Tells all that decides the pixels besides the file."""
        config = self.preprocessing.config
        return (
            f"{PIXELS_VERSION}.{_SQUARE_VERSION} {config.square} {config.min_side} Pillow {PIL.__version__}"
        )

    def decode(self, row: int, files: FileDecoder) -> Pixels | ImageError:
        """The image of a record, or why it cannot be read."""
        config = self.preprocessing.config
        try:
            path = self.manifest.image_path(self.manifest.records[row])
            decoded = files.decode(path, min_side=config.min_side, square=config.square)
            return to_planes(decoded.pixels)
        except ImageError as error:
            return error


class DecodingThreads:
    """Threads that decode the images of a manifest, and processes for those that threads would hold up."""

    def __init__(self, decoder: Decoder, threads: int, processes: int) -> None:
        self._decoder = decoder
        self._files = FileDecoder(processes)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    def decode(self, rows: Sequence[int]) -> Iterator[Pixels | ImageError]:
        """The images of these records in order, or why each cannot be read."""
        return self._pool.map(partial(self._decoder.decode, files=self._files), rows)

    def close(self) -> None:
        """End threads and processes."""
        # Threads wait for what the processes decode.
        self._files.close()
        self._pool.shutdown(cancel_futures=True)


class ImageEncoding(Protocol):
    """Makes of each image the row of numbers that takes its place in a run.

    Attributes:
        shape: Of a row.
        key: Tells all that decides its numbers besides the image.
        what: Name of the rows, for messages.
    """

    shape: tuple[int, ...]
    key: str
    what: str

    def __call__(self, images: Sequence[Pixels]) -> Sequence[NDArray[np.float32]]:
        """The row of each image (3, S, S)."""


class PreparedImages(ImageSource):
    """All images, prepared once, in memory or mapped from a disk."""

    def __init__(self, rows: PreparedRows) -> None:
        self.readable = rows.readable
        self._rows = rows

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """The images of these rows, on the CPU."""
        # Indexing of uint8 by torch is ten times slower.
        return torch.from_numpy(self._rows.array[self._rows.places[rows]]), list(range(len(rows)))

    def blank(self, count: int) -> Tensor:
        """Zeros on the CPU."""
        array = self._rows.array
        return torch.from_numpy(np.zeros(1, array.dtype)).expand(count, *array.shape[1:])

    def close(self) -> None:
        """There are no threads."""


class ImagesOnDevice(ImageSource):
    """All images, prepared once, in the memory of a GPU."""

    def __init__(self, rows: PreparedRows, device: torch.device) -> None:
        self.readable = rows.readable
        count, shape = len(rows.places), rows.array.shape[1:]
        dtype = torch.from_numpy(np.empty(0, rows.array.dtype)).dtype
        self._images = torch.empty((count, *shape), dtype=dtype, device=device)
        for start in range(0, count, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            self._images[chunk] = torch.from_numpy(rows.array[rows.places[chunk]]).to(device)

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """The images of these rows, on the device."""
        places = torch.from_numpy(rows).to(self._images.device, non_blocking=True)
        return self._images[places], list(range(len(rows)))

    def blank(self, count: int) -> Tensor:
        """Zeros on the device."""
        return self._images.new_zeros(1).expand(count, *self._images.shape[1:])

    def close(self) -> None:
        """There are no threads."""


class StreamedImages(ImageSource):
    """Images decoded for every batch, for data that memory cannot hold."""

    def __init__(
        self, decoder: Decoder, rejections: Rejections, threads: int, processes: int | None = None
    ) -> None:
        self.readable = range(len(decoder.manifest.records))
        self._decoder = decoder
        self._rejections = rejections
        self._broken: set[int] = set()
        self._threads = DecodingThreads(decoder, threads, processes or threads)

    def load(self, rows: NDArray[np.int64]) -> tuple[Tensor, list[int]]:
        """The images of these rows but the broken ones, each of which is counted once."""
        images, kept = [], []
        wanted = rows.tolist()
        for place, image in enumerate(self._threads.decode(wanted)):
            if isinstance(image, np.ndarray):
                images.append(image)
                kept.append(place)
            elif wanted[place] not in self._broken:
                self._broken.add(wanted[place])
                _reject(self._decoder, self._rejections, wanted[place], str(image))
        if not images:
            raise self._rejections.error("No image of a whole batch can be read: mend the data.")
        return torch.from_numpy(np.stack(images)), kept

    def blank(self, count: int) -> Tensor:
        """Black images."""
        return torch.zeros(1, dtype=torch.uint8).expand(count, *self._decoder.shape)

    def close(self) -> None:
        """End the threads and processes that decode."""
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
    """The images of a manifest; to be asked by all processes of a run at the same moment.

    Args:
        decoder: Reads one.
        rejections: Where broken images are counted.
        cache: Prepare all of them now, once for this run and later ones, or in memory for this one; False:
            decode them for every batch.
        threads: Threads that decode, and processes for DICOM files; 0: a thread a core, and the processes
            that `decoding_threads` allows, shared by those of the run that decode at the same time.
        device: Where they are kept if they fit into half of the free memory there.
        processes: Open the same images; the leading one fills the disk while the others wait.
        show_progress: Show a bar on standard error.
        encoding: Prepare its rows in place of the images; None: the images.

    Raises:
        DataError: Too many images are broken.
    """
    count = len(decoder.manifest.records)
    row_bytes = math.prod(decoder.shape) if encoding is None else 4 * math.prod(encoding.shape)
    room = find_room(
        count * row_bytes, count, on_disk=cache is True, processes=processes, costly=encoding is not None
    )

    # One process alone fills the disk.
    pool_size = threads or max(1, decoding_threads() // (1 if room.disk else processes_here()))
    threads = threads or os.cpu_count() or 1

    def opened() -> ImageSource:
        if cache or encoding is not None:
            with closing(DecodingThreads(decoder, threads, pool_size)) as decoding:
                rows = _prepared(decoder, rejections, decoding, encoding, room, shown=show_progress)
            if rows is not None:
                return _on_device(rows, device)
        return StreamedImages(decoder, rejections, threads, pool_size)

    return processes.leader_first(opened) if room.disk else opened()


def _on_device(rows: PreparedRows, device: torch.device) -> ImageSource:
    """Rows on a GPU if they fit into half of its free memory, else where they are."""
    needed = len(rows.places) * rows.row_bytes
    if device.type == "cuda" and needed < torch.cuda.mem_get_info(device)[0] / 2:
        return ImagesOnDevice(rows, device)
    return PreparedImages(rows)


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
