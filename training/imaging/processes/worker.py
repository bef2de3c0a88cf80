"""The task to decode a file, for its caller and its process; run as a module, the process of commands.

The process imports no torch.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from PIL import Image

from training.common.errors import ImageError
from training.imaging.depth import Levels
from training.imaging.formats import MEDIA_TYPES
from training.imaging.images import DecodedImage, ImageHeader, ImageLimits, decode_whole
from training.imaging.processes.process import Answer, Task
from training.imaging.processes.serving import TaskAnswer, serve
from training.imaging.resizing import Square, to_square
from training.imaging.window import Window

_COLOURS: Final = 3
_MOST_SIDE: Final = 1 << 31


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
    about = {
        "file": asdict(decoded.header),
        "picture": (decoded.width, decoded.height),
        "size": pixels.size,
        "blank": decoded.blank,
        "truncated": decoded.truncated,
        "levels": None if decoded.levels is None else asdict(decoded.levels),
        "preview_skipped": decoded.preview_skipped,
    }
    return {"outcome": "done", **about}, pixels.tobytes()


def decoded_of(answer: Answer) -> DecodedImage:
    """Read the answer of a process, which an image may have taken over.

    Raises:
        ImageError: It has another form.
    """
    about = answer.header
    try:
        file = ImageHeader(**about["file"])
        (width, height), (columns, rows) = about["picture"], about["size"]
        for side in (width, height, columns, rows):
            if type(side) is not int or not 0 < side < _MOST_SIDE:
                raise ValueError
        levels = about["levels"]
        if levels is not None:
            stated = levels["stated"]
            levels = Levels(**{**levels, "stated": None if stated is None else Window(**stated)})
        if file.media_type not in MEDIA_TYPES.values():
            raise ValueError
        if len(answer.body) != _COLOURS * columns * rows:
            raise ValueError
        return DecodedImage(
            header=file,
            width=width,
            height=height,
            pixels=Image.frombytes("RGB", (columns, rows), answer.body),
            blank=bool(about["blank"]),
            truncated=bool(about["truncated"]),
            levels=levels,
            preview_skipped=bool(about["preview_skipped"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ImageError("The image cannot be decoded: its decoder broke down; save it anew.") from None


if __name__ == "__main__":
    serve({"decode": decode}, sys.argv[1:])
