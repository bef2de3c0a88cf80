"""A DICOM file (PS3.10, chapter 7) and its data elements (PS3.5, chapter 7), walked over within bounds.

Only what an image is decoded by is looked into, and stays bytes: all other elements are passed over by their
lengths.
"""

import itertools
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import isfinite, nan
from typing import Final

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.formats import MARK, PREAMBLE_BYTES, is_big_endian, is_dicom

_META_GROUP: Final = b"\2\0"
_TRANSFER_SYNTAX: Final = 0x0002_0010

IMPLICIT: Final = "1.2.840.10008.1.2"
EXPLICIT: Final = "1.2.840.10008.1.2.1"
_DEFLATED: Final = "1.2.840.10008.1.2.1.99"
BIG_ENDIAN: Final = "1.2.840.10008.1.2.2"
NATIVE: Final = frozenset({IMPLICIT, EXPLICIT, _DEFLATED, BIG_ENDIAN})
# An enhanced image of 2,000 frames has about 100,000; so many are walked over in a third of a second.
_MOST_ELEMENTS: Final = 300_000
# Structured reports, which have no pixels, are nested deeper than any image.
_DEEPEST: Final = 32
_UNDEFINED: Final = 0xFFFF_FFFF
_ITEM: Final = 0xFFFE_E000
_ITEM_END: Final = 0xFFFE_E00D
_SEQUENCE_END: Final = 0xFFFE_E0DD
# Value representations with a length of four bytes after two bytes that are not used.
_LONG: Final = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())
_NUMBERS: Final = {b"US": "H", b"SS": "h", b"UL": "I", b"SL": "i", b"FL": "f", b"FD": "d", b"UV": "Q"}
_TEXTS: Final = frozenset({b"DS", b"IS"})
# Values of the attributes that are read are shorter, but for tables and pixels.
_LONGEST_TEXT: Final = 4_096


class Tag(IntEnum):
    """An attribute, by the name that the standard gives it."""

    SOP_CLASS_UID = 0x0008_0016
    SAMPLES_PER_PIXEL = 0x0028_0002
    PHOTOMETRIC_INTERPRETATION = 0x0028_0004
    PLANAR_CONFIGURATION = 0x0028_0006
    NUMBER_OF_FRAMES = 0x0028_0008
    ROWS = 0x0028_0010
    COLUMNS = 0x0028_0011
    BITS_ALLOCATED = 0x0028_0100
    BITS_STORED = 0x0028_0101
    HIGH_BIT = 0x0028_0102
    PIXEL_REPRESENTATION = 0x0028_0103
    PIXEL_PADDING_VALUE = 0x0028_0120
    PIXEL_PADDING_RANGE_LIMIT = 0x0028_0121
    WINDOW_CENTER = 0x0028_1050
    WINDOW_WIDTH = 0x0028_1051
    RESCALE_INTERCEPT = 0x0028_1052
    RESCALE_SLOPE = 0x0028_1053
    VOI_LUT_FUNCTION = 0x0028_1056
    RED_PALETTE_DESCRIPTOR = 0x0028_1101
    GREEN_PALETTE_DESCRIPTOR = 0x0028_1102
    BLUE_PALETTE_DESCRIPTOR = 0x0028_1103
    RED_PALETTE_DATA = 0x0028_1201
    GREEN_PALETTE_DATA = 0x0028_1202
    BLUE_PALETTE_DATA = 0x0028_1203
    LUT_DESCRIPTOR = 0x0028_3002
    LUT_DATA = 0x0028_3006
    MODALITY_LUT_SEQUENCE = 0x0028_3000
    VOI_LUT_SEQUENCE = 0x0028_3010
    FRAME_VOI_LUT_SEQUENCE = 0x0028_9132
    PIXEL_VALUE_TRANSFORMATION_SEQUENCE = 0x0028_9145
    SHARED_FUNCTIONAL_GROUPS_SEQUENCE = 0x5200_9229
    PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE = 0x5200_9230
    EXTENDED_OFFSET_TABLE = 0x7FE0_0001
    FLOAT_PIXEL_DATA = 0x7FE0_0008
    DOUBLE_FLOAT_PIXEL_DATA = 0x7FE0_0009
    PIXEL_DATA = 0x7FE0_0010


PIXELS: Final = frozenset({Tag.FLOAT_PIXEL_DATA, Tag.DOUBLE_FLOAT_PIXEL_DATA, Tag.PIXEL_DATA})
# A file that has these, with all that their sequences contain, has the same pixels as a whole one.
PIXEL_TAGS: Final = frozenset(Tag) - {Tag.LUT_DESCRIPTOR, Tag.LUT_DATA}


@dataclass(frozen=True, slots=True)
class Element:
    """A data element.

    Attributes:
        representation: Value representation; empty where the file has none.
        start: Offset of the value.
        end: Offset after the value, or after the file where the value has no length of its own.
        undefined: Whether the value has items up to a delimiter instead of a length.
    """

    representation: bytes
    start: int
    end: int
    undefined: bool = False


