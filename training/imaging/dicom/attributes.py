"""The image pixel module of a DICOM image (PS3.3, section C.7.6.3): judged before any pixel is decoded."""

from dataclasses import dataclass
from typing import Final

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.dicom.elements import Elements
from training.imaging.dicom.tags import Tag
from training.imaging.structure import check_size

# A recording of five minutes, or all of an enhanced scan, has fewer; each has a place that is looked up.
MOST_FRAMES: Final = 20_000
_GREY: Final = frozenset({"MONOCHROME1", "MONOCHROME2"})
PALETTE: Final = "PALETTE COLOR"
YBR_422: Final = "YBR_FULL_422"
_YBR: Final = frozenset({"YBR_FULL", YBR_422})
# As JPEG 2000 names its own transforms, which its decoder undoes.
_COLOURS: Final = frozenset({"RGB", "YBR_ICT", "YBR_RCT", *_YBR})
_ALLOCATED: Final = frozenset({1, 8, 16, 32})
_COLOUR_SAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class PixelAttributes:
    """Layout of the samples of an image.

    Attributes:
        columns: Width.
        rows: Height.
        frames: Number of frames.
        samples: Samples of a pixel: 1 or 3.
        photometric: Photometric interpretation.
        allocated: Bits of the cell of a sample.
        stored: Bits that are used.
        high: Number of the highest of them in its cell.
        signed: Whether samples are in two's complement.
        planar: Whether each colour has a plane of its own.
    """

    columns: int
    rows: int
    frames: int
    samples: int
    photometric: str
    allocated: int
    stored: int
    high: int
    signed: bool
    planar: bool

    @property
    def is_grey(self) -> bool:
        """True if samples are grey values."""
        return self.photometric in _GREY

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest sample that there can be."""
        below = 1 << self.stored - 1 if self.signed else 0
        return -below, (1 << self.stored) - 1 - below

    @property
    def is_inverted(self) -> bool:
        """True if the smallest value is white (MONOCHROME1)."""
        return self.photometric == "MONOCHROME1"

    @property
    def is_ybr(self) -> bool:
        """True if colours are stated as luminance and chrominance (YBR)."""
        return self.photometric in _YBR


def read_attributes(elements: Elements, max_pixels: int) -> PixelAttributes:
    """Read and check the attributes of the pixels.

    Args:
        elements: Elements of the data set.
        max_pixels: Limit of rows times columns.

    Raises:
        ImageTooLargeError: The image has too many pixels or frames.
        ImageError: The image has no pixels, or none of a form that is read.
    """
    columns, rows = _whole(elements, Tag.COLUMNS), _whole(elements, Tag.ROWS)
    check_size(columns, rows, max_pixels)
    frames = max(1, _whole(elements, Tag.NUMBER_OF_FRAMES, 1, form="text"))
    if frames > MOST_FRAMES:
        raise ImageTooLargeError(f"The DICOM image has over {MOST_FRAMES:,} frames, the limit.")
    samples = _whole(elements, Tag.SAMPLES_PER_PIXEL, 1)
    photometric = elements.text(Tag.PHOTOMETRIC_INTERPRETATION).upper() or (
        "MONOCHROME2" if samples == 1 else "RGB"
    )
    allocated = _whole(elements, Tag.BITS_ALLOCATED, 8)
    stored = _whole(elements, Tag.BITS_STORED, allocated)
    high = _whole(elements, Tag.HIGH_BIT, stored - 1)
    _check_photometric(photometric, samples, stored)
    if allocated not in _ALLOCATED or not 1 <= stored <= allocated or not stored - 1 <= high < allocated:
        raise ImageError(
            f"The DICOM image has {stored} bits up to number {high} in cells of {allocated}, "
            "which cannot be read; save it with 8 or 16 bits allocated."
        )
    return PixelAttributes(
        columns,
        rows,
        frames,
        samples,
        photometric,
        allocated,
        stored,
        high,
        signed=_whole(elements, Tag.PIXEL_REPRESENTATION, 0) == 1,
        planar=samples > 1 and _whole(elements, Tag.PLANAR_CONFIGURATION, 0) == 1,
    )


def _check_photometric(photometric: str, samples: int, stored: int) -> None:
    needed = 1 if photometric in _GREY or photometric == PALETTE else _COLOUR_SAMPLES
    if needed == _COLOUR_SAMPLES and photometric not in _COLOURS:
        raise ImageError(
            "The DICOM image has a photometric interpretation that cannot be read; save it in grey or RGB."
        )
    if samples != needed:
        raise ImageError(
            f"The DICOM image says that {photometric} has {samples} samples a pixel, where it has {needed}."
        )
    if (photometric in _YBR and stored != 8) or (photometric == PALETTE and stored > 16):
        raise ImageError(f"The DICOM image has {photometric} of {stored} bits, which cannot be read.")


def _whole(elements: Elements, tag: Tag, otherwise: int = 0, form: str = "H") -> int:
    numbers = elements.numbers(tag, form)
    return int(numbers[0]) if numbers else otherwise
