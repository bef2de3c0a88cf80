"""Compressed frames without what is no part of the picture: comments, applications' data, thumbnails."""

import struct
from collections.abc import Iterator
from typing import Final

from training.errors import ImageError

_J2K_START: Final = b"\xff\x4f\xff\x51"
_MOST_SEGMENTS: Final = 100_000
# Markers of JPEG and JPEG-LS: start of image, of a scan and of a frame's end, and those without a length.
_END: Final = 0xD9
_SCAN: Final = 0xDA
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD8)})
_APPLICATIONS: Final = range(0xE0, 0xF0)
_COMMENT: Final = 0xFE
# Markers of JPEG 2000.
_J2K_COMMENT: Final = 0xFF64
_J2K_TILE: Final = 0xFF90
_J2K_DATA: Final = 0xFF93
_J2K_END: Final = b"\xff\xd9"
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
    place, jpeg_ls = 2, False
    for _ in range(_MOST_SEGMENTS):
        if frame[place] != 0xFF:
            raise ImageError("The DICOM image is damaged: its JPEG frame has bytes between segments.")
        marker = frame[place + 1]
        if marker == 0xFF:
            place += 1
            continue
        if marker == _END:
            yield frame[place : place + 2]
            return
        if marker in _WITHOUT_LENGTH:
            yield frame[place : place + 2]
            place += 2
            continue
        end = place + 2 + _length(frame, place + 2)
        segment = frame[place:end]
        jpeg_ls = jpeg_ls or marker == 0xF7
        if marker in _APPLICATIONS:
            yield _colour_segment(marker, segment)
        elif marker != _COMMENT:
            yield segment
        place = end
        if marker == _SCAN:
            place = _scan_end(frame, end, jpeg_ls=jpeg_ls)
            yield frame[end:place]
            if place >= len(frame):
                return
    raise ImageError("The DICOM image has too many segments in its JPEG frame.")


def _length(frame: bytes, place: int) -> int:
    (length,) = struct.unpack_from(">H", frame, place)
    if length < 2 or place + length > len(frame):
        raise IndexError
    return int(length)


def _colour_segment(marker: int, segment: bytes) -> bytes:
    """Return the part of an application's segment by which decoders tell colours; empty for any other."""
    content = segment[4:]
    if marker == 0xE0 and content.startswith(b"JFIF\0") and len(content) >= 14:
        # Without its thumbnail.
        kept = content[:12] + b"\0\0"
    elif marker == 0xEE and content.startswith(b"Adobe") and len(content) >= 12:
        kept = content[:12]
    elif marker == 0xE8 and content.startswith(b"mrfx") and len(content) >= 5:
        kept = content[:5]
    else:
        return b""
    return segment[:2] + struct.pack(">H", len(kept) + 2) + kept


def _scan_end(frame: bytes, place: int, *, jpeg_ls: bool) -> int:
    """Find the marker behind the coded data of a scan; the end of the frame where there is none."""
    while True:
        place = frame.find(b"\xff", place)
        if place < 0 or place + 1 >= len(frame):
            return len(frame)
        follows = frame[place + 1]
        # A byte of 0, in JPEG-LS a bit of 0, tells data from markers; restarts belong to the scan.
        if follows == 0xFF:
            place += 1
        elif (follows < 0x80 if jpeg_ls else follows == 0) or 0xD0 <= follows <= 0xD7:
            place += 2
        else:
            return place


def _j2k_parts(frame: bytes) -> Iterator[bytes]:
    """Give the parts of a codestream that are kept (ITU-T T.800, annex A)."""
    yield frame[:2]
    place = 2
    for _ in range(_MOST_SEGMENTS):
        marker = frame[place : place + 2]
        if marker == _J2K_END or place >= len(frame):
            break
        (code,) = struct.unpack(">H", marker)
        if code == _J2K_TILE:
            start = place
            _, _, _, length, _, _ = _TILE.unpack_from(frame, place)
            # Without a length, the last part goes on to the end of the codestream.
            end = start + length if length else len(frame) - 2 * frame.endswith(_J2K_END)
            if end > len(frame) or (length and length < _TILE.size + 2):
                raise IndexError
            yield from _tile_part(frame, start, end, has_length=bool(length))
            place = end
            continue
        end = place + 2 + _length(frame, place + 2)
        if code != _J2K_COMMENT:
            yield frame[place:end]
        place = end
    else:
        raise ImageError("The DICOM image has too many segments in its JPEG 2000 codestream.")
    yield _J2K_END


def _tile_part(frame: bytes, start: int, end: int, *, has_length: bool) -> Iterator[bytes]:
    place, kept = start + _TILE.size, []
    for _ in range(_MOST_SEGMENTS):
        (code,) = struct.unpack_from(">H", frame, place)
        if code == _J2K_DATA:
            break
        after = place + 2 + _length(frame, place + 2)
        if code != _J2K_COMMENT:
            kept.append(frame[place:after])
        place = after
    else:
        raise ImageError("The DICOM image has too many segments in its JPEG 2000 codestream.")
    header = b"".join(kept)
    tag, size, tile, _, number, count = _TILE.unpack_from(frame, start)
    length = _TILE.size + len(header) + end - place if has_length else 0
    yield _TILE.pack(tag, size, tile, length, number, count) + header + frame[place:end]
