"""From stored values to grey values and their window (PS3.3, sections C.7.5.1, C.11.1 and C.11.2)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from training.common.errors import ImageError
from training.imaging.depth import Tone
from training.imaging.dicom.attributes import PixelAttributes
from training.imaging.dicom.elements import Elements
from training.imaging.dicom.samples import DecodedFrame
from training.imaging.dicom.tags import Tag
from training.imaging.window import Window

Cells = NDArray[Any]
Values = NDArray[np.float64]

_LUT_TAGS: Final = frozenset({Tag.LUT_DESCRIPTOR, Tag.LUT_DATA})
_RESCALE_TAGS: Final = frozenset({Tag.RESCALE_INTERCEPT, Tag.RESCALE_SLOPE})
_WINDOW_TAGS: Final = frozenset(
    {Tag.WINDOW_CENTER, Tag.WINDOW_WIDTH, Tag.VOI_LUT_FUNCTION, Tag.VOI_LUT_SEQUENCE}
)
_TABLE_BITS: Final = 16
_MOST_ENTRIES: Final = 1 << 16
MOST_WINDOWS: Final = 8


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A lookup table.

    Attributes:
        first: Value of the first entry; smaller ones have the same.
        entries: For each value from the first on; larger ones have the last.
        top: Largest entry that there may be.
    """

    first: int
    entries: NDArray[np.unsignedinteger[Any]]
    top: int

    def __call__(self, values: NDArray[Any]) -> Values:
        """Look values up; NaN stays."""
        places = np.nan_to_num(values - self.first).clip(0, len(self.entries) - 1)
        found: Values = self.entries[np.rint(places).astype(np.int64)].astype(np.float64)
        found[np.isnan(values)] = np.nan
        return found

    @property
    def window(self) -> Window:
        """The values from the first to the last entry."""
        width = max(1, len(self.entries) - 1)
        return Window(self.first + width / 2, width)


def read_table(elements: Elements, descriptor: int, data: int, *, signed: bool) -> LookupTable:
    """Read a lookup table.

    Args:
        elements: Elements with the table.
        descriptor: Tag of its number of entries, first value and bits.
        data: Tag of its entries.
        signed: Whether the first value may be negative.

    Raises:
        ImageError: It has no entries, or more than it says.
    """
    order = ">" if elements.walk.big else "<"
    numbers = np.frombuffer(elements.value(descriptor)[:6], f"{order}u2").tolist()
    content = elements.value(data)
    if len(numbers) < 3 or not content:
        raise ImageError("The DICOM image is damaged: its lookup table has no entries.")
    count, first, bits = numbers
    count = count or _MOST_ENTRIES
    if (signed or elements.found[descriptor].representation == b"SS") and first >= 1 << 15:
        first -= 1 << 16
    # Entries of 8 bits may stand in words or in bytes, with one that pads them.
    if len(content) >= 2 * count:
        entries = np.frombuffer(content[: 2 * count], f"{order}u2")
    elif bits <= 8 and len(content) >= count:
        entries = np.frombuffer(content[:count], np.uint8)
    else:
        raise ImageError(
            f"The DICOM image is damaged: a lookup table of {count:,} entries has {len(content):,} bytes."
        )
    # Bits are often stated wrongly.
    return LookupTable(first, entries, max((1 << min(bits, _TABLE_BITS)) - 1, int(entries.max()), 1))


@dataclass(frozen=True, slots=True)
class GreyScale:
    """Conversion of the cells of a frame to grey values.

    Attributes:
        bits: Bits of a cell that belong to the sample.
        shift: Bits below them.
        signed: Whether samples are in two's complement.
        padding: First and last sample that is padding; None: there is none.
        modality: From samples to grey values; None: they are the same.
        tones: From grey values to grey levels, as the image states them, the preferred first.
    """

    bits: int
    shift: int
    signed: bool
    padding: tuple[int, int] | None
    modality: Callable[[Values], Values] | None
    tones: tuple[Tone, ...]

    @property
    def is_plain(self) -> bool:
        """True if samples are grey values from 0 on, without rescaling."""
        return self.modality is None and not self.signed

    def values(self, cells: Cells) -> Values:
        """Return grey values; NaN where a cell is padding."""
        samples = (cells >> self.shift).astype(np.int64) & ((1 << self.bits) - 1)
        if self.signed:
            samples -= (samples >> self.bits - 1) << self.bits
        values = samples.astype(np.float64)
        if self.modality is not None:
            # A rescale may lead beyond the largest float, which is white as infinity.
            with np.errstate(over="ignore", invalid="ignore"):
                values = self.modality(values)
        if self.padding is not None:
            low, high = self.padding
            values[(samples >= low) & (samples <= high)] = np.nan
        return values

    def function(self) -> Callable[[Cells], Values]:
        """Return `values` as a table where cells are small."""
        if self.bits + self.shift > _TABLE_BITS:
            return self.values
        table = self.values(np.arange(1 << _TABLE_BITS))
        return lambda cells: table[cells]


