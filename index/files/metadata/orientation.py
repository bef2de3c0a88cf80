"""The orientation of a picture: the one value of EXIF and XMP data that its pixels depend on."""

import re
import struct
from typing import Final

EXIF_PREFIX: Final = b"Exif\0\0"
ORIENTATION_TAG: Final = 0x0112
_SHORT, _LONG = 3, 4
_TURNED: Final = range(2, 9)
_XMP_ORIENTATION: Final = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_MOST_ENTRIES: Final = 65_535


def orientation_of(exif: bytes | None, xmp: bytes | None) -> int:
    """Return the orientation, 1 to 8, as the decoder finds it: in the EXIF data, else in the XMP data.

    Args:
        exif: EXIF data, with or without the prefix of JPEG files.
        xmp: XMP packet.
    """
    value = None
    if exif:
        try:
            value = stated_orientation(exif)
        except struct.error:
            # The decoder gives up on both where the EXIF data is damaged.
            return 1
    if value is None and xmp:
        match = _XMP_ORIENTATION.search(xmp)
        value = int(match[1]) if match else None
    return value if value is not None and value in _TURNED else 1


def minimal_exif(orientation: int) -> bytes:
    """Return EXIF data (a TIFF header and one entry) that gives an orientation and nothing else."""
    return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, ORIENTATION_TAG, _SHORT, 1, orientation, 0, 0)


def empty_exif() -> bytes:
    """Return EXIF data that gives nothing."""
    return struct.pack("<2sHIHI", b"II", 42, 8, 0, 0)


def stated_orientation(exif: bytes) -> int | None:
    """Read the orientation from the first directory (TIFF 6.0, section 2); of several the last one counts.

    Raises:
        struct.error: The data ends too early.
    """
    for _ in range(2):
        exif = exif.removeprefix(EXIF_PREFIX)
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    (place,) = struct.unpack_from(f"{order}I", exif, 4)
    (entries,) = struct.unpack_from(f"{order}H", exif, place)
    found = None
    for number in range(min(entries, _MOST_ENTRIES)):
        start = place + 2 + 12 * number
        if start + 12 > len(exif):
            break
        tag, kind, _ = struct.unpack_from(f"{order}HHI", exif, start)
        if tag == ORIENTATION_TAG and kind in (_SHORT, _LONG):
            (found,) = struct.unpack_from(f"{order}{'H' if kind == _SHORT else 'I'}", exif, start + 8)
    return found
