"""A decoding process, which does tasks within limits; and the task to decode a file, for both sides.

Run as a module it is the process of commands. The process that has started it sets the threads of the
libraries in its environment. It imports no torch.
"""

import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from PIL import Image

from training.common.errors import ImageError, ImageTooLargeError
from training.common.host import end_with_parent, return_freed_memory
from training.common.workers import BrokenMessageError, receive, send
from training.imaging.depth import Levels
from training.imaging.formats import MEDIA_TYPES
from training.imaging.images import DecodedImage, ImageHeader, ImageLimits, decode_whole
from training.imaging.processes.pool import Answer, Task
from training.imaging.resizing import Square, to_square
from training.imaging.window import Window

# Header, with the outcome, and body of an answer.
TaskAnswer = tuple[dict[str, Any], bytes]
# Does a task, of its header and the content of a file.
DoTask = Callable[[Mapping[str, Any], bytearray], TaskAnswer]

_MAX_BYTES: Final = 1 << 40
_COLOURS: Final = 3
_MOST_SIDE: Final = 1 << 31


def serve(tasks: Mapping[str, DoTask], arguments: Sequence[str]) -> None:
    """Answer tasks until the other side closes the socket.

    Args:
        tasks: Functions by the name of a task; they may raise ImageError and MemoryError.
        arguments: Command line arguments: PID of the parent, file descriptor of the socket, address space in
            bytes beyond what this process has now, and CPU seconds of a task.
    """
    parent, descriptor, memory_bytes, cpu_s = map(int, arguments)
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    space, hard = pages * resource.getpagesize() + memory_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]
    # A limit that the user has set may be lower.
    space = space if hard == resource.RLIM_INFINITY else min(space, hard)
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
            allow_cpu(cpu_s)
            outcome, body = _answer(tasks, header, content)
            del content
            send(connection, outcome, body)
            if outcome["outcome"] == "memory":
                # Libraries seldom test how they go on after a failed allocation.
                return
            del body
            return_freed_memory()


def allow_cpu(cpu_s: int) -> None:
    """Give this process so many seconds of CPU time from now on."""
    # A limit of the whole process (RLIMIT_CPU) is compared with ticks of the system's clock, and `getrusage`
    # reports measured time: after thousands of tasks the two are seconds apart.
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def _answer(tasks: Mapping[str, DoTask], header: Mapping[str, Any], content: bytearray) -> TaskAnswer:
    try:
        return tasks[header["task"]](header, content)
    except ImageTooLargeError as error:
        return {"outcome": "too-large", "reason": str(error)}, b""
    except ImageError as error:
        return {"outcome": "refused", "reason": str(error)}, b""
    except MemoryError:
        return {"outcome": "memory"}, b""


def decode_task(
    source: bytes | Path, limits: ImageLimits, min_side: int | None = None, square: Square | None = None
) -> Task:
    """Return the task to decode a file as `decode_whole` does, and to make a square of it if one is given."""
    header = {
        "task": "decode",
        "limits": asdict(limits),
        "min_side": min_side,
        "square": None if square is None else asdict(square),
    }
    most = _COLOURS * (limits.max_pixels if square is None else square.size**2)
    if isinstance(source, Path):
        # A process reads it from the system's cache in less time than it takes to send it.
        return Task({**header, "path": str(source.absolute())}, most)
    return Task(header, most, source)


def decode(header: Mapping[str, Any], content: bytearray) -> TaskAnswer:
    """Decode a file; the answer has all of a `DecodedImage`, with its pixels in the body.

    Raises:
        ImageTooLargeError: It is over the limits.
        ImageError: It is damaged, or cannot be used.
    """
    source = Path(header["path"]) if "path" in header else bytes(content)
    decoded = decode_whole(source, ImageLimits(**header["limits"]), header["min_side"])
    pixels = decoded.pixels
    if header["square"] is not None:
        pixels = to_square(pixels, Square(**header["square"]))
    about = vars(decoded) | {
        "header": asdict(decoded.header),
        "levels": None if decoded.levels is None else asdict(decoded.levels),
        "pixels": pixels.size,
    }
    return {"outcome": "done", **about}, pixels.tobytes()


def read_decoded(answer: Answer) -> DecodedImage:
    """Read the answer of a process, which an image may have taken over.

    Raises:
        ImageError: It has another form.
    """
    about = answer.header
    try:
        header, levels = ImageHeader(**about["header"]), about["levels"]
        sides = (about["width"], about["height"], *about["pixels"])
        width, height, columns, rows = sides
        if any(type(side) is not int or not 0 < side < _MOST_SIDE for side in sides):
            raise ValueError
        if header.format not in MEDIA_TYPES or len(answer.body) != _COLOURS * columns * rows:
            raise ValueError
        if levels is not None:
            stated = levels["stated"]
            levels = Levels(**{**levels, "stated": None if stated is None else Window(**stated)})
        flags = {name: bool(about[name]) for name in ("blank", "truncated", "preview_skipped")}
        pixels = Image.frombytes("RGB", (columns, rows), answer.body)
        return DecodedImage(header, width, height, pixels, levels=levels, **flags)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ImageError("The image cannot be decoded: its decoder broke down; save it anew.") from None


if __name__ == "__main__":
    serve({"decode": decode}, sys.argv[1:])
