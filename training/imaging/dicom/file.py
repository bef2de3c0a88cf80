"""A DICOM file from its first byte to the attributes that its pixels are read by (PS3.10, chapter 7)."""

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.dicom.elements import Element, Elements, Walk
from training.imaging.dicom.tags import PIXEL_TAGS, PIXELS, Tag

# The first bytes that tell a DICOM file: it may begin without its mark.
SIGNATURE_BYTES: Final = 256
_PREAMBLE_BYTES: Final = 128
_MARK: Final = b"DICM"
# Old files begin with their file meta information, or with the first elements of their data set: value
# representations by the number of the element, by group.
_STARTS: Final = {
    0x0002: {0x00: b"UL", 0x01: b"OB", 0x02: b"UI", 0x10: b"UI"},
    0x0008: {0x00: b"UL", 0x01: b"UL", 0x05: b"CS", 0x06: b"SQ", 0x08: b"CS", 0x12: b"DA"}
    | {0x13: b"TM", 0x14: b"UI", 0x15: b"DT", 0x16: b"UI", 0x18: b"UI"},
}
_LONGEST: Final = 4096
_UNDEFINED: Final = 0xFFFF_FFFF
_PIXEL_GROUP: Final = 0x0028
_META_GROUP: Final = b"\2\0"
_TRANSFER_SYNTAX: Final = 0x0002_0010

IMPLICIT: Final = "1.2.840.10008.1.2"
EXPLICIT: Final = "1.2.840.10008.1.2.1"
_DEFLATED: Final = "1.2.840.10008.1.2.1.99"
BIG_ENDIAN: Final = "1.2.840.10008.1.2.2"
NATIVE: Final = frozenset({IMPLICIT, EXPLICIT, _DEFLATED, BIG_ENDIAN})


@dataclass(frozen=True, slots=True)
class DicomFile:
    """A file whose elements were walked over.

    Attributes:
        elements: The elements that decide its pixels.
        transfer_syntax: UID of the transfer syntax.
    """

    elements: Elements
    transfer_syntax: str

    @property
    def pixels(self) -> Element | None:
        """The element that has the pixels; None where there is none."""
        return self.elements.found.get(Tag.PIXEL_DATA)


def is_dicom(content: bytes) -> bool:
    """Tell if a file begins as a DICOM file does: with its mark, or with one of the first elements."""
    if content[_PREAMBLE_BYTES : _PREAMBLE_BYTES + 4] == _MARK:
        return True
    if len(content) < 12:
        return False
    order = ">" if _is_big(content, 0, otherwise=False) else "<"
    group, number, representation, short, long = struct.unpack_from(order + "HH2sHI", content)
    known = _STARTS.get(group, {}).get(number)
    if representation == known:
        start, length = (12, long) if known in (b"OB", b"SQ") else (8, short)
    elif known is not None and order == "<":
        start, length = 8, struct.unpack_from("<I", content, 4)[0]
    else:
        # Big-endian files have representations.
        return False
    if known == b"SQ" and length == _UNDEFINED:
        return True
    if length > _LONGEST or length % 2 or (known == b"UL" and length != 4):
        return False
    after = content[start + length : start + length + 4]
    # Elements are in order of their tags; an image has some of these groups, and no group a length alone.
    last = _PIXEL_GROUP if number else group
    return len(after) < 4 or (group, number) < struct.unpack(order + "HH", after) < (last, 0xFFFF)


def open_file(content: bytes, max_bytes: int) -> DicomFile:
    """Walk over the elements of a file.

    Args:
        content: The whole file.
        max_bytes: Limit of what a deflated data set becomes.

    Raises:
        ImageTooLargeError: It has more elements than an image, or inflates to more bytes than the limit.
        ImageError: It is no DICOM file, or is damaged.
    """
    if not is_dicom(content):
        raise ImageError("The file is not DICOM.")
    marked = content[_PREAMBLE_BYTES : _PREAMBLE_BYTES + 4] == _MARK
    start, syntax = _read_meta(content, _PREAMBLE_BYTES + 4 if marked else 0)
    if syntax == _DEFLATED:
        content, start = _inflated(content[start:], max_bytes), 0
    # Some programs write another transfer syntax than they state, or none.
    walk = Walk(content, big=_is_big(content, start, otherwise=syntax == BIG_ENDIAN))
    implicit = not walk.is_explicit(start)
    elements = walk.elements(start, len(content), PIXEL_TAGS, implicit=implicit, last=PIXELS)
    return DicomFile(elements, syntax or (BIG_ENDIAN if walk.big else IMPLICIT if implicit else EXPLICIT))


def _is_big(content: bytes, start: int, *, otherwise: bool) -> bool:
    """Tell the byte order by the group of the first element; groups up to 255 have a byte of zero."""
    group = content[start : start + 2]
    return group[0] == 0 if len(group) == 2 and (group[0] == 0) != (group[1] == 0) else otherwise


def _read_meta(content: bytes, start: int) -> tuple[int, str]:
    """Return the first byte of the data set, and its transfer syntax or ""."""
    if content[start : start + 2] != _META_GROUP:
        return start, ""
    walk = Walk(content)
    elements = walk.elements(
        start, len(content), {_TRANSFER_SYNTAX}, implicit=not walk.is_explicit(start), group=2
    )
    return elements.end, elements.text(_TRANSFER_SYNTAX)


def _inflated(content: bytes, max_bytes: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        inflated = inflater.decompress(content, max_bytes + 1)
    except zlib.error as error:
        raise ImageError(
            f"The DICOM file is damaged: its deflated data set ends wrongly ({error})."
        ) from None
    if len(inflated) > max_bytes:
        raise ImageTooLargeError(
            f"The DICOM file inflates to over {max_bytes / 1e6:,.1f} MB, the limit of an image file."
        )
    return inflated