def read_grey_scale(
    elements: Elements, attributes: PixelAttributes, frame: int, decoded: DecodedFrame
) -> GreyScale:
    """Read what the attributes say of grey values.

    Args:
        elements: Elements of the data set.
        attributes: Layout of the samples.
        frame: Number of the frame from 0: each may have its own.
        decoded: Its samples.

    Raises:
        ImageError: A lookup table is damaged.
    """
    transformed = functional_group(elements, frame, Tag.PIXEL_VALUE_TRANSFORMATION_SEQUENCE, _RESCALE_TAGS)
    modality = _read_modality(transformed or elements, elements, signed=attributes.signed)
    ends = np.array(attributes.range, np.float64)
    below_zero = float((ends if modality is None else modality(ends)).min()) < 0
    shown = functional_group(elements, frame, Tag.FRAME_VOI_LUT_SEQUENCE, _WINDOW_TAGS)
    tones = tuple(_read_tones(shown or elements, signed=below_zero))
    padding = _padding(elements, attributes)
    return GreyScale(decoded.bits, decoded.shift, decoded.signed, padding, modality, tones)


def functional_group(elements: Elements, frame: int, tag: Tag, wanted: frozenset[Tag]) -> Elements | None:
    """Return a functional group of a frame, or of all frames; None where there is none.

    Args:
        elements: Elements of the data set.
        frame: Number of the frame from 0.
        tag: Sequence of the group, such as Pixel Value Transformation.
        wanted: Tags to read of the group.
    """
    groups = (
        (Tag.PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE, frame),
        (Tag.SHARED_FUNCTIONAL_GROUPS_SEQUENCE, 0),
    )
    for sequence, number in groups:
        group = elements.item(sequence, {tag}, number)
        found = None if group is None else group.item(tag, wanted)
        if found is not None:
            return found
    return None


def _read_modality(
    rescale: Elements, elements: Elements, *, signed: bool
) -> Callable[[Values], Values] | None:
    item = elements.item(Tag.MODALITY_LUT_SEQUENCE, _LUT_TAGS)
    if item is not None and Tag.LUT_DATA in item:
        return read_table(item, Tag.LUT_DESCRIPTOR, Tag.LUT_DATA, signed=signed)
    slope = (rescale.numbers(Tag.RESCALE_SLOPE) or [1.0])[0] or 1.0
    intercept = (rescale.numbers(Tag.RESCALE_INTERCEPT) or [0.0])[0]
    if slope == 1 and intercept == 0:
        return None
    return lambda samples: samples * slope + intercept


def _read_tones(elements: Elements, *, signed: bool) -> Iterator[Tone]:
    """Read the first table, then the windows."""
    item = elements.item(Tag.VOI_LUT_SEQUENCE, _LUT_TAGS)
    if item is not None and Tag.LUT_DATA in item:
        table = read_table(item, Tag.LUT_DESCRIPTOR, Tag.LUT_DATA, signed=signed)
        largest = int(table.entries.max())
        # Some programs state more bits than their entries use: the film would be nearly black.
        white = largest if 0 < 2 * largest < table.top else table.top
        yield Tone(lambda values: table(values) / white, table.window)
    centres, widths = elements.numbers(Tag.WINDOW_CENTER), elements.numbers(Tag.WINDOW_WIDTH)
    function = elements.text(Tag.VOI_LUT_FUNCTION).upper()
    for centre, width in list(zip(centres, widths, strict=False))[:MOST_WINDOWS]:
        tone = window_tone(centre, width, function)
        if tone is not None:
            yield tone


def window_tone(centre: float, width: float, function: str = "LINEAR") -> Tone | None:
    """Return the tone of a window; None for a width that no window has.

    Args:
        centre: Its centre.
        width: Its width.
        function: LINEAR, LINEAR_EXACT or SIGMOID; any other is taken for the first.
    """
    if function == "SIGMOID" and width > 0:
        # Beyond 50 the exponential is 0 or too large for any grey level.
        return Tone(
            lambda values: 1 / (1 + np.exp((-4 * (values - centre) / width).clip(-50, 50))),
            Window(centre, width),
        )
    if function == "LINEAR_EXACT" and width > 0:
        return Tone(lambda values: ((values - centre) / width + 0.5).clip(0, 1), Window(centre, width))
    if width < 1:
        return None
    middle, reach = centre - 0.5, width - 1
    if reach == 0:
        return Tone(lambda values: np.where(np.isnan(values), np.nan, values > middle), Window(middle, 1.0))
    return Tone(lambda values: ((values - middle) / reach + 0.5).clip(0, 1), Window(middle, reach))


def _padding(elements: Elements, attributes: PixelAttributes) -> tuple[int, int] | None:
    """Return the first and the last sample that is padding; None where no sample can be."""
    form = "h" if attributes.signed else "H"
    ends = [
        _as_sample(int(number), attributes)
        for tag in (Tag.PIXEL_PADDING_VALUE, Tag.PIXEL_PADDING_RANGE_LIMIT)
        for number in elements.numbers(tag, form)[:1]
    ]
    lowest, highest = attributes.range
    if not ends or not all(lowest <= end <= highest for end in ends):
        return None
    return min(ends), max(ends)


def _as_sample(number: int, attributes: PixelAttributes) -> int:
    """Return a value of 16 bits with the sign of samples, whichever the file gives it."""
    number &= 0xFFFF
    return number - (1 << 16) if attributes.signed and number >> 15 else number
