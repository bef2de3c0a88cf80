"""JPEG files without their metadata: application segments and comments (ITU-T T.81, annex B)."""

import re
from collections.abc import Iterator
from typing import Final

from index.files.metadata.errors import metadata_error
from index.files.metadata.orientation import EXIF_PREFIX, minimal_exif, orientation_of

_SOI, _EOI, _SOS = 0xD8, 0xD9, 0xDA
_APP0, _APP1, _APP2, _APP14, _APP15, _COM = 0xE0, 0xE1, 0xE2, 0xEE, 0xEF, 0xFE
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD8)})
# Frame headers but JPG, tables, scans, line counts, restart intervals, hierarchical headers.
_CODED: Final = frozenset({*range(0xC0, 0xC8), *range(0xC9, 0xD0), *range(0xDA, 0xE0)})
# A marker that ends the data of a scan: no stuffed zero, restart or fill byte.
_MARKER: Final = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_XMP_PREFIX: Final = b"http://ns.adobe.com/xap/1.0/\0"
_ICC_PREFIX: Final = b"ICC_PROFILE\0"
_JFIF_BYTES: Final = 14
_ADOBE_BYTES: Final = 12
_MOST_SEGMENTS: Final = 4_000
_MOST_PADDING: Final = 65_536


def strip_jpeg(content: bytes) -> bytes:
    """Return the file with its tables, frames and scans, colour profile and orientation, and nothing else.

    What follows the end of the image goes, such as further images of a multi-picture file or a film.

    Raises:
        ImageError: Its segments cannot be followed.
    """
    jfif, kept, exif = [], [], []
    xmp, has_scan = b"", False
    for marker, payload, rest in segments(content):
        if marker == _APP0:
            if payload.startswith(b"JFIF\0") and len(payload) >= _JFIF_BYTES:
                # The last two bytes are the size of a thumbnail behind them.
                jfif.append(_segment(marker, payload[: _JFIF_BYTES - 2] + b"\0\0"))
        elif marker == _APP1 and not has_scan:
            # The decoder reads no more of them than this.
            if payload.startswith(EXIF_PREFIX):
                exif.append(payload.removeprefix(EXIF_PREFIX))
            elif payload.startswith(_XMP_PREFIX):
                xmp = payload.removeprefix(_XMP_PREFIX)
        elif marker == _APP2 and payload.startswith(_ICC_PREFIX):
            kept.append(_segment(marker, payload))
        elif marker == _APP14 and payload.startswith(b"Adobe") and len(payload) >= _ADOBE_BYTES:
            kept.append(_segment(marker, payload[:_ADOBE_BYTES]))
        elif marker in _CODED:
            has_scan = has_scan or marker == _SOS
            kept.append(_segment(marker, payload) + rest)
        elif marker == _EOI:
            kept.append(b"\xff\xd9")
    orientation = orientation_of(b"".join(exif), xmp)
    turned = [] if orientation == 1 else [_segment(_APP1, EXIF_PREFIX + minimal_exif(orientation))]
    return b"".join([b"\xff\xd8", *jfif, *turned, *kept])


def blank_jpeg_metadata(stream: bytearray) -> None:
    """Overwrite comments and application segments of a stream inside another file, whose size must stay.

    Raises:
        ImageError: Its segments cannot be followed.
    """
    place = 2
    for marker, payload, rest in segments(bytes(stream)):
        if marker == _EOI:
            return
        place = stream.index(b"\xff" + bytes([marker]), place) + 4
        if marker == _COM or (_APP0 < marker <= _APP15 and marker != _APP14):
            stream[place : place + len(payload)] = bytes(len(payload))
        place += len(payload) + len(rest)


def segments(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Walk over the segments: marker, payload without its length, and the data of a scan that follows it.

    Raises:
        ImageError: A segment is none of this format, or ends behind the file; or there are too many.
    """
    place, length, has_scan, padding = 2, len(content), False, 0
    for _ in range(_MOST_SEGMENTS):
        place = content.find(b"\xff", place)
        while 0 <= place < length - 1 and content[place + 1] in (0x00, 0xFF):
            padding += 1
            if padding > _MOST_PADDING:
                raise metadata_error("JPEG", f"it has over {_MOST_PADDING:,} bytes between its segments")
            place += 1 if content[place + 1] == 0xFF else 2
            place = content.find(b"\xff", place)
        if place < 0 or place + 2 > length:
            return
        marker = content[place + 1]
        if marker == _EOI:
            yield marker, b"", b""
            return
        if marker in _WITHOUT_LENGTH:
            place += 2
            continue
        if marker not in _CODED and not (_APP0 <= marker <= _APP15 or marker == _COM):
            raise metadata_error("JPEG", f"it has a segment of the unknown kind {marker:02X}")
        size = int.from_bytes(content[place + 2 : place + 4])
        start, end = place + 4, place + 2 + size
        if end > length and has_scan:
            # Decoding goes as far as the file.
            return
        if size < 2 or end > length:
            raise metadata_error("JPEG", "a segment ends behind the file")
        place = end
        if marker == _SOS:
            has_scan = True
            found = _MARKER.search(content, end)
            place = found.start() if found else length
        yield marker, content[start:end], content[end:place]
    raise metadata_error("JPEG", f"it has over {_MOST_SEGMENTS:,} segments")


def _segment(marker: int, payload: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2) + payload
