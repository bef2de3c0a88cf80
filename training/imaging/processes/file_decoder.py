"""Image files decoded by many threads at once: DICOM files in processes, as they hold the interpreter."""

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from training.common.errors import ImageError
from training.common.host import decoding_threads, processes_here
from training.common.workers import WorkerLostError
from training.imaging.images import DecodedImage, ImageLimits, decode_content, read_file
from training.imaging.processes.pool import (
    Answer,
    DecodersClosedError,
    DecoderStartError,
    DecodingPool,
    DecodingTimeoutError,
    PoolLimits,
    Priority,
    Task,
)
from training.imaging.processes.worker import decode_task, read_decoded
from training.imaging.resizing import Square, to_square

_WORKER: Final = "training.imaging.processes.worker"
# Files of the owner's own, whatever they take, unless they would stop a run.
_MEMORY_BYTES: Final = 2 << 30
_CPU_S: Final = 120
_DEADLINE_S: Final = 900.0
# Each thread that asks waits for its answer.
_WAITING: Final = 1 << 20


class FileDecoder:
    """Decodes image files; threads may share it.

    Most decoders work without Python's interpreter, so threads decode side by side. Decoding DICOM holds it
    for much of the time: those files are decoded in processes, which begin with the first of them.

    Args:
        processes: Number of processes; 0: as many as threads decode, shared by the processes of a run.
        isolated: Decode files of all formats in processes, so that none can stop the command.
    """

    def __init__(self, processes: int = 0, *, isolated: bool = False) -> None:
        self._isolated = isolated
        self._processes = processes or max(1, decoding_threads() // processes_here())
        self._lock = threading.Lock()
        self._pool: DecodingPool | None = None
        self._owner = os.getpid()
        self._closed = False

    def __enter__(self) -> Self:
        """Return the decoder, which is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def decode(
        self,
        source: bytes | Path,
        limits: ImageLimits | None = None,
        min_side: int | None = None,
        square: Square | None = None,
    ) -> DecodedImage:
        """Decode a file as `decode_whole` does, and make a square of it if one is given.

        Raises:
            ImageTooLargeError: The image is over the limits, of a process among them.
            ImageError: It cannot be used, or its decoder broke down.
            DecoderStartError: No process can be started.
            DecodersClosedError: The decoder was closed.
        """
        limits = limits or ImageLimits()
        content, format_name = read_file(source, limits)
        if self._isolated or format_name == "DICOM":
            return read_decoded(self._ask(decode_task(source, limits, min_side, square)))
        decoded = decode_content(content, format_name, limits, min_side)
        return decoded if square is None else replace(decoded, pixels=to_square(decoded.pixels, square))

    def close(self) -> None:
        """End the processes; files that are being decoded in them are given up."""
        with self._lock:
            self._closed = True
        if self._pool is not None:
            self._pool.close()

    def _ask(self, task: Task) -> Answer:
        try:
            return self._running().submit(task, Priority.UPLOAD).result()
        except DecodingTimeoutError:
            minutes = _DEADLINE_S / 60
            late = f"Decoding the image takes over {minutes:.0f} minutes; save it anew."
            raise ImageError(late) from WorkerLostError("wall")
        except DecoderStartError as error:
            raise DecoderStartError(
                "No process that decodes images can be started: free memory, or allow more processes, "
                "and run this again."
            ) from error

    def _running(self) -> DecodingPool:
        with self._lock:
            if self._closed:
                raise DecodersClosedError("The decoder of image files is closed.")
            if self._pool is None or self._owner != os.getpid():
                # The threads of a pool do not come along where the system copies a process.
                self._owner = os.getpid()
                limits = PoolLimits(_WORKER, self._processes, _WAITING, _DEADLINE_S, _MEMORY_BYTES, _CPU_S)
                self._pool = DecodingPool(limits)
            return self._pool