@dataclass(slots=True)
class Walk:
    """A walk over the elements of one file, with the number of elements that it may still look at."""

    content: bytes
    big: bool = False
    left: int = _MOST_ELEMENTS

    def elements(
        self,
        start: int,
        end: int,
        tags: Collection[int],
        *,
        implicit: bool,
        last: Collection[int] = (),
        group: int | None = None,
    ) -> "Elements":
        """Read the elements of a data set or an item from `start` to `end`, or to a delimiter.

        Args:
            start: Offset of the first element.
            end: Offset after the last.
            tags: Elements that are kept.
            implicit: Whether elements have no value representation.
            last: Tags of values that may go on to the end of the file, with which the walk ends.
            group: The only group whose elements are read; None: all.

        Raises:
            ImageTooLargeError: The file has more elements than any image.
            ImageError: The elements cannot be followed.
        """
        by_tag: dict[int, Element] = {}
        offset = start
        while offset + 8 <= end:
            tag, element = self._element(offset, implicit=implicit)
            if tag == _ITEM_END or (group is not None and tag >> 16 != group):
                break
            if tag in last:
                by_tag[tag] = replace(element, end=min(element.end, end))
                break
            if element.undefined:
                # A sequence that a program did not know is implicit inside (PS3.5, section 6.2.2).
                inside = implicit or element.representation == b"UN"
                offset = self._end(element.start, end, is_item=False, implicit=inside)
            else:
                offset = element.end
            if offset > end:
                raise ImageError(f"The DICOM file is damaged: {_name(tag)} ends beyond what it is part of.")
            if tag in tags:
                by_tag[tag] = replace(element, end=offset)
        return Elements(self, by_tag, offset, implicit)

    def items(self, element: Element, *, implicit: bool = False) -> Iterator[tuple[int, int]]:
        """Yield the offsets of the beginning and end of items of a sequence, or of fragments of pixels.

        Raises:
            ImageError: They cannot be followed.
        """
        offset = element.start
        while offset + 8 <= element.end:
            tag, length = self._item(offset)
            offset += 8
            if tag == _SEQUENCE_END:
                return
            if tag != _ITEM:
                raise ImageError(f"The DICOM file is damaged: {_name(tag)} is where an item belongs.")
            end = element.end if length == _UNDEFINED else offset + length
            if end > element.end:
                raise ImageError("The DICOM file is damaged: an item ends beyond its sequence.")
            yield offset, end
            # Items of functional groups may be long, and follow one that was read already.
            offset = self._end(offset, end, is_item=True, implicit=implicit) if length == _UNDEFINED else end

    def _end(self, offset: int, end: int, *, is_item: bool, implicit: bool) -> int:
        """Find the byte after the delimiter of a sequence or an item without a length, within `end`."""
        # For what is open: whether it is an item, and its elements are implicit.
        opened = [(is_item, implicit)]
        while opened:
            if offset + 8 > end:
                raise ImageError("The DICOM file is damaged: a sequence without a length has no end.")
            is_item, implicit = opened[-1]
            if is_item:
                tag, element = self._element(offset, implicit=implicit)
                offset, undefined = element.start if element.undefined else element.end, element.undefined
                closes = tag == _ITEM_END
                implicit = implicit or element.representation == b"UN"
            else:
                tag, length = self._item(offset)
                undefined = length == _UNDEFINED
                closes = tag == _SEQUENCE_END
                offset += 8 if closes or undefined else 8 + length
                if not closes and tag != _ITEM:
                    raise ImageError(f"The DICOM file is damaged: {_name(tag)} is where an item belongs.")
            if closes:
                opened.pop()
            elif undefined:
                opened.append((not is_item, implicit))
                if len(opened) > 2 * _DEEPEST:
                    raise ImageTooLargeError(f"The DICOM file has over {_DEEPEST} sequences in each other.")
        return offset

    def is_explicit(self, offset: int) -> bool:
        """Tell if the element at an offset has a value representation."""
        return _is_representation(self.content[offset + 4 : offset + 6])

    def _element(self, offset: int, *, implicit: bool) -> tuple[int, Element]:
        """Read the tag, the representation and the length of an element."""
        self._count()
        content, order = self.content, ">" if self.big else "<"
        if offset + 8 > len(content):
            raise ImageError("The DICOM file is damaged: it ends within an element.")
        group, number = struct.unpack_from(order + "HH", content, offset)
        tag = group << 16 | number
        representation = content[offset + 4 : offset + 6]
        # Some programs write single elements without a representation.
        if implicit or group == 0xFFFE or not _is_representation(representation):
            representation = b""
            (length,) = struct.unpack_from(order + "I", content, offset + 4)
            start = offset + 8
        elif representation in _LONG:
            if offset + 12 > len(content):
                raise ImageError("The DICOM file is damaged: it ends within an element.")
            (length,) = struct.unpack_from(order + "I", content, offset + 8)
            start = offset + 12
        else:
            (length,) = struct.unpack_from(order + "H", content, offset + 6)
            start = offset + 8
        undefined = length == _UNDEFINED
        return tag, Element(representation, start, len(content) if undefined else start + length, undefined)

    def _item(self, offset: int) -> tuple[int, int]:
        self._count()
        group, number, length = struct.unpack_from(">HHI" if self.big else "<HHI", self.content, offset)
        return group << 16 | number, length

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ImageTooLargeError(
                f"The DICOM file has over {_MOST_ELEMENTS:,} elements and fragments; save it anew."
            )


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of a data set or an item by tag, and the offset after the last one.

    They are implicit if they have no value representation.
    """

    walk: Walk
    by_tag: dict[int, Element] = field(repr=False)
    end: int
    implicit: bool

    def __contains__(self, tag: int) -> bool:
        """Tell if an element is there and not empty."""
        element = self.by_tag.get(tag)
        return element is not None and (element.undefined or element.end > element.start)

    def value(self, tag: int) -> bytes:
        """Return the bytes of a value; none where it is missing."""
        element = self.by_tag.get(tag)
        return b"" if element is None else self.walk.content[element.start : element.end]

    def text(self, tag: int) -> str:
        """Return a value as text without what pads it."""
        return self._short(tag).decode("latin-1").strip(" \0\t\r\n")

    def _short(self, tag: int) -> bytes:
        """Return a value that is no longer than those of attributes; nothing of a longer one."""
        element = self.by_tag.get(tag)
        return b"" if element is None or element.end - element.start > _LONGEST_TEXT else self.value(tag)

    def numbers(self, tag: int, form: str = "text") -> list[float]:
        """Return a value that has numbers; those that are none are left out.

        Args:
            tag: Tag of the element.
            form: Type of an element without a representation: "text" or a letter of `struct`.
        """
        value = self._short(tag)
        if not value:
            return []
        representation = self.by_tag[tag].representation
        form = "text" if representation in _TEXTS else _NUMBERS.get(representation, form)
        if form == "text":
            return [number for part in self.text(tag).split("\\") if isfinite(number := _number(part))]
        form = f"{'>' if self.walk.big else '<'}{form}"
        size = struct.calcsize(form)
        numbers = struct.iter_unpack(form, value[: len(value) // size * size])
        return [number for (number,) in numbers if isfinite(number)]

    def item(self, tag: int, tags: Collection[int], number: int = 0) -> "Elements | None":
        """Return one item of a sequence; None where there is none.

        Raises:
            ImageError: The items cannot be followed.
        """
        element = self.by_tag.get(tag)
        if element is None:
            return None
        implicit = self.implicit or element.representation == b"UN"
        spans = itertools.islice(self.walk.items(element, implicit=implicit), number, None)
        span = next(spans, None)
        return None if span is None else self.walk.elements(*span, tags, implicit=implicit)


def _is_representation(letters: bytes) -> bool:
    return len(letters) == 2 and letters.isalpha() and letters.isupper()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def _name(tag: int) -> str:
    group = tag >> 16
    # Letters instead of a group are a part of somebody's name.
    if all(0x20 <= byte < 0x7F for byte in divmod(group, 256)):
        return "an element"
    return f"({tag >> 16:04X},{tag & 0xFFFF:04X})"


@dataclass(frozen=True, slots=True)
class DicomFile:
    """The elements of a file that decide its pixels, and the UID of its transfer syntax."""

    elements: Elements
    transfer_syntax: str


def open_file(content: bytes, max_bytes: int) -> DicomFile:
    """Walk over the elements of a file, whose data set may inflate to a number of bytes.

    Raises:
        ImageTooLargeError: It has more elements than an image, or inflates to more bytes than the limit.
        ImageError: It is no DICOM file, or is damaged.
    """
    if not is_dicom(content):
        raise ImageError("The file is not DICOM.")
    start = PREAMBLE_BYTES + 4 if content[PREAMBLE_BYTES : PREAMBLE_BYTES + 4] == MARK else 0
    syntax, walk = "", Walk(content)
    if content[start : start + 2] == _META_GROUP:
        implicit = not walk.is_explicit(start)
        meta = walk.elements(start, len(content), {_TRANSFER_SYNTAX}, implicit=implicit, group=2)
        start, syntax = meta.end, meta.text(_TRANSFER_SYNTAX)
    if syntax == _DEFLATED:
        try:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content[start:], max_bytes + 1)
        except zlib.error as error:
            raise ImageError(
                f"The DICOM file is damaged: its deflated data set ends wrongly ({error})."
            ) from None
        if len(content) > max_bytes:
            raise ImageTooLargeError(
                f"The DICOM file inflates to over {max_bytes / 1e6:,.1f} MB, the limit of an image file."
            )
        start = 0
    # Some programs write another transfer syntax than they state, or none.
    walk = Walk(content, big=is_big_endian(content, start, otherwise=syntax == BIG_ENDIAN))
    implicit = not walk.is_explicit(start)
    elements = walk.elements(start, len(content), PIXEL_TAGS, implicit=implicit, last=PIXELS)
    return DicomFile(elements, syntax or (BIG_ENDIAN if walk.big else IMPLICIT if implicit else EXPLICIT))
