"""A DICOM image whose header was judged: its frames as 8-bit colours, or as grey values of any depth.

From stored values to grey values and their window: PS3.3, sections C.7.5.1, C.11.1 and C.11.2.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.common.errors import ImageError
from training.imaging.depth import DeepImage, Samples, Tone, band_rows
from training.imaging.dicom.elements import PIXELS, DicomFile, Elements, Tag, open_file
from training.imaging.dicom.pixels import (
    PALETTE,
    DecodedFrame,
    PixelAttributes,
    check_syntax,
    decode_frame,
    read_attributes,
    uid_name,
)
from training.imaging.window import Window

Values = NDArray[np.float64]

LUT_TAGS: Final = frozenset({Tag.LUT_DESCRIPTOR, Tag.LUT_DATA})
RESCALE_TAGS: Final = frozenset({Tag.RESCALE_INTERCEPT, Tag.RESCALE_SLOPE})
WINDOW_TAGS: Final = frozenset(
    {Tag.WINDOW_CENTER, Tag.WINDOW_WIDTH, Tag.VOI_LUT_FUNCTION, Tag.VOI_LUT_SEQUENCE}
)
PALETTE_TAGS: Final = (
    (Tag.RED_PALETTE_DESCRIPTOR, Tag.RED_PALETTE_DATA),
    (Tag.GREEN_PALETTE_DESCRIPTOR, Tag.GREEN_PALETTE_DATA),
    (Tag.BLUE_PALETTE_DESCRIPTOR, Tag.BLUE_PALETTE_DATA),
)
_TABLE_BITS: Final = 16
_MOST_ENTRIES: Final = 1 << 16
MOST_WINDOWS: Final = 8


@dataclass(frozen=True, slots=True)
class DicomImage:
    """An image in a DICOM file."""

    file: DicomFile
    attributes: PixelAttributes

    def decode(self, frame: int) -> Image.Image | DeepImage:
        """Decode a frame, by its number from 0.

        Raises:
            ImageTooLargeError: It has more parts than any program writes.
            ImageError: It is damaged, or cannot be decoded.
            Exception: As the decoders raise it for damaged frames.
        """
        decoded = decode_frame(self.file, self.attributes, frame)
        columns, rows = self.attributes.columns, self.attributes.rows
        if self.attributes.is_grey:
            return _grey(self.file.elements, self.attributes, frame, decoded)
        if self.attributes.photometric == PALETTE:
            return _coloured(self.file.elements, self.attributes, decoded)
        if decoded.bits <= 8:
            pixels = np.ascontiguousarray(decoded.cells >> decoded.shift).astype(np.uint8)
            image = Image.fromarray(pixels, "YCbCr" if decoded.ybr else "RGB")
            return image.convert("RGB")
        top_value = (1 << decoded.bits) - 1

        def bands() -> Iterator[tuple[int, Samples]]:
            for top, bottom in band_rows(columns, rows):
                yield top, (decoded.cells[top:bottom] >> decoded.shift).astype(np.uint32) & top_value

        return DeepImage(columns, rows, 3, bands, full=float(top_value))


def open_dicom(content: bytes, max_bytes: int, max_pixels: int) -> DicomImage:
    """Read the header of a DICOM file, up to a number of inflated bytes and of pixels of a frame.

    Raises:
        ImageTooLargeError: It has too many elements, bytes, pixels or frames.
        ImageError: It has no pixels, none that can be read, or is damaged.
    """
    file = open_file(content, max_bytes)
    pixels = PIXELS & file.elements.by_tag.keys()
    if not pixels:
        uid = file.elements.text(Tag.SOP_CLASS_UID)
        raise ImageError(f"The DICOM file has no pixels{f': it is {uid_name(uid)}' if uid else ''}.")
    if Tag.PIXEL_DATA not in pixels:
        raise ImageError(
            "The DICOM image has pixels of floating point, which cannot be read; save it as TIFF."
        )
    check_syntax(file.transfer_syntax)
    return DicomImage(file, read_attributes(file.elements, max_pixels))


def _coloured(elements: Elements, attributes: PixelAttributes, decoded: DecodedFrame) -> Image.Image:
    """Look the colours of a frame up in its palette."""
    if Tag.RED_PALETTE_DATA not in elements:
        raise ImageError("The DICOM image has a palette in segments or none, which cannot be read.")
    cells = (decoded.cells[..., 0] >> decoded.shift).astype(np.float64)
    tables = [read_table(elements, *tags, signed=attributes.signed) for tags in PALETTE_TAGS]
    # Some programs write colours of 8 bits where 16 belong.
    top = 255.0 if all(table.entries.max() <= 255 for table in tables) else 65_535.0
    return Image.fromarray(
        np.stack([np.rint(table(cells) * (255 / top)).astype(np.uint8) for table in tables], axis=-1)
    )


def _grey(elements: Elements, attributes: PixelAttributes, frame: int, decoded: DecodedFrame) -> DeepImage:
    """Return the grey values of a frame, and the grey levels that the image states."""
    rescale = functional_group(elements, frame, Tag.PIXEL_VALUE_TRANSFORMATION_SEQUENCE, RESCALE_TAGS)
    modality = _read_modality(rescale, elements, signed=attributes.signed)
    ends = np.array(attributes.range, np.float64)
    is_below_zero = float((ends if modality is None else modality(ends)).min()) < 0
    shown = functional_group(elements, frame, Tag.FRAME_VOI_LUT_SEQUENCE, WINDOW_TAGS)
    tones = tuple(_read_tones(shown, signed=is_below_zero))
    padding = read_padding(elements, attributes).values()
    lowest, highest = attributes.range
    is_padded = bool(padding) and all(lowest <= end <= highest for end in padding)

    def values(cells: NDArray[Any]) -> Values:
        """Return grey values; NaN where a cell is padding."""
        samples = (cells >> decoded.shift).astype(np.int64) & ((1 << decoded.bits) - 1)
        if decoded.signed:
            samples -= (samples >> decoded.bits - 1) << decoded.bits
        grey: Values = samples.astype(np.float64)
        if modality is not None:
            # A rescale may lead beyond the largest float, which is white as infinity.
            with np.errstate(over="ignore", invalid="ignore"):
                grey = modality(grey)
        if is_padded:
            grey[(samples >= min(padding)) & (samples <= max(padding))] = np.nan
        return grey

    # Small cells are looked up.
    is_small = decoded.bits + decoded.shift <= _TABLE_BITS
    table = values(np.arange(1 << _TABLE_BITS)) if is_small else None

    def bands() -> Iterator[tuple[int, Samples]]:
        for top, bottom in band_rows(attributes.columns, attributes.rows):
            cells = decoded.cells[top:bottom]
            yield top, values(cells) if table is None else table[cells]

    is_plain = modality is None and not decoded.signed
    if is_plain and decoded.bits < attributes.stored:
        # A window for the bits of the header leaves a frame of fewer bits nearly black.
        tones = tuple(tone for tone in tones if tone.window.high < 2 << decoded.bits)
    return DeepImage(
        attributes.columns,
        attributes.rows,
        1,
        bands,
        # The frame's bits: a compressed one may have fewer bits than the header says.
        full=float((1 << decoded.bits) - 1) if is_plain and decoded.bits <= 8 else None,
        inverted=attributes.photometric == "MONOCHROME1",
        tones=tones,
        padded=True,
    )


def read_padding(elements: Elements, attributes: PixelAttributes) -> dict[Tag, int]:
    """Return the first and the last sample that is padding, whichever sign the file gives them."""
    ends = {
        tag: int(number) & 0xFFFF
        for tag in (Tag.PIXEL_PADDING_VALUE, Tag.PIXEL_PADDING_RANGE_LIMIT)
        for number in elements.numbers(tag, "h" if attributes.signed else "H")[:1]
    }
    return {tag: end - (1 << 16) if attributes.signed and end >> 15 else end for tag, end in ends.items()}


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
        indices = np.nan_to_num(values - self.first).clip(0, len(self.entries) - 1)
        levels: Values = self.entries[np.rint(indices).astype(np.int64)].astype(np.float64)
        levels[np.isnan(values)] = np.nan
        return levels

    @property
    def window(self) -> Window:
        """The values from the first to the last entry."""
        width = max(1, len(self.entries) - 1)
        return Window(self.first + width / 2, width)


def read_table(elements: Elements, descriptor: int, data: int, *, signed: bool) -> LookupTable:
    """Read a lookup table by the tags of its descriptor and its data; `signed`: values may be negative.

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
    if (signed or elements.by_tag[descriptor].representation == b"SS") and first >= 1 << 15:
        first -= 1 << 16
    # Entries of 8 bits may be words or bytes, with one byte of padding.
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


