"""JPEG streams: their segments, their bounds before decoding, and a missing end (ITU-T T.81, annex B)."""

import hashlib
import io
import re
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from PIL.JpegImagePlugin import JpegImageFile

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.depth import DeepImage, Samples, split_bands

# Entropy-coded data has no marker.
DATA: Final = 0x00
EOI, SOS, COM = 0xD9, 0xDA, 0xFE
APP0, APP1, APP2, APP14, APP15 = 0xE0, 0xE1, 0xE2, 0xEE, 0xEF
START_OF_IMAGE, END_OF_IMAGE = b"\xff\xd8", b"\xff\xd9"
# The frame of JPEG-LS (ITU-T T.87).
LS_FRAME: Final = 0xF7
FRAMES: Final = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
# Frames of Huffman codes whose scans give all bits of a coefficient at once.
_SEQUENTIAL: Final = frozenset({0xC0, 0xC1})
# Frame headers but JPG, tables, scans, line counts, restart intervals, hierarchical headers; JPEG-LS.
_CODED: Final = frozenset({*range(0xC0, 0xC8), *range(0xC9, 0xD0), *range(0xDA, 0xE0), LS_FRAME, 0xF8})
_KNOWN: Final = _CODED | {DATA, EOI, COM, *range(APP0, APP15 + 1)}
# TEM, restarts, and the start and the end of an image.
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xDA)})
# Pillow reads no length of JPG, DAC and JPG0 to JPG13 either, and one of TEM.
_WITHOUT_LENGTH_IN_PILLOW: Final = _WITHOUT_LENGTH - {0x01} | {0xC8, 0xCC, *range(0xF0, 0xFE)}
# A marker that ends the data of a scan: no stuffed zero, in JPEG-LS no stuffed bit, restart or fill byte.
_MARKER: Final = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
_LS_MARKER: Final = re.compile(rb"\xff[\x80-\xcf\xd8-\xfe]")
# What identifies colours, without the thumbnail that follows it: JFIF's, Adobe's and HP's segments.
_COLOUR_BYTES: Final = {(APP0, b"JFIF\0"): 12, (APP14, b"Adobe"): 12, (0xE8, b"mrfx"): 5}
EXIF_PREFIX: Final = b"Exif\0\0"
# A file of 20 MB has at most 320 full segments; an ICC profile takes up to 255 of them.
_MOST_SEGMENTS: Final = 4_000
# One is the rule; Pillow joins several in quadratic time.
_MOST_EXIF_SEGMENTS: Final = 64
# Pillow steps through padding between segments byte by byte.
_MOST_PADDING: Final = 65_536
_BITS, _DEEP_BITS = 8, 12
# More bytes than a decoder takes for a minimum coded unit: it draws none of one that ends too early.
_FILLED: Final = 8192
# Data after a scan that a decoder takes for its own if any of it is missing: nothing, bits of different
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

# Makes an error from a clause with the file as its subject.
MakeError = Callable[[str], ImageError]


class Segment(NamedTuple):
    """A segment of a JPEG stream, or the entropy-coded data after a scan's header.

    Attributes:
        marker: Second byte of its marker; `DATA` for entropy-coded data.
        payload: Parameters without their length, or the data.
        end: Offset after it by its length, possibly beyond the stream.
    """

    marker: int
    start: int
    payload: bytes
    end: int


class Frame(NamedTuple):
    """The header of a frame (section B.2.2)."""

    bits: int
    height: int
    width: int
    components: bytes


