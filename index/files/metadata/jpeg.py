"""JPEG files without their metadata: application segments and comments (ITU-T T.81, annex B)."""

from functools import partial
from typing import Final

from index.files.metadata.errors import metadata_error
from index.files.metadata.orientation import EXIF_PREFIX, minimal_exif, orientation_of
from training.data.decoding.codecs.jpeg import APP0, APP15, CODED, COM, END_OF_IMAGE, EOI, SOS, segments

_APP1, _APP2, _APP14 = 0xE1, 0xE2, 0xEE
_XMP_PREFIX: Final = b"http://ns.adobe.com/xap/1.0/\0"
_ICC_PREFIX: Final = b"ICC_PROFILE\0"
_JFIF_BYTES: Final = 14
_ADOBE_BYTES: Final = 12
_ERROR: Final = partial(metadata_error, "JPEG")


def strip_jpeg(content: bytes) -> bytes:
    """Return the file with its tables, frames and scans, colour profile and orientation, and nothing else.

    What follows the end of the image goes, such as further images of a multi-picture file or a film.

    Raises:
        ImageError: Its segments cannot be followed.
    """
    jfif, kept, exif = [], [], []
    xmp, has_scan = b"", False
    for marker, payload, data, _ in segments(content, _ERROR):
        if marker == APP0:
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
        elif marker in CODED:
            has_scan = has_scan or marker == SOS
            kept.append(_segment(marker, payload) + data)
        elif marker == EOI:
            kept.append(END_OF_IMAGE)
    orientation = orientation_of(b"".join(exif), xmp)
    turned = [] if orientation == 1 else [_segment(_APP1, EXIF_PREFIX + minimal_exif(orientation))]
    return b"".join([b"\xff\xd8", *jfif, *turned, *kept])


def blank_jpeg_metadata(stream: bytearray) -> None:
    """Overwrite comments and application segments of a stream inside another file, whose size must stay.

    Raises:
        ImageError: Its segments cannot be followed.
    """
    place = 2
    for marker, payload, data, _ in segments(bytes(stream), _ERROR):
        if marker == EOI:
            return
        place = stream.index(b"\xff" + bytes([marker]), place) + 4
        if marker == COM or (APP0 < marker <= APP15 and marker != _APP14):
            stream[place : place + len(payload)] = bytes(len(payload))
        place += len(payload) + len(data)


def _segment(marker: int, payload: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2) + payload
