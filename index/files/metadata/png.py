"""PNG files without their metadata: texts, times, EXIF data, unknown chunks (PNG, third edition)."""

import re
import zlib
from collections.abc import Iterator
from typing import Final

from index.files.metadata.orientation import minimal_exif, orientation_of
from training.errors import ImageError

_SIGNATURE_BYTES: Final = 8
# Of animations, colours and sizes of pixels; all others say nothing of the picture.
_KEPT: Final = frozenset(
    {b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"iCCP", b"cICP", b"mDCV", b"cLLI", b"sBIT", b"bKGD", b"pHYs"}
    | {b"hIST", b"acTL", b"fcTL", b"fdAT"}
)
_CRITICAL: Final = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND"})
_TEXTS: Final = frozenset({b"tEXt", b"zTXt", b"iTXt"})
_RAW_EXIF: Final = b"Raw profile type exif"
_XMP: Final = b"XML:com.adobe.xmp"
_MOST_CHUNKS: Final = 50_000
# The decoder reads no more of a compressed text.
_MOST_TEXT: Final = 1 << 20


def strip_png(content: bytes) -> bytes:
    """Return the file with what its pixels and colours depend on, its orientation, and nothing else.

    Raises:
        ImageError: Its chunks cannot be followed.
    """
    head, tail = [], []
    exif, texts = None, {}
    for kind, chunk in _chunks(content):
        if kind in _CRITICAL or kind in _KEPT:
            (tail if tail or kind in (b"IDAT", b"fcTL") else head).append(chunk)
        elif kind == b"eXIf":
            exif = chunk[8:-4]
        elif kind in _TEXTS:
            keyword = chunk[8:].partition(b"\0")[0]
            if keyword in (_RAW_EXIF, _XMP):
                texts[keyword] = _text(kind, chunk[8:-4])
    if exif is None:
        exif = _raw_exif(texts.get(_RAW_EXIF, b""))
    orientation = orientation_of(exif, texts.get(_XMP))
    turned = [] if orientation == 1 else [_chunk(b"eXIf", minimal_exif(orientation))]
    return b"".join([content[:_SIGNATURE_BYTES], *head, *turned, *tail])


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
            raise _lost("its chunks cannot be followed")
        has_pixels = has_pixels or kind == b"IDAT"
        if kind not in _CRITICAL and kind[:1].isupper():
            raise _lost(f"it has a chunk of the unknown kind {kind.decode('ascii')}")
        yield kind, content[place:end]
        if kind == b"IEND":
            return
        place = end
    raise _lost(f"it has over {_MOST_CHUNKS:,} chunks")


def _text(kind: bytes, data: bytes) -> bytes:
    """Return the text of a chunk; nothing where it cannot be read."""
    rest = data.partition(b"\0")[2]
    packed = kind == b"zTXt"
    if kind == b"iTXt":
        packed = rest[:1] == b"\1"
        rest = rest[2:].split(b"\0", 2)[-1]
    elif packed:
        rest = rest[1:]
    if not packed:
        return rest
    try:
        return zlib.decompressobj().decompress(rest, _MOST_TEXT)
    except zlib.error:
        return b""


def _raw_exif(text: bytes) -> bytes:
    """Return EXIF data written as a text: three lines of a head, then hexadecimal digits."""
    digits = b"".join(text.split(b"\n")[3:]).decode("ascii", "replace")
    return bytes.fromhex(digits) if re.fullmatch(r"(?:[0-9a-fA-F]{2}|\s)*", digits) else b""


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)


def _lost(reason: str) -> ImageError:
    return ImageError(
        f"The PNG image is damaged: {reason}, so that its metadata cannot be removed; save it anew."
    )
