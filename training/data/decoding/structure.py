"""Bounds on the size and the structure of an image file, checked on its bytes before any decoder reads them.

Decoders keep every segment, chunk and strip of a file as an object, and some do so in quadratic time. The
walks here are linear, decode nothing, and stop at their limit. Damage is left for the decoder to name.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Final

from training.errors import ImageError, ImageTooLargeError

# A file of 20 MB has at most 320 full segments; an ICC profile takes up to 255 of them.
_MOST_JPEG_SEGMENTS: Final = 2_000
# One is the rule; Pillow joins several in quadratic time.
_MOST_EXIF_SEGMENTS: Final = 64
# Pillow steps through padding between segments byte by byte.
_MOST_JPEG_PADDING: Final = 65_536
_MOST_WEBP_CHUNKS: Final = 20_000
# A full block has 255 bytes: 82,000 in a file of 20 MB.
_MOST_GIF_BLOCKS: Final = 400_000
_MOST_TIFF_ENTRIES: Final = 4_096
# Tiles of 32 x 32 pixels, in an image of 50 megapixels with two planes.
_MOST_TIFF_PARTS: Final = 100_000
# Pages that are looked at for one that is not blank.
_MOST_TIFF_PAGES: Final = 16
# A run of 255 pixels takes two bytes.
_RLE_PIXELS_A_BYTE: Final = 128

_START_OF_SCAN: Final = 0xDA
_FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_BITS: Final = 8
_UNREAD: Final = {0xF7: "JPEG-LS"}
# RST0 to RST7, SOI and EOI; JPG, DAC and JPG0 to JPG13 have a length that Pillow does not read.
_WITHOUT_LENGTH: Final = frozenset({0xC8, 0xCC, *range(0xD0, 0xDA), *range(0xF0, 0xFE)})
_RLE_COMPRESSIONS: Final = frozenset({1, 2})
# Tags with one value for each sample, strip or tile.
_LISTED_TAGS: Final = frozenset({258, 273, 279, 324, 325, 338, 339})


def check_structure(content: bytes, format_name: str) -> None:
    """Refuse a file of more parts than any program writes.

    Args:
        content: The whole file.
        format_name: As its signature says: JPEG, PNG, WebP, AVIF, HEIC, GIF, BMP or TIFF.

    Raises:
        ImageTooLargeError: It has more parts than the limit, or describes more pixels than its bytes can.
        ImageError: It is a JPEG of another depth or coding than can be read.
    """
    # AVIF and HEIC have none: libavif and libheif bound the boxes that they keep, and
    # `formats.stated_sizes` those it walks over. Chunks of PNG are counted when they are copied.
    if format_name in _CHECKS:
        _CHECKS[format_name](content)


def _check_jpeg(content: bytes) -> None:
    """Walk over the marker segments before the first scan (ITU-T T.81, annex B), as Pillow does."""
    place, segments, exif, padding = 2, 0, 0, 0
    while True:
        start = content.find(b"\xff", place)
        padding += (len(content) if start < 0 else start) - place
        if padding > _MOST_JPEG_PADDING:
            raise ImageTooLargeError(
                f"The JPEG image has over {_MOST_JPEG_PADDING:,} bytes between its segments; save it anew."
            )
        if start < 0 or start + 4 > len(content):
            return
        marker = content[start + 1]
        if marker == _START_OF_SCAN:
            return
        if marker in (0x00, 0xFF):
            padding += 1
            place = start + 2 - marker % 2
            continue
        if marker in _UNREAD:
            raise ImageError(f"The JPEG image is {_UNREAD[marker]}, which cannot be read; save it as PNG.")
        bits = content[start + 4 : start + 5]
        if marker in _FRAMES and bits and bits[0] != _JPEG_BITS:
            raise ImageError(
                f"The JPEG image has {bits[0]} bits a sample, which cannot be read; save it as PNG."
            )
        segments += 1
        exif += marker == 0xE1 and content.startswith(b"Exif\0\0", start + 4)
        if segments > _MOST_JPEG_SEGMENTS or exif > _MOST_EXIF_SEGMENTS:
            raise ImageTooLargeError(
                f"The JPEG image has over {_MOST_JPEG_SEGMENTS:,} segments, or over {_MOST_EXIF_SEGMENTS} "
                "with Exif data; save it without metadata."
            )
        length = int.from_bytes(content[start + 2 : start + 4])
        place = start + 2 + (0 if marker in _WITHOUT_LENGTH else max(2, length))


def _check_webp(content: bytes) -> None:
    """Walk over the chunks of the container (RFC 9649, section 2.3)."""
    place = 12
    for _ in range(_MOST_WEBP_CHUNKS):
        if place + 8 > len(content):
            return
        size = int.from_bytes(content[place + 4 : place + 8], "little")
        place += 8 + size + size % 2
    raise ImageTooLargeError(f"The WebP image has over {_MOST_WEBP_CHUNKS:,} chunks; save it anew.")


def _check_gif(content: bytes) -> None:
    """Walk over the blocks of extensions and images (GIF89a, sections 15 to 26)."""
    length = len(content)
    place = 13 + colour_table_size(content[10]) if length > 10 else length
    inside = False
    for _ in range(_MOST_GIF_BLOCKS):
        if place >= length:
            return
        first = content[place]
        if inside:
            place += 1 + first
            inside = first > 0
        elif first == 0x2C and place + 9 < length:
            place += 11 + colour_table_size(content[place + 9])
            inside = True
        elif first == 0x21:
            place += 2
            inside = True
        else:
            return
    raise ImageTooLargeError(f"The GIF image has over {_MOST_GIF_BLOCKS:,} blocks; save it anew.")


def _check_bmp(content: bytes) -> None:
    """Compare the pixels of a run-length encoding with the bytes that describe them."""
    if len(content) < 34 or int.from_bytes(content[14:18], "little") < 40:
        return
    width, height, _, _, compression = struct.unpack_from("<iiHHI", content, 18)
    pixels = abs(width) * abs(height)
    if compression in _RLE_COMPRESSIONS and pixels > _RLE_PIXELS_A_BYTE * len(content):
        raise ImageTooLargeError(
            f"The BMP image has {pixels:,} pixels in {len(content):,} bytes of runs, more than those can "
            "describe; save it as PNG."
        )


def _check_tiff(content: bytes) -> None:
    """Look at the image file directories that may be decoded (TIFF 6.0, section 2)."""
    order = "<" if content[:2] == b"II" else ">"
    big = content[2:4] in (b"+\0", b"\0+")
    first, pointer, number = (8, "Q", "Q") if big else (4, "I", "H")
    entry = struct.Struct(f"{order}HH{pointer}{'8s' if big else '4s'}")
    place = first
    for _ in range(_MOST_TIFF_PAGES):
        try:
            (place,) = struct.unpack_from(order + pointer, content, place)
            (entries,) = struct.unpack_from(order + number, content, place)
        except (struct.error, OverflowError):
            return
        if not place:
            return
        if entries > _MOST_TIFF_ENTRIES:
            raise ImageTooLargeError(f"The TIFF image has over {_MOST_TIFF_ENTRIES:,} tags; save it anew.")
        place += struct.calcsize(f"={number}")
        for _ in range(entries):
            if place + entry.size > len(content):
                return
            tag, _, count, _ = entry.unpack_from(content, place)
            if tag in _LISTED_TAGS and count > _MOST_TIFF_PARTS:
                raise ImageTooLargeError(
                    f"The TIFF image has over {_MOST_TIFF_PARTS:,} strips or tiles; save it with fewer."
                )
            place += entry.size


def check_size(width: int, height: int, most_pixels: int) -> None:
    """Refuse an image by its width and height.

    Raises:
        ImageTooLargeError: It has too many pixels.
        ImageError: It has none.
    """
    if width < 1 or height < 1:
        raise ImageError(f"The image is {width} x {height} pixels: there is nothing in it.")
    if width * height > most_pixels:
        raise ImageTooLargeError(
            f"The image is {width} x {height} pixels, {megapixels(width * height)}; "
            f"the limit is {megapixels(most_pixels)} (RECOQUEST_MAX_IMAGE_PIXELS)."
        )


def megapixels(pixels: int) -> str:
    """Return a number of pixels in words."""
    return f"{pixels / 1e6:,.10g} megapixels"


def colour_table_size(flags: int) -> int:
    """Bytes of a GIF colour table, from the packed field before it."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


_CHECKS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "JPEG": _check_jpeg,
    "WebP": _check_webp,
    "GIF": _check_gif,
    "BMP": _check_bmp,
    "TIFF": _check_tiff,
}