def walk(content: bytes, error: MakeError, *, like_pillow: bool = False) -> Iterator[Segment]:
    """Walk over all segments of a stream, whatever their markers and lengths.

    Args:
        content: The stream.
        error: Raised where segments or bytes between them are more than any program writes.
        like_pillow: Whether the markers without a length are those of Pillow.
    """
    offset, count, padding, end_of_scan = 2, 0, 0, _MARKER
    without_length = _WITHOUT_LENGTH_IN_PILLOW if like_pillow else _WITHOUT_LENGTH
    while True:
        start = content.find(b"\xff", offset)
        padding += (len(content) if start < 0 else start) - offset
        if padding > _MOST_PADDING:
            raise error(f"it has over {_MOST_PADDING:,} bytes between its segments")
        if start < 0 or start + 2 > len(content):
            return
        marker = content[start + 1]
        if marker in (0x00, 0xFF):
            padding += 1
            offset = start + 2 - marker % 2
            continue
        count += 1
        if count > _MOST_SEGMENTS:
            raise error(f"it has over {_MOST_SEGMENTS:,} segments")
        has_length = marker not in without_length
        end = start + 2 + (int.from_bytes(content[start + 2 : start + 4]) if has_length else 0)
        yield Segment(marker, start, content[start + 4 : end], end)
        offset = max(end, start + 4) if has_length else end
        if marker == LS_FRAME:
            end_of_scan = _LS_MARKER
        if marker == SOS and offset <= len(content):
            match = end_of_scan.search(content, offset)
            end = match.start() if match else len(content)
            yield Segment(DATA, offset, content[offset:end], end)
            offset = end


def segments(content: bytes, error: MakeError) -> Iterator[Segment]:
    """Walk over the segments to the end of the image, or of the file where that comes first.

    Raises:
        ImageError: A segment is none of this format, or ends beyond the file; or there are too many.
    """
    has_scan = False
    for segment in walk(content, error):
        marker = segment.marker
        if marker in _WITHOUT_LENGTH and marker not in (EOI, START_OF_IMAGE[1]):
            continue
        if marker not in _KNOWN:
            raise error(f"it has a segment of the unknown kind {marker:02X}")
        if marker not in (DATA, EOI):
            if has_scan and max(segment.start + 4, segment.end) > len(content):
                # Decoding goes as far as the file.
                return
            if not segment.start + 4 <= segment.end <= len(content):
                raise error("a segment ends beyond the file")
        has_scan = has_scan or marker == SOS
        yield segment
        if marker == EOI:
            return


def check_jpeg(content: bytes, most_scans: int) -> Frame | None:
    """Bound what Pillow reads of a file up to its first scan.

    Returns:
        The header of a frame of 12 bits; None for the usual 8.

    Raises:
        ImageTooLargeError: It has more segments, scans or padding than any program writes.
        ImageError: It has another depth or coding than can be read, or is a damaged one of 12 bits.
    """
    if content.count(bytes([0xFF, SOS])) > most_scans:
        raise ImageTooLargeError(f"The JPEG image has over {most_scans} scans; save it with fewer.")
    is_deep, exif = False, 0
    for segment in walk(content, _too_large, like_pillow=True):
        marker, payload = segment.marker, segment.payload
        if marker == SOS:
            break
        if marker == LS_FRAME:
            raise ImageError("The JPEG image is JPEG-LS, which cannot be read; save it as PNG.")
        if marker in FRAMES and payload and payload[0] != _BITS:
            if payload[0] != _DEEP_BITS or marker not in _SEQUENTIAL:
                raise ImageError(
                    f"The JPEG image has {payload[0]} bits a sample, which cannot be read; save it as PNG."
                )
            is_deep = True
        exif += marker == APP1 and payload.startswith(EXIF_PREFIX)
        if exif > _MOST_EXIF_SEGMENTS:
            raise _too_large(f"it has over {_MOST_EXIF_SEGMENTS} segments with Exif data")
    if not is_deep:
        return None
    # libjpeg follows lengths that Pillow does not.
    walked = segments(content, _damaged)
    frames = [read_frame(segment.payload) for segment in walked if segment.marker in FRAMES]
    if [frame.bits for frame in frames] != [_DEEP_BITS]:
        raise _damaged("it has frames of several depths")
    return frames[0]


def _damaged(reason: str) -> ImageError:
    return ImageError(f"The JPEG image is damaged: {reason}.")


