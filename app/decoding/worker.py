"""The service's decoding process and its tasks; it imports no torch."""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from index.files.renditions import STORED_LIMITS, Rendition, make_rendition, make_thumbnail, read_levels
from training.imaging.images import ImageLimits, decode_whole
from training.imaging.processes.serving import DoTask, TaskAnswer, serve
from training.imaging.resizing import Square, to_square
from training.imaging.window import Window

# The service itself has priority: its threads need the processor briefly and at once.
_NICENESS: Final = 5


def _prepare(header: Mapping[str, Any], content: bytearray) -> TaskAnswer:
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


def _thumbnail(header: Mapping[str, Any], _: bytearray) -> TaskAnswer:
    return {"outcome": "done"}, make_thumbnail(Path(header["path"]))


def _rendition(header: Mapping[str, Any], _: bytearray) -> TaskAnswer:
    window = None if header["window"] is None else Window(**header["window"])
    made = make_rendition(Path(header["path"]), Rendition(header["media_type"], header["size"], window))
    return {"outcome": "done"}, made


def _levels(header: Mapping[str, Any], _: bytearray) -> TaskAnswer:
    levels = read_levels(Path(header["path"]))
    return {"outcome": "done", "levels": None if levels is None else asdict(levels)}, b""


def _film(header: Mapping[str, Any], content: bytearray) -> TaskAnswer:
    """Read a DICOM file as de-identified films."""
    # Few processes ever read one, and its modules take longer to import than all others.
    from app.decoding.films import read_film

    return read_film(header, bytes(content))


_TASKS: Final[Mapping[str, DoTask]] = {
    "prepare": _prepare,
    "thumbnail": _thumbnail,
    "rendition": _rendition,
    "levels": _levels,
    "film": _film,
}


if __name__ == "__main__":
    os.nice(_NICENESS)
    serve(_TASKS, sys.argv[1:])
