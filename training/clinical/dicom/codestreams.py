"""Compressed frames without what is no part of the picture: comments, applications' data, thumbnails."""

import struct
from collections.abc import Iterator
from typing import Final

from training.common.errors import ImageError
from training.imaging.codecs.jpeg import (
    APP0,
    APP15,
    COM,
    END_OF_IMAGE,
    EOI,
    SOS,
    colour_segment,
    pack_segment,
    segments,
)

_J2K_START: Final = b"\xff\x4f\xff\x51"
_MOST_SEGMENTS: Final = 100_000
# Markers of JPEG 2000.
_J2K_COMMENT: Final = b"\xff\x64"
_J2K_TILE: Final = b"\xff\x90"
_J2K_DATA: Final = b"\xff\x93"
_TILE: Final = struct.Struct(">HHHIBB")


def strip_comments(frame: bytes) -> bytes:
    """Return a frame of JPEG, JPEG-LS or JPEG 2000 that decodes alike, with nothing but its picture.

    Kept of the segments of applications is only how colours are coded, in JFIF, Adobe and HP's segments.

    Raises:
        ImageError: Its segments cannot be followed.
    """
    try:
        if frame.startswith(_J2K_START):
            return b"".join(_j2k_parts(frame))
        if frame.startswith(b"\xff\xd8"):
            return b"".join(_jpeg_parts(frame))
    except (struct.error, IndexError):
        raise ImageError("The DICOM image is damaged: a segment of its compressed frame is cut.") from None
    raise ImageError("The DICOM image is damaged: its compressed frame is not of its transfer syntax.")


def _jpeg_parts(frame: bytes) -> Iterator[bytes]:
    """Give the parts of a frame that are kept (ITU-T T.81, annex B; T.87, annex C)."""
    yield frame[:2]
    place, marker = 2, 0
    for marker, payload, data, end in segments(frame, _jpeg_error):
        head = 2 if marker == EOI else 4
        if frame[place : end - len(data) - len(payload) - head].strip(b"\xff"):
            raise _jpeg_error("it has bytes between its segments")
        if APP0 <= marker <= APP15:
            yield colour_segment(marker, payload)
        elif marker == EOI:
            yield END_OF_IMAGE
        elif marker != COM:
            yield pack_segment(marker, payload) + data
        place = end
    if marker != EOI and (marker != SOS or place < len(frame)):
        raise _jpeg_error("it is cut")


def _jpeg_error(reason: str) -> ImageError:
    return ImageError(f"The JPEG frame of the DICOM image is damaged: {reason}.")


def _j2k_parts(frame: bytes) -> Iterator[bytes]:
    """Give the parts of a codestream that are kept (ITU-T T.800, annex A)."""
    header, place = _j2k_header(frame, 2)
    yield frame[:2] + header
    while frame.startswith(_J2K_TILE, place):
        tag, size, tile, length, number, count = _TILE.unpack_from(frame, place)
        # Without a length, the last part goes on to the end of the codestream.
        end = place + length if length else len(frame) - 2 * frame.endswith(END_OF_IMAGE)
        header, data = _j2k_header(frame, place + _TILE.size)
        if end > len(frame) or 0 < length < _TILE.size + 2 or not frame.startswith(_J2K_DATA, data):
            raise IndexError
        if length:
            length = _TILE.size + len(header) + end - data
        yield _TILE.pack(tag, size, tile, length, number, count) + header + frame[data:end]
        place = end
    if place < len(frame) and not frame.startswith(END_OF_IMAGE, place):
        raise IndexError
    yield END_OF_IMAGE


def _j2k_header(frame: bytes, place: int) -> tuple[bytes, int]:
    """Return the segments of a header without comments, and where it ends: at a tile, data or nothing."""
    kept: list[bytes] = []
    for _ in range(_MOST_SEGMENTS):
        marker = frame[place : place + 2]
        if place >= len(frame) or marker in (_J2K_TILE, _J2K_DATA, END_OF_IMAGE):
            return b"".join(kept), place
        (length,) = struct.unpack_from(">H", frame, place + 2)
        end = place + 2 + length
        if length < 2 or end > len(frame):
            raise IndexError
        if marker != _J2K_COMMENT:
            kept.append(frame[place:end])
        place = end
    raise ImageError("The DICOM image has too many segments in its JPEG 2000 codestream.")
