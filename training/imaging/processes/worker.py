"""The decoding process of commands that read many files, and its one task; it imports no torch."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from training.imaging.images import ImageLimits, decode_whole
from training.imaging.processes.serving import TaskAnswer, serve
from training.imaging.resizing import Square, to_square


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


if __name__ == "__main__":
    serve({"decode": decode}, sys.argv[1:])