def functional_group(elements: Elements, frame: int, tag: Tag, tags: frozenset[Tag]) -> Elements:
    """Return a functional group of a frame, or of all frames; the data set itself where there is none.

    Args:
        elements: The data set.
        frame: Number of the frame from 0.
        tag: Sequence of the group, such as Pixel Value Transformation.
        tags: Elements of the group to read.
    """
    for sequence, number in (
        (Tag.PER_FRAME_FUNCTIONAL_GROUPS_SEQUENCE, frame),
        (Tag.SHARED_FUNCTIONAL_GROUPS_SEQUENCE, 0),
    ):
        groups = elements.item(sequence, {tag}, number)
        group = None if groups is None else groups.item(tag, tags)
        if group is not None:
            return group
    return elements


def _read_modality(
    rescale: Elements, elements: Elements, *, signed: bool
) -> Callable[[Values], Values] | None:
    item = elements.item(Tag.MODALITY_LUT_SEQUENCE, LUT_TAGS)
    if item is not None and Tag.LUT_DATA in item:
        return read_table(item, Tag.LUT_DESCRIPTOR, Tag.LUT_DATA, signed=signed)
    slope = (rescale.numbers(Tag.RESCALE_SLOPE) or [1.0])[0] or 1.0
    intercept = (rescale.numbers(Tag.RESCALE_INTERCEPT) or [0.0])[0]
    if slope == 1 and intercept == 0:
        return None
    return lambda samples: samples * slope + intercept


