"""The service's decoding process and its tasks; it imports no torch."""

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from index.files.renditions import Rendition, make_rendition, make_thumbnail, read_levels
from training.imaging.processes.worker import DoTask, TaskAnswer, decode, serve
from training.imaging.window import Window

# The service itself has priority: its threads need the processor briefly and at once.
_NICENESS: Final = 5


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
    # Few processes ever read one, and its modules take longer to import than all others.
    from app.decoding.films import read_film

    return read_film(header, bytes(content))


_TASKS: Final[Mapping[str, DoTask]] = {
    "decode": decode,
    "thumbnail": _thumbnail,
    "rendition": _rendition,
    "levels": _levels,
    "film": _film,
}


if __name__ == "__main__":
    os.nice(_NICENESS)
    serve(_TASKS, sys.argv[1:])
