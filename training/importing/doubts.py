"""Doubts about image files that an import takes by their beginnings: cut files, previews in TIFF."""

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO, Final, Literal

from training.common.errors import ImageError
from training.imaging.jpeg import END_OF_IMAGE, EOI, segments
from training.imaging.tiff import HEIGHT, WIDTH, first_page, number, read_tags

Doubt = Literal["", "cut", "preview"]

_TAIL_BYTES: Final = 64
# Larger files are not read whole for a doubt.
_MOST_BYTES: Final = 1 << 26
_MOST_PAGES: Final = 16
_MOST_BOXES: Final = 1000
_LARGE_BOX: Final = b"\0\0\0\1"


def find_doubt(file: BinaryIO, format_name: str) -> Doubt:
    """Return why the picture in an open file may not be what its owner expects; "" without a doubt.

    A JPEG file is cut if its segments do not lead to the end of an image; a PNG file without its last chunk;
    WebP, AVIF and HEIC files if a part has more bytes than the file has left. A TIFF file may begin with a
    page that is smaller than another one and is not marked as a preview.
    """
    looked = _DOUBTS.get(format_name)
    try:
        return "" if looked is None else looked(file, os.fstat(file.fileno()).st_size)
    except OSError:
        return ""


def _tail_or_whole(file: BinaryIO, size: int, mark: bytes) -> bytes | None:
    """The whole file where its tail lacks a mark; None where it has it, or the file is too large."""
    file.seek(max(0, size - _TAIL_BYTES))
    if mark in file.read(_TAIL_BYTES) and size > _TAIL_BYTES:
        return None
    file.seek(0)
    return file.read() if size <= _MOST_BYTES else None


def _doubt_of_jpeg(file: BinaryIO, size: int) -> Doubt:
    content = _tail_or_whole(file, size, END_OF_IMAGE)
    try:
        # Exif data ahead may hold a whole thumbnail.
        ends = content is None or any(segment.marker == EOI for segment in segments(content, ImageError))
        return "" if ends else "cut"
    except ImageError:
        return "cut"


def _doubt_of_png(file: BinaryIO, size: int) -> Doubt:
    content = _tail_or_whole(file, size, b"IEND")
    return "cut" if content is not None and b"IDAT" in content and b"IEND" not in content else ""


def _doubt_of_webp(file: BinaryIO, size: int) -> Doubt:
    file.seek(4)
    return "cut" if int.from_bytes(file.read(4), "little") + 8 > size + 1 else ""


def _doubt_of_boxes(file: BinaryIO, size: int) -> Doubt:
    place = 0
    for _ in range(_MOST_BOXES):
        file.seek(place)
        head = file.read(16)
        length = int.from_bytes(head[8:16] if head[:4] == _LARGE_BOX else head[:4])
        # A box without a length goes to the end.
        if place >= size or length < 8:
            break
        place += length
    return "cut" if place > size else ""


def _doubt_of_tiff(file: BinaryIO, size: int) -> Doubt:
    if size > _MOST_BYTES:
        return ""
    file.seek(0)
    content = file.read()
    areas: list[int] = []
    # Pillow warns of damaged directories, and raises whatever their bytes lead to.
    with warnings.catch_warnings(action="ignore"), suppress(Exception):
        taken = first_page(content, _MOST_PAGES)
        for page in range(_MOST_PAGES):
            tags = read_tags(content, page)
            areas.append(number(tags, WIDTH, 0) * number(tags, HEIGHT, 0))
    return "preview" if areas and areas[min(taken, len(areas) - 1)] < max(areas) else ""


_DOUBTS: Final[Mapping[str, Callable[[BinaryIO, int], Doubt]]] = {
    "JPEG": _doubt_of_jpeg,
    "PNG": _doubt_of_png,
    "WebP": _doubt_of_webp,
    "AVIF": _doubt_of_boxes,
    "HEIC": _doubt_of_boxes,
    "TIFF": _doubt_of_tiff,
}