def _read_tones(elements: Elements, *, signed: bool) -> Iterator[Tone]:
    """Read the first table, then the windows."""
    item = elements.item(Tag.VOI_LUT_SEQUENCE, LUT_TAGS)
    if item is not None and Tag.LUT_DATA in item:
        table = read_table(item, Tag.LUT_DESCRIPTOR, Tag.LUT_DATA, signed=signed)
        largest = int(table.entries.max())
        # Some programs state more bits than their entries use: the film would be nearly black.
        white = largest if 0 < 2 * largest < table.top else table.top
        yield Tone(lambda values: table(values) / white, table.window)
    centres, widths = elements.numbers(Tag.WINDOW_CENTER), elements.numbers(Tag.WINDOW_WIDTH)
    function = elements.text(Tag.VOI_LUT_FUNCTION).upper()
    for centre, width in list(zip(centres, widths, strict=False))[:MOST_WINDOWS]:
        if width >= 1 or (width > 0 and function in ("SIGMOID", "LINEAR_EXACT")):
            yield _window_tone(centre, width, function)


def _window_tone(centre: float, width: float, function: str) -> Tone:
    """Return the tone of a window by its function; any but SIGMOID and LINEAR_EXACT is taken for LINEAR."""
    if function == "SIGMOID":
        # Beyond 50 the exponential is 0 or too large for any grey level.
        return Tone(
            lambda values: 1 / (1 + np.exp((-4 * (values - centre) / width).clip(-50, 50))),
            Window(centre, width),
        )
    if function != "LINEAR_EXACT":
        centre, width = centre - 0.5, width - 1
    if width == 0:
        return Tone(lambda values: np.where(np.isnan(values), np.nan, values > centre), Window(centre, 1.0))
    return Tone(lambda values: ((values - centre) / width + 0.5).clip(0, 1), Window(centre, width))
