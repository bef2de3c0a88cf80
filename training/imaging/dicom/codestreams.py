"""The headers of compressed frames: what a decoder would reserve memory for is judged before it does."""

import struct
from dataclasses import dataclass
from typing import Final

from training.common.errors import ImageError, ImageTooLargeError

_LS: Final = 0xF7
# Markers of frames: all of T.81, and that of JPEG-LS.
_FRAMES: Final = frozenset({*range(0xC0, 0xD0), _LS} - {0xC4, 0xC8, 0xCC})
_KINDS: Final = {**dict.fromkeys((0xC0, 0xC1, 0xC2), "JPEG"), 0xC3: "JPEG lossless", _LS: "JPEG-LS"}
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD9)})
_MOST_SEGMENTS: Final = 2_000
_J2K_START: Final = b"\xff\x4f\xff\x51"
_JP2_START: Final = b"\0\0\0\x0cjP  "
_CODING: Final = 0xFF52
_START_OF_TILE: Final = 0xFF90
# An image of 50 megapixels in tiles of 128 x 128 has 3,000.
_MOST_TILES: Final = 10_000
# OpenJPEG keeps 200 bytes and more for each precinct of each resolution, and for each code-block.
_MOST_PARTS: Final = 500_000


@dataclass(frozen=True, slots=True)
class Codestream:
    """The header of a compressed frame.

    Attributes:
        kind: "JPEG", "JPEG lossless", "JPEG-LS" or "JPEG 2000".
        width: In pixels.
        height: In pixels.
        components: Samples of a pixel.
        precision: Bits of a sample.
        colours: How the stream says that it codes colours: "RGB", "YBR", or "" where it says nothing.
        signed: Whether the stream says that its samples are signed; JPEG 2000 alone can.
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
                "The DICOM image has a JP2 file in place of a JPEG 2000 codestream; save it uncompressed."
            )
        if frame.startswith(b"\xff\xd8"):
            return _read_jpeg(frame)
    except (struct.error, IndexError):
        raise ImageError("The DICOM image is damaged: the header of its compressed frame is cut.") from None
    raise ImageError("The DICOM image is damaged: its compressed frame is not of its transfer syntax.")


def _read_jpeg(frame: bytes) -> Codestream:
    """Walk over the segments up to the frame header (ITU-T T.81, section B.2; T.87, annex C)."""
    place, colours = 2, ""
    for _ in range(_MOST_SEGMENTS):
        marker = frame[place + 1]
        if frame[place] != 0xFF:
            break
        if marker == 0xFF or marker in _WITHOUT_LENGTH:
            place += 1 if marker == 0xFF else 2
            continue
        (length,) = struct.unpack_from(">H", frame, place + 2)
        if marker in _FRAMES:
            precision, height, width, components = struct.unpack_from(">BHHB", frame, place + 4)
            names = frame[place + 10 : place + 10 + 3 * components : 3]
            if marker not in _KINDS:
                raise ImageError("The DICOM image is coded by a process of JPEG that cannot be read.")
            return Codestream(_KINDS[marker], width, height, components, precision, colours or _named(names))
        segment = frame[place + 4 : place + 2 + length]
        if marker == 0xEE and segment.startswith(b"Adobe") and len(segment) >= 12:
            colours = "YBR" if segment[11] else "RGB"
        elif marker == 0xE0 and segment.startswith(b"JFIF") and not colours:
            colours = "YBR"
        place += 2 + max(2, length)
    raise ImageError("The DICOM image is damaged: its JPEG frame has no header.")


def _named(components: bytes) -> str:
    return "RGB" if components == b"RGB" else ""


def _read_j2k(frame: bytes) -> Codestream:
    """Read the size and the coding style of a codestream (ITU-T T.800, sections A.5.1 and A.6.1)."""
    right, bottom, left, top, tile_width, tile_height, tile_left, tile_top, components = struct.unpack_from(
        ">8IH", frame, 8
    )
    width, height = right - left, bottom - top
    if width < 1 or height < 1 or not tile_width or not tile_height or not components:
        raise ImageError("The DICOM image is damaged: its JPEG 2000 codestream has no size.")
    across, down = -(-(right - tile_left) // tile_width), -(-(bottom - tile_top) // tile_height)
    if across * down > _MOST_TILES:
        raise ImageTooLargeError(
            f"The DICOM image has over {_MOST_TILES:,} tiles of JPEG 2000; save it with larger ones."
        )
    (depth,) = struct.unpack_from(">B", frame, 42)
    # Subsampled colours are read by no decoder of DICOM.
    if any(frame[place + 1 : place + 3] != b"\1\1" for place in range(42, 42 + 3 * components, 3)):
        raise ImageError("The DICOM image has subsampled colours in JPEG 2000, which cannot be read.")
    place = 2
    for _ in range(_MOST_SEGMENTS):
        marker, length = struct.unpack_from(">HH", frame, place)
        if marker == _CODING:
            style, _, _, mixed, levels, *block = struct.unpack_from(">BBHBBBB", frame, place + 4)
            if levels > 32 or max(block) > 8:
                break
            parts = width * height * components >> sum(block) + 4
            if style & 1:
                sizes = frame[place + 14 : place + 15 + levels]
                tile = min(width, tile_width), min(height, tile_height)
                parts += across * down * components * _precincts(sizes, *tile)
            if parts > _MOST_PARTS:
                raise ImageTooLargeError(
                    f"The DICOM image has over {_MOST_PARTS:,} code-blocks and precincts of JPEG 2000; "
                    "save it with larger ones."
                )
            precision, colours = (depth & 0x7F) + 1, "RGB" if mixed else ""
            return Codestream("JPEG 2000", width, height, components, precision, colours, depth >= 0x80)
        if marker == _START_OF_TILE:
            break
        place += 2 + max(2, length)
    raise ImageError("The DICOM image is damaged: its JPEG 2000 codestream has no coding style.")


def _precincts(sizes: bytes, width: int, height: int) -> int:
    """Count the precincts of one component of a tile.

    Args:
        sizes: Exponents of their width and height for each resolution, the smallest first.
        width: Of a tile.
        height: Of a tile.
    """
    count = 0
    for level, size in enumerate(reversed(sizes)):
        columns, rows = width >> level, height >> level
        count += ((columns >> (size & 15)) + 1) * ((rows >> (size >> 4)) + 1)
    return count
