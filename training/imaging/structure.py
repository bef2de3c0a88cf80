"""Bounds on the size and the structure of an image file, checked on its bytes before any decoder reads them.

Decoders keep every segment, chunk and strip of a file as an object, and some do so in quadratic time. The
walks here are linear, decode nothing, and stop at their limit. Damage is left for the decoder to name.
"""

import struct
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from training.common.errors import ImageError, ImageTooLargeError

_MOST_WEBP_CHUNKS: Final = 20_000
# A full block has 255 bytes: 82,000 in a file of 20 MB.
_MOST_GIF_BLOCKS: Final = 400_000
GIF_IMAGE, _GIF_EXTENSION = 0x2C, 0x21
_MOST_TIFF_ENTRIES: Final = 4_096
# Tiles of 32 x 32 pixels, in an image of 50 megapixels with two planes.
_MOST_TIFF_PARTS: Final = 100_000
# Pages that are looked at for one that is not blank.
_MOST_TIFF_PAGES: Final = 16
# A run of 255 pixels takes two bytes.
_RLE_PIXELS_A_BYTE: Final = 128

_RLE_COMPRESSIONS: Final = frozenset({1, 2})
# Tags with one value for each sample, strip or tile.
_LISTED_TAGS: Final = frozenset({258, 273, 279, 324, 325, 338, 339})


def check_structure(content: bytes, format_name: str) -> None:
    """Refuse a WebP, GIF, BMP or TIFF file of more parts than any program writes.

    Those of JPEG and PNG are bounded by their own modules; libavif and libheif bound the boxes they keep.

    Raises:
        ImageTooLargeError: It has more parts than the limit, or describes more pixels than its bytes can.
    """
    if format_name == "WebP":
        deque(webp_chunks(content), maxlen=0)
    elif format_name == "GIF":
        deque(gif_blocks(content), maxlen=0)
    elif format_name == "BMP":
        _check_bmp(content)
    elif format_name == "TIFF":
        _check_tiff(content)


def webp_chunks(content: bytes, first: int = 12) -> Iterator[tuple[bytes, int, int]]:
    """Walk over the chunks of a WebP file, or from another place those of a frame (RFC 9649, section 2.3).

    Yields:
        The kind of each, and where its data begins and ends, which may be behind the file.

    Raises:
        ImageTooLargeError: They are more than the limit.
    """
    place = first
    for _ in range(_MOST_WEBP_CHUNKS):
        if place + 8 > len(content):
            return
        size = int.from_bytes(content[place + 4 : place + 8], "little")
        yield content[place : place + 4], place + 8, place + 8 + size
        place += 8 + size + size % 2
    raise ImageTooLargeError(f"The WebP image has over {_MOST_WEBP_CHUNKS:,} chunks; save it anew.")


def _colour_table_size(flags: int) -> int:
    """Bytes of a GIF colour table, from the packed field before it."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def gif_blocks(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Walk over the images and extensions of a GIF file (GIF89a, sections 15 to 26).

    Yields:
        The first byte of each, where it begins, and where it ends, which may be behind the file.

    Raises:
        ImageTooLargeError: They have more blocks than the limit.
    """
    length = len(content)
    place = 13 + _colour_table_size(content[10]) if length > 10 else length
    blocks = 0
    while place < length:
        start, kind = place, content[place]
        if kind == GIF_IMAGE and place + 9 < length:
            place += 11 + _colour_table_size(content[place + 9])
        elif kind == _GIF_EXTENSION:
            place += 2
        else:
            return
        while place < length and content[place] and blocks <= _MOST_GIF_BLOCKS:
            place += 1 + content[place]
            blocks += 1
        place += 1
        blocks += 2
        if blocks > _MOST_GIF_BLOCKS:
            raise ImageTooLargeError(f"The GIF image has over {_MOST_GIF_BLOCKS:,} blocks; save it anew.")
        yield kind, start, place


def count_gif_frames(content: bytes, most: int) -> int:
    """Count the images of a GIF file, at most one more than `most`."""
    images = (block for block in gif_blocks(content) if block[0] == GIF_IMAGE)
    return max(1, sum(1 for _ in islice(images, most + 1)))


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
    """Look at the image file directories that may be decoded."""
    form = TiffForm(content)
    try:
        for first, entries in islice(form.directories(), _MOST_TIFF_PAGES):
            if entries > _MOST_TIFF_ENTRIES:
                raise ImageTooLargeError(
                    f"The TIFF image has over {_MOST_TIFF_ENTRIES:,} tags; save it anew."
                )
            if any(
                tag in _LISTED_TAGS and n > _MOST_TIFF_PARTS for tag, _, n, _ in form.entries(first, entries)
            ):
                raise ImageTooLargeError(
                    f"The TIFF image has over {_MOST_TIFF_PARTS:,} strips or tiles; save it with fewer."
                )
    except (struct.error, OverflowError):
        return


class TiffForm:
    """Byte order, widths and directories of a TIFF or BigTIFF file, or of EXIF data (TIFF 6.0, section 2).

    Attributes:
        content: The file.
        order: Byte order, < or >.
        big: Whether it is a BigTIFF.
        first: Where the place of the first directory is.
        pointer: A place in the file.
        number: The number of entries of a directory.
        entry: Tag, type, number of values, and the values or their place.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.order = "<" if content[:2] == b"II" else ">"
        self.big = content[2:4] in (b"+\0", b"\0+")
        self.first = 8 if self.big else 4
        self.pointer = struct.Struct(self.order + ("Q" if self.big else "I"))
        self.number = struct.Struct(self.order + ("Q" if self.big else "H"))
        self.entry = struct.Struct(self.order + ("HHQ8s" if self.big else "HHI4s"))

    def directories(self) -> Iterator[tuple[int, int]]:
        """Walk over the chain of directories: where the entries of each begin, and their number.

        Raises:
            struct.error: The file ends before the chain does.
            OverflowError: So does it.
        """
        seen: set[int] = set()
        place = self.first
        while True:
            (start,) = self.pointer.unpack_from(self.content, place)
            if not start or start in seen:
                return
            seen.add(start)
            (entries,) = self.number.unpack_from(self.content, start)
            first = start + self.number.size
            yield first, entries
            place = first + entries * self.entry.size

    def entries(self, first: int, entries: int) -> Iterator[tuple[int, int, int, bytes]]:
        """Walk over the entries of a directory, as far as the file goes."""
        last = min(first + entries * self.entry.size, len(self.content) - self.entry.size + 1)
        for place in range(first, last, self.entry.size):
            yield self.entry.unpack_from(self.content, place)


def count_tiff_pages(content: bytes, most: int) -> int:
    """Count the image file directories of a TIFF file, at most one more than `most`."""
    pages = 0
    try:
        for _ in islice(TiffForm(content).directories(), most + 1):
            pages += 1
    except (struct.error, OverflowError):
        # The file ends before the chain does; the pages up to there count.
        pass
    return max(1, pages)


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
