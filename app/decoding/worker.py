"""The process that decodes: it reads tasks from a socket and answers each, within its limits.

It imports Pillow, numpy and modules of ours without torch. The process that has started it sets the threads
of the libraries in its environment.
"""

import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from app.decoding.messages import BrokenMessageError, receive, send
from index.files.renditions import Rendition, make_rendition, read_levels
from index.files.thumbnails import STORED_LIMITS, make_thumbnail
from training.data.decoding.images import ImageLimits, decode_whole
from training.data.decoding.window import Window
from training.errors import ImageError, ImageTooLargeError
from training.host import end_with_parent
from training.models.inputs.resize import Square, to_square

_MAX_BYTES: Final = 1 << 40
# The service itself has priority: its threads need the processor briefly and at once.
_NICENESS: Final = 5

Answer = tuple[dict[str, Any], bytes]


def main(parent: int, descriptor: int, memory_bytes: int, cpu_s: int) -> None:
    """Answer tasks until the other side closes the socket.

    Args:
        parent: The process that has started this one.
        descriptor: File descriptor of the socket.
        memory_bytes: Address space that the process may have beyond what it has now.
        cpu_s: CPU seconds that a task may take.
    """
    end_with_parent(parent)
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    space = _address_space() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    with socket.socket(fileno=descriptor) as connection:
        send(connection, {"outcome": "ready"})
        while True:
            try:
                header, content = receive(connection, _MAX_BYTES)
            except BrokenMessageError:
                return
            except MemoryError:
                send(connection, {"outcome": "memory"})
                return
            _allow(cpu_s)
            outcome, body = _answer(header, content)
            del content
            send(connection, outcome, body)
            if outcome["outcome"] == "memory":
                # Libraries seldom test how they go on after a failed allocation.
                return


def _address_space() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def _allow(cpu_s: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime) + cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _answer(header: Mapping[str, Any], content: bytearray) -> Answer:
    try:
        return _TASKS[header["task"]](header, content)
    except ImageTooLargeError as error:
        return {"outcome": "too-large", "reason": str(error)}, b""
    except ImageError as error:
        return {"outcome": "refused", "reason": str(error)}, b""
    except MemoryError:
        return {"outcome": "memory"}, b""


def _prepare(header: Mapping[str, Any], content: bytearray) -> Answer:
    """Decode an image and resize it to an encoder's input, uint8 (3, S, S)."""
    encoder = header["encoder"]
    if "path" in header:
        decoded = decode_whole(Path(header["path"]), STORED_LIMITS, encoder["min_side"])
    else:
        decoded = decode_whole(bytes(content), ImageLimits(**header["limits"]), encoder["min_side"])
    square = to_square(decoded.pixels, Square(**encoder["square"]))
    planes = np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))
    size = {"width": decoded.width, "height": decoded.height}
    about = {"media_type": decoded.header.media_type, **size, "flags": decoded.flags}
    return {"outcome": "done", **about}, planes.tobytes()


def _thumbnail(header: Mapping[str, Any], _: bytearray) -> Answer:
    return {"outcome": "done"}, make_thumbnail(Path(header["path"]))


def _rendition(header: Mapping[str, Any], _: bytearray) -> Answer:
    window = None if header["window"] is None else Window(**header["window"])
    made = make_rendition(Path(header["path"]), Rendition(header["media_type"], header["size"], window))
    return {"outcome": "done"}, made


def _levels(header: Mapping[str, Any], _: bytearray) -> Answer:
    levels = read_levels(Path(header["path"]))
    return {"outcome": "done", "levels": None if levels is None else asdict(levels)}, b""


def _film(header: Mapping[str, Any], content: bytearray) -> Answer:
    """Read a DICOM file as de-identified films."""
    # Few processes ever read one, and its modules take longer to import than all others.
    from app.decoding.films import read_film

    return read_film(header, bytes(content))


_TASKS: Final[Mapping[str, Callable[[Mapping[str, Any], bytearray], Answer]]] = {
    "prepare": _prepare,
    "thumbnail": _thumbnail,
    "rendition": _rendition,
    "levels": _levels,
    "film": _film,
}


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:5]))
