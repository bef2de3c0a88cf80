"""PNG files without their metadata: texts, times, EXIF data, unknown chunks (PNG, third edition)."""

import zlib
from collections.abc import Iterator
from typing import Final

from index.files.metadata.errors import metadata_error
from index.files.metadata.orientation import minimal_exif, orientation_of
from training.data.decoding.codecs.png import clean_png

_SIGNATURE_BYTES: Final = 8
# Of animations, colours and sizes of pixels; all others say nothing of the picture.
_KEPT: Final = frozenset(
    {b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"mDCV", b"cLLI", b"sBIT", b"bKGD", b"pHYs"}
    | {b"hIST", b"acTL", b"fcTL", b"fdAT"}
)
_CRITICAL: Final = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})
# Uncompressed, as the decoder reads it.
_XMP: Final = b"XML:com.adobe.xmp\0\0"
_MOST_CHUNKS: Final = 50_000


def strip_png(content: bytes) -> bytes:
    """Return the file with what its pixels and colours depend on, its orientation, and nothing else.

    Raises:
        ImageError: Its chunks cannot be followed.
    """
    head: list[bytes] = []
    tail: list[bytes] = []
    for kind, chunk in _chunks(content):
        if kind in _CRITICAL or kind in _KEPT:
            (tail if tail or kind in (b"IDAT", b"fcTL") else head).append(chunk)
    orientation = _orientation(content)
    turned = [] if orientation == 1 else [_chunk(b"eXIf", minimal_exif(orientation))]
    return b"".join([content[:_SIGNATURE_BYTES], *head, *turned, *tail])


def _orientation(content: bytes) -> int:
    """Return the orientation by the chunks that the decoder reads."""
    exif, xmp = None, None
    for kind, chunk in _chunks(clean_png(content)[0]):
        if kind == b"eXIf":
            exif = chunk[8:-4]
        elif kind == b"iTXt" and chunk.startswith(_XMP, 8):
            xmp = chunk[8 + len(_XMP) : -4]
    return orientation_of(exif, xmp)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Walk over the chunks, each with its whole bytes, up to the end of the image.

    Of a file that was cut behind the beginning of its pixels, what is left of those is given.
    """
    place, has_pixels = _SIGNATURE_BYTES, False
    for _ in range(_MOST_CHUNKS):
        kind = content[place + 4 : place + 8]
        end = place + 12 + int.from_bytes(content[place : place + 4])
        if end > len(content) and has_pixels:
            if kind == b"IDAT":
                yield kind, content[place:]
            return
        if len(kind) < 4 or end > len(content) or not (kind.isalpha() and kind.isascii()):
            raise metadata_error("PNG", "its chunks cannot be followed")
        has_pixels = has_pixels or kind == b"IDAT"
        if kind not in _CRITICAL and kind[:1].isupper():
            raise metadata_error("PNG", f"it has a chunk of the unknown kind {kind.decode('ascii')}")
        yield kind, content[place:end]
        if kind == b"IEND":
            return
        place = end
    raise metadata_error("PNG", f"it has over {_MOST_CHUNKS:,} chunks")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)
