"""Compressed frames: headers, judged before a decoder reserves memory, and removal of comments."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.jpeg import (
    APP0,
    APP14,
    DATA,
    END_OF_IMAGE,
    EOI,
    FRAMES,
    LS_FRAME,
    START_OF_IMAGE,
    pack_picture,
    read_frame,
    segments,
    walk,
)

_KINDS: Final = {**dict.fromkeys((0xC0, 0xC1, 0xC2), "JPEG"), 0xC3: "JPEG lossless", LS_FRAME: "JPEG-LS"}
_J2K_START: Final = b"\xff\x4f\xff\x51"
_JP2_START: Final = b"\0\0\0\x0cjP  "
# Markers of JPEG 2000.
_J2K_CODING, _J2K_COMMENT = b"\xff\x52", b"\xff\x64"
_J2K_TILE, _J2K_DATA = b"\xff\x90", b"\xff\x93"
_TILE: Final = struct.Struct(">HHHIBB")
_MOST_SEGMENTS: Final = 100_000
# An image of 50 megapixels in tiles of 128 x 128 has 3,000.
_MOST_TILES: Final = 10_000
# OpenJPEG keeps 200 bytes and more for each precinct of each resolution, and for each code-block.
_MOST_PARTS: Final = 500_000
_NOT_OF_SYNTAX: Final = "The DICOM image is damaged: its compressed frame is not of its transfer syntax."
_CUT: Final = "The DICOM image is damaged: a segment of its compressed frame is cut."


@dataclass(frozen=True, slots=True)
class Codestream:
    """The header of a compressed frame.

    Attributes:
        kind: "JPEG", "JPEG lossless", "JPEG-LS" or "JPEG 2000".
        components: Samples of a pixel.
        precision: Bits of a sample.
        colours: Stated coding of colours: "RGB", "YBR", or "" where the stream states none.
        signed: Whether samples are stated to be signed; JPEG 2000 alone can.
    """

    kind: str
    width: int
    height: int
    components: int
    precision: int
    colours: str = ""
    signed: bool = False


def read_codestream(frame: bytes) -> Codestream:
    """Read the header of a frame in one of the forms of JPEG.

    Raises:
        ImageTooLargeError: It has more parts than any program writes.
        ImageError: It is none, or damaged.
    """
    try:
        if frame.startswith(_J2K_START):
            return _read_j2k(frame)
        if frame.startswith(_JP2_START):
            raise ImageError(
                "The DICOM image has a JP2 file instead of a JPEG 2000 codestream; save it uncompressed."
            )
        if frame.startswith(START_OF_IMAGE):
            return _read_jpeg(frame)
    except (struct.error, IndexError):
        raise ImageError(_CUT) from None
    raise ImageError(_NOT_OF_SYNTAX)


def jpeg_error(reason: str) -> ImageError:
    """Return the error of a frame of JPEG; the reason is a clause about it."""
    return ImageError(f"The DICOM image is damaged: its JPEG frame cannot be used: {reason}.")


def _read_jpeg(frame: bytes) -> Codestream:
    """Walk over the segments up to the frame header (ITU-T T.81, section B.2; T.87, annex C)."""
    colours = ""
    for marker, _, payload, _ in walk(frame, jpeg_error):
        if marker in FRAMES or marker == LS_FRAME:
            if marker not in _KINDS:
                raise ImageError("The DICOM image is coded by a process of JPEG that cannot be read.")
            bits, height, width, names = read_frame(payload)
            colours = colours or ("RGB" if names == b"RGB" else "")
            return Codestream(_KINDS[marker], width, height, payload[5], bits, colours)
        if marker == APP14 and payload.startswith(b"Adobe") and len(payload) >= 12:
            colours = "YBR" if payload[11] else "RGB"
        elif marker == APP0 and payload.startswith(b"JFIF") and not colours:
            colours = "YBR"
    raise jpeg_error("it has no header")


def _read_j2k(frame: bytes) -> Codestream:
    """Read the size and the coding style of a codestream (ITU-T T.800, sections A.5.1 and A.6.1)."""
    right, bottom, left, top, tile_width, tile_height, tile_left, tile_top, components = struct.unpack_from(
        ">8IH", frame, 8
    )
    width, height = right - left, bottom - top
    if width < 1 or height < 1 or not tile_width or not tile_height or not components:
        raise ImageError("The DICOM image is damaged: its JPEG 2000 codestream has no size.")
    tiles = -(-(right - tile_left) // tile_width) * -(-(bottom - tile_top) // tile_height)
    if tiles > _MOST_TILES:
        raise ImageTooLargeError(
            f"The DICOM image has over {_MOST_TILES:,} tiles of JPEG 2000; save it with larger ones."
        )
    depth = frame[42]
    # Subsampled colours are read by no decoder of DICOM.
    if any(frame[offset + 1 : offset + 3] != b"\1\1" for offset in range(42, 42 + 3 * components, 3)):
        raise ImageError("The DICOM image has subsampled colours in JPEG 2000, which cannot be read.")
    for offset, _ in _j2k_segments(frame, 2):
        if not frame.startswith(_J2K_CODING, offset):
            continue
        style, _, _, mixed, levels, *block = struct.unpack_from(">BBHBBBB", frame, offset + 4)
        if levels > 32 or max(block) > 8:
            break
        # Code-blocks, and the precincts of each resolution of a tile, the smallest of which is named first.
        parts = width * height * components >> sum(block) + 4
        precincts = frame[offset + 14 : offset + 15 + levels] if style & 1 else b""
        for level, size in enumerate(reversed(precincts)):
            columns, rows = min(width, tile_width) >> level, min(height, tile_height) >> level
            parts += tiles * components * ((columns >> (size & 15)) + 1) * ((rows >> (size >> 4)) + 1)
        if parts > _MOST_PARTS:
            raise ImageTooLargeError(
                f"The DICOM image has over {_MOST_PARTS:,} code-blocks and precincts of JPEG 2000; "
                "save it with larger ones."
            )
        precision, colours = (depth & 0x7F) + 1, "RGB" if mixed else ""
        return Codestream("JPEG 2000", width, height, components, precision, colours, depth >= 0x80)
    raise ImageError("The DICOM image is damaged: its JPEG 2000 codestream has no coding style.")


def _j2k_segments(frame: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """Give the offsets of beginning and end of segments, up to a tile, data, or the end of the codestream.

    Raises:
        IndexError: One is cut.
    """
    for _ in range(_MOST_SEGMENTS):
        if offset >= len(frame) or frame[offset : offset + 2] in (_J2K_TILE, _J2K_DATA, END_OF_IMAGE):
            return
        (length,) = struct.unpack_from(">H", frame, offset + 2)
        end = offset + 2 + length
        if length < 2 or end > len(frame):
            raise IndexError
        yield offset, end
        offset = end
    raise ImageError("The DICOM image has too many segments in its JPEG 2000 codestream.")


def strip_comments(frame: bytes) -> bytes:
    """Return a frame of JPEG, JPEG-LS or JPEG 2000 that decodes alike, with nothing but its picture.

    Kept of the segments of applications is only how colours are coded, in JFIF, Adobe and HP's segments.

    Raises:
        ImageError: Its segments cannot be followed.
    """
    try:
        if frame.startswith(_J2K_START):
            return b"".join(_j2k_parts(frame))
        if frame.startswith(START_OF_IMAGE):
            return b"".join(_jpeg_parts(frame))
    except (struct.error, IndexError):
        raise ImageError(_CUT) from None
    raise ImageError(_NOT_OF_SYNTAX)


def _jpeg_parts(frame: bytes) -> Iterator[bytes]:
    """Give the parts of a frame that are kept (ITU-T T.81, annex B; T.87, annex C)."""
    yield START_OF_IMAGE
    offset, marker = 2, 0
    for marker, start, payload, end in segments(frame, jpeg_error):
        if frame[offset:start].strip(b"\xff"):
            raise jpeg_error("it has bytes between its segments")
        yield pack_picture(marker, payload)
        offset = end
    if marker not in (EOI, DATA) or (marker == DATA and offset < len(frame)):
        raise jpeg_error("it is cut")


def _j2k_parts(frame: bytes) -> Iterator[bytes]:
    """Give the parts of a codestream that are kept (ITU-T T.800, annex A)."""
    header, offset = _j2k_header(frame, 2)
    yield frame[:2] + header
    while frame.startswith(_J2K_TILE, offset):
        tag, size, tile, length, number, count = _TILE.unpack_from(frame, offset)
        # Without a length, the last part continues to the end of the codestream.
        end = offset + length if length else len(frame) - 2 * frame.endswith(END_OF_IMAGE)
        header, data = _j2k_header(frame, offset + _TILE.size)
        if end > len(frame) or 0 < length < _TILE.size + 2 or not frame.startswith(_J2K_DATA, data):
            raise IndexError
        if length:
            length = _TILE.size + len(header) + end - data
        yield _TILE.pack(tag, size, tile, length, number, count) + header + frame[data:end]
        offset = end
    if offset < len(frame) and not frame.startswith(END_OF_IMAGE, offset):
        raise IndexError
    yield END_OF_IMAGE


def _j2k_header(frame: bytes, offset: int) -> tuple[bytes, int]:
    """Return the segments of a header without comments, and the offset of its end."""
    parts = list(_j2k_segments(frame, offset))
    kept = (frame[start:end] for start, end in parts if not frame.startswith(_J2K_COMMENT, start))
    return b"".join(kept), parts[-1][1] if parts else offset
