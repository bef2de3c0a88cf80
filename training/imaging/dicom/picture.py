"""A DICOM image whose header was judged: its frames as 8-bit colours, or as grey values of any depth."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from training.common.errors import ImageError
from training.imaging.depth import DeepImage, Samples, band_rows
from training.imaging.dicom.attributes import PALETTE, PixelAttributes, read_attributes
from training.imaging.dicom.file import DicomFile, open_file
from training.imaging.dicom.grey import read_grey_scale, read_table
from training.imaging.dicom.samples import DecodedFrame, check_syntax, decode_frame, uid_name
from training.imaging.dicom.tags import PIXELS, Tag

_PALETTES = (
    (Tag.RED_PALETTE_DESCRIPTOR, Tag.RED_PALETTE_DATA),
    (Tag.GREEN_PALETTE_DESCRIPTOR, Tag.GREEN_PALETTE_DATA),
    (Tag.BLUE_PALETTE_DESCRIPTOR, Tag.BLUE_PALETTE_DATA),
)


@dataclass(frozen=True, slots=True)
class DicomImage:
    """An image in a DICOM file.

    Attributes:
        file: Whose elements were walked over.
        attributes: Size, number of frames and layout of its samples.
    """

    file: DicomFile
    attributes: PixelAttributes

    @property
    def extent(self) -> tuple[int, int, int]:
        """Width, height, and number of frames."""
        return self.attributes.columns, self.attributes.rows, self.attributes.frames

    def decode(self, frame: int) -> Image.Image | DeepImage:
        """Decode a frame, by its number from 0.

        Raises:
            ImageTooLargeError: It has more parts than any program writes.
            ImageError: It is damaged, or cannot be decoded.
            Exception: As the decoders raise it for damaged frames.
        """
        decoded = decode_frame(self.file, self.attributes, frame)
        if self.attributes.is_grey:
            return self._grey(decoded, frame)
        if self.attributes.photometric == PALETTE:
            return self._palette(decoded)
        if decoded.bits <= 8:
            pixels = np.ascontiguousarray(decoded.cells >> decoded.shift).astype(np.uint8)
            image = Image.fromarray(pixels, "YCbCr" if decoded.ybr else "RGB")
            return image.convert("RGB")
        return self._deep_colours(decoded)

    def _grey(self, decoded: DecodedFrame, frame: int) -> DeepImage:
        attributes, elements = self.attributes, self.file.elements
        scale = read_grey_scale(elements, attributes, frame, decoded)
        values = scale.function()
        whole = scale.is_plain and decoded.bits <= 8
        # A window for the bits of the header leaves a frame of fewer bits nearly black.
        is_short = scale.is_plain and decoded.bits < attributes.stored
        return DeepImage(
            attributes.columns,
            attributes.rows,
            1,
            lambda: ((top, values(decoded.cells[top:bottom])) for top, bottom in self._rows()),
            # Of the frame: a compressed one may have fewer bits than the header says.
            full=float((1 << decoded.bits) - 1) if whole else None,
            inverted=attributes.is_inverted,
            tones=tuple(tone for tone in scale.tones if not is_short or tone.window.high < 2 << decoded.bits),
            padded=True,
        )

    def _palette(self, decoded: DecodedFrame) -> Image.Image:
        elements = self.file.elements
        if Tag.RED_PALETTE_DATA not in elements:
            raise ImageError("The DICOM image has a palette in segments or none, which cannot be read.")
        cells = (decoded.cells[..., 0] >> decoded.shift).astype(np.float64)
        tables = [
            read_table(elements, descriptor, data, signed=self.attributes.signed)
            for descriptor, data in _PALETTES
        ]
        # Some programs write colours of 8 bits where 16 belong.
        top = 255.0 if all(table.entries.max() <= 255 for table in tables) else 65_535.0
        return Image.fromarray(
            np.stack([np.rint(table(cells) * (255 / top)).astype(np.uint8) for table in tables], axis=-1)
        )

    def _deep_colours(self, decoded: DecodedFrame) -> DeepImage:
        top_value = (1 << decoded.bits) - 1

        def bands() -> Iterator[tuple[int, Samples]]:
            for top, bottom in self._rows():
                yield top, (decoded.cells[top:bottom] >> decoded.shift).astype(np.uint32) & top_value

        return DeepImage(self.attributes.columns, self.attributes.rows, 3, bands, full=float(top_value))

    def _rows(self) -> Iterator[tuple[int, int]]:
        return band_rows(self.attributes.columns, self.attributes.rows)


def open_dicom(content: bytes, max_bytes: int, max_pixels: int) -> DicomImage:
    """Read the header of a DICOM file.

    Args:
        content: The whole file.
        max_bytes: Limit of what a deflated data set becomes.
        max_pixels: Limit of rows times columns.

    Raises:
        ImageTooLargeError: It has too many elements, bytes, pixels or frames.
        ImageError: It has no pixels, none that can be read, or is damaged.
    """
    file = open_file(content, max_bytes)
    found = PIXELS & file.elements.found.keys()
    if not found:
        uid = file.elements.text(Tag.SOP_CLASS_UID)
        raise ImageError(f"The DICOM file has no pixels{f': it is {uid_name(uid)}' if uid else ''}.")
    if Tag.PIXEL_DATA not in found:
        raise ImageError(
            "The DICOM image has pixels of floating point, which cannot be read; save it as TIFF."
        )
    check_syntax(file.transfer_syntax)
    return DicomImage(file, read_attributes(file.elements, max_pixels))
