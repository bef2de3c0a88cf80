"""JPEG files: their segments, and those that lack the marker of their end (ITU-T T.81, annex B)."""

import hashlib
import io
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from PIL.JpegImagePlugin import JpegImageFile

from training.common.errors import ImageError

EOI, SOS = 0xD9, 0xDA
APP0, APP15, COM = 0xE0, 0xEF, 0xFE
END_OF_IMAGE: Final = bytes([0xFF, EOI])
# Frame headers but JPG, tables, scans, line counts, restart intervals, hierarchical headers; frames and
# parameters of JPEG-LS.
CODED: Final = frozenset({*range(0xC0, 0xC8), *range(0xC9, 0xD0), *range(0xDA, 0xE0), 0xF7, 0xF8})
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD8)})
FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
# Frames of Huffman codes whose scans give all bits of a coefficient at once.
_SEQUENTIAL: Final = frozenset({0xC0, 0xC1})
# A marker that ends the data of a scan: no stuffed zero, in JPEG-LS no stuffed bit, restart or fill byte.
_MARKER: Final = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_LS_FRAME: Final = 0xF7
_LS_MARKER: Final = re.compile(rb"\xff[\x80-\xcf\xd8-\xfe]")
# What colours are told by, without the thumbnail that follows it: JFIF's, Adobe's and HP's segments.
_COLOUR_BYTES: Final = {(APP0, b"JFIF\0"): 12, (0xEE, b"Adobe"): 12, (0xE8, b"mrfx"): 5}
_MOST_SEGMENTS: Final = 4_000
_MOST_PADDING: Final = 65_536
# More bytes than a decoder takes for a minimum coded unit: it draws none of one that ends too early.
_FILLED: Final = 8192
# Data behind a scan that a decoder takes for its own if any of it is missing: nothing, bits of different
# beginnings, and further restart intervals. Their numbers begin twice: a decoder ends at a number that is
# one or two too high.
_FILLINGS: Final = (
    b"",
    *(bytes([byte]) * _FILLED for byte in (0x35, 0x5A, 0x93, 0xCA)),
    *(
        b"".join(bytes([0xFF, 0xD0 + (start + number) % 8]) + b"\xca" * _FILLED for number in range(8))
        for start in (0, 4)
    ),
)


class Segment(NamedTuple):
    """A segment of a JPEG file.

    Attributes:
        marker: Its second byte.
        payload: Parameters, without their length.
        data: Entropy-coded data that follows a header of a scan.
        end: Place in the file behind all of it.
    """

    marker: int
    payload: bytes
    data: bytes
    end: int


def segments(content: bytes, error: Callable[[str], ImageError]) -> Iterator[Segment]:
    """Walk over the segments to the end of the image, or of the file where that comes first.

    Args:
        content: The file.
        error: Makes the error from a clause with the file as its subject.

    Raises:
        ImageError: A segment is none of this format, or ends behind the file; or there are too many.
    """
    place, length, has_scan, padding, end_of_scan = 2, len(content), False, 0, _MARKER
    for _ in range(_MOST_SEGMENTS):
        place = content.find(b"\xff", place)
        while 0 <= place < length - 1 and content[place + 1] in (0x00, 0xFF):
            padding += 1
            if padding > _MOST_PADDING:
                raise error(f"it has over {_MOST_PADDING:,} bytes between its segments")
            place += 1 if content[place + 1] == 0xFF else 2
            place = content.find(b"\xff", place)
        if place < 0 or place + 2 > length:
            return
        marker = content[place + 1]
        if marker == EOI:
            yield Segment(marker, b"", b"", place + 2)
            return
        if marker in _WITHOUT_LENGTH:
            place += 2
            continue
        if marker not in CODED and not (APP0 <= marker <= APP15 or marker == COM):
            raise error(f"it has a segment of the unknown kind {marker:02X}")
        size = int.from_bytes(content[place + 2 : place + 4])
        start, end = place + 4, place + 2 + size
        if max(start, end) > length and has_scan:
            # Decoding goes as far as the file.
            return
        if size < 2 or end > length:
            raise error("a segment ends behind the file")
        place = end
        if marker == _LS_FRAME:
            end_of_scan = _LS_MARKER
        if marker == SOS:
            has_scan = True
            found = end_of_scan.search(content, end)
            place = found.start() if found else length
        yield Segment(marker, content[start:end], content[end:place], place)
    raise error(f"it has over {_MOST_SEGMENTS:,} segments")


def pack_segment(marker: int, payload: bytes) -> bytes:
    """Return the bytes of a segment."""
    return bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2) + payload


def colour_segment(marker: int, payload: bytes) -> bytes:
    """Return the part of an application's segment by which decoders tell colours; empty for any other."""
    for (application, start), size in _COLOUR_BYTES.items():
        thumbnail = b"\0\0" if application == APP0 else b""
        if marker == application and payload.startswith(start) and len(payload) >= size + len(thumbnail):
            return pack_segment(marker, payload[:size] + thumbnail)
    return b""


def with_end(content: bytes) -> bytes | None:
    """Return a file that lacks the marker of its end with it; None where part of the picture is missing.

    A progressive file may lack scans that nothing announces, and its last scan may change no pixel that can
    be told, so part of it counts as missing.
    """
    stated: set[int] = set()
    scanned: set[int] = set()
    end = 0
    try:
        for segment in segments(content, ImageError):
            payload = segment.payload
            if segment.marker in FRAMES and segment.marker not in _SEQUENTIAL:
                return None
            if segment.marker in _SEQUENTIAL:
                stated.update(payload[6::3])
            elif segment.marker == SOS:
                scanned.update(payload[1 : len(payload) - 3 : 2])
                end = segment.end
    except ImageError:
        return None
    if not stated or scanned != stated:
        return None
    # Half of the marker may be there.
    scans = content[:end].removesuffix(b"\xff")
    try:
        pictures = {_digest(scans + filling + END_OF_IMAGE) for filling in _FILLINGS}
    except OSError:
        return None
    return scans + END_OF_IMAGE if len(pictures) == 1 else None


def ended(content: bytes) -> bytes:
    """Return a file that was cut with the marker of its end behind its last whole segment."""
    end = 2
    try:
        for segment in segments(content, ImageError):
            end = segment.end
    except ImageError:
        # Segments that cannot be walked over are left to the decoder.
        end = len(content)
    return content[:end].removesuffix(b"\xff") + END_OF_IMAGE


def _digest(content: bytes) -> bytes:
    """Return a digest of the picture before its colours are rounded to RGB."""
    image = JpegImageFile(io.BytesIO(content))
    image.draft("YCbCr", None)
    return hashlib.blake2b(image.tobytes()).digest()
