"""A DICOM file from its first byte to the attributes that its pixels are read by (PS3.10, chapter 7)."""

import zlib
from dataclasses import dataclass
from typing import Final

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.dicom.elements import Element, Elements, Walk
from training.imaging.dicom.tags import PIXEL_TAGS, PIXELS, Tag
from training.imaging.formats import MARK, PREAMBLE_BYTES, is_big_endian, is_dicom

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
    marked = content[PREAMBLE_BYTES : PREAMBLE_BYTES + 4] == MARK
    start, syntax = _read_meta(content, PREAMBLE_BYTES + 4 if marked else 0)
    if syntax == _DEFLATED:
        content, start = _inflated(content[start:], max_bytes), 0
    # Some programs write another transfer syntax than they state, or none.
    walk = Walk(content, big=is_big_endian(content, start, otherwise=syntax == BIG_ENDIAN))
    implicit = not walk.is_explicit(start)
    elements = walk.elements(start, len(content), PIXEL_TAGS, implicit=implicit, last=PIXELS)
    return DicomFile(elements, syntax or (BIG_ENDIAN if walk.big else IMPLICIT if implicit else EXPLICIT))


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