def _too_large(reason: str) -> ImageError:
    return ImageTooLargeError(f"The JPEG image cannot be read: {reason}; save it without metadata.")


def read_frame(payload: bytes) -> Frame:
    """Read the header of a frame; one that is cut is a struct.error."""
    bits, height, width, count = struct.unpack_from(">BHHB", payload)
    return Frame(bits, height, width, payload[6 : 6 + 3 * count : 3])


def pack_segment(marker: int, payload: bytes) -> bytes:
    """Return the bytes of a segment, or of data."""
    if marker == DATA:
        return payload
    head = bytes([0xFF, marker])
    return head if marker == EOI else head + (len(payload) + 2).to_bytes(2) + payload


def pack_picture(marker: int, payload: bytes) -> bytes:
    """Return what a picture depends on of a segment: all of coded ones, the colours of applications'."""
    if marker in _CODED or marker in (DATA, EOI):
        return pack_segment(marker, payload)
    for (application, start), size in _COLOUR_BYTES.items():
        thumbnail = b"\0\0" if application == APP0 else b""
        if marker == application and payload.startswith(start) and len(payload) >= size + len(thumbnail):
            return pack_segment(marker, payload[:size] + thumbnail)
    return b""


def check_scans(content: bytes, error: MakeError) -> int:
    """Return the number of scans of a stream that has its end and a scan of every colour.

    libjpeg fills what is missing with grey.
    """
    stated, scanned = set[int](), set[int]()
    scans = marker = 0
    for marker, _, payload, _ in segments(content, error):
        if marker in FRAMES:
            stated.update(payload[6::3])
        elif marker == SOS:
            scans += 1
            scanned.update(payload[1 : len(payload) - 3 : 2])
    if marker != EOI:
        raise error("its end is missing")
    if scanned != stated:
        raise error("not every colour has a scan")
    return scans


def read_deep_jpeg(content: bytes) -> DeepImage:
    """Read a JPEG with 12 bits a sample; damaged files raise what libjpeg makes of them.

    Raises:
        ImageError: It has no end, or no scan of a colour.
    """
    # The package takes longer to load than most images to decode.
    from imagecodecs import jpeg8_decode

    check_scans(content, _damaged)
    samples: Samples = jpeg8_decode(content)
    height, width = samples.shape[:2]
    samples = samples.reshape(height, width, -1)
    colours = samples.shape[2]
    full = None if colours == 1 else float((1 << _DEEP_BITS) - 1)
    return DeepImage(width, height, colours, lambda: split_bands(samples), full=full)


def with_end(content: bytes) -> bytes | None:
    """Add the marker of the end to a file; None where part of the picture is missing as well.

    A progressive file may lack scans that nothing announces, and its last scan may change no visible pixel,
    so part of it counts as missing.
    """
    try:
        parts = list(segments(content, ImageError))
        if any(part.marker in FRAMES and part.marker not in _SEQUENTIAL for part in parts):
            return None
        end = max((part.end for part in parts if part.marker == DATA), default=0)
        # Half of the marker may be there.
        scans = content[:end].removesuffix(b"\xff")
        check_scans(scans + END_OF_IMAGE, ImageError)
        pictures = {_digest(scans + filling + END_OF_IMAGE) for filling in _FILLINGS}
    except (ImageError, OSError):
        return None
    return scans + END_OF_IMAGE if len(pictures) == 1 else None


def ended(content: bytes) -> bytes:
    """Return a file that was cut with the marker of its end after its last whole segment."""
    try:
        end = max((segment.end for segment in segments(content, ImageError)), default=2)
    except ImageError:
        # Segments that cannot be walked over are left to the decoder.
        end = len(content)
    return content[:end].removesuffix(b"\xff") + END_OF_IMAGE


def _digest(content: bytes) -> bytes:
    """Return a digest of the picture before its colours are rounded to RGB."""
    image = JpegImageFile(io.BytesIO(content))
    image.draft("YCbCr", None)
    return hashlib.blake2b(image.tobytes()).digest()
