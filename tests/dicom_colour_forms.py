"""The matrix of DICOM images in colour, beside the colours that are to be seen."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from PIL import Image
from pydicom.uid import (
    UID,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    JPEGBaseline8Bit,
    JPEGLossless,
    JPEGLSLossless,
    RLELossless,
)

from tests.dicom_forms import COLUMNS, LOSSY, NATIVE, ROWS, SYNTAXES, Array, data_set, film, in_syntax, padded


@dataclass(frozen=True)
class ColourForm:
    """One form of a colour image.

    Attributes:
        name: Of the form.
        make: Returns the bytes of the file.
        tolerance: Most that a level may differ.
    """

    name: str
    make: Callable[[], bytes] = field(repr=False)
    tolerance: float = 1.0


def colours() -> Array:
    """Return smooth colours (H, W, 3) of 8 bits."""
    y, x = np.mgrid[0:ROWS, 0:COLUMNS] / np.array([ROWS, COLUMNS]).reshape(2, 1, 1)
    planes = (0.1 + 0.8 * film(), 0.2 + 0.6 * x, 0.9 - 0.7 * y)
    pixels: Array = np.rint(255 * np.stack(planes, axis=-1)).astype(np.uint8)
    return pixels


def ybr(rgb: Array) -> Array:
    """Return luminance and chrominance (PS3.3, section C.7.6.3.1.2)."""
    weights = np.array([[0.299, 0.587, 0.114], [-0.1687, -0.3313, 0.5], [0.5, -0.4187, -0.0813]])
    pixels: Array = np.rint(rgb @ weights.T + (0, 128, 128)).clip(0, 255).astype(np.uint8)
    return pixels


def _rgb(syntax: UID, *, planar: bool = False, photometric: str = "RGB") -> bytes:
    pixels = colours() if photometric == "RGB" else ybr(colours())
    made = data_set(pixels, photometric=photometric, stored=8)
    if planar:
        made.PixelData = padded(pixels.transpose(2, 0, 1).tobytes())
        made.PlanarConfiguration = 1
    return in_syntax(made, syntax)


def _halved() -> bytes:
    pixels = ybr(colours())
    pairs = pixels.reshape(ROWS, COLUMNS // 2, 2, 3)
    shared = pairs[..., 1:].mean(axis=2)
    cells = np.concatenate((pairs[..., 0], np.rint(shared)), axis=-1).astype(np.uint8)
    made = data_set(pixels, photometric="YBR_FULL_422", stored=8)
    made.PixelData = cells.tobytes()
    return in_syntax(made, ExplicitVRLittleEndian)


def _words() -> bytes:
    made = data_set(colours(), photometric="RGB", stored=8)
    made["PixelData"].VR = "OW"
    return in_syntax(made, ExplicitVRBigEndian)


def _palette(bits: int, syntax: UID = ExplicitVRLittleEndian, *, entry_bits: int = 16) -> bytes:
    """An image of a palette that has the colours of the picture, coarser."""
    image = Image.fromarray(colours()).quantize(200)
    palette = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
    places = np.asarray(image).astype(f"u{bits // 8}")
    made = data_set(places, photometric="PALETTE COLOR", stored=bits)
    for name, channel in zip(("Red", "Green", "Blue"), palette.T, strict=True):
        entries = channel.astype("<u2") * 257 if entry_bits == 16 else channel.astype("<u2")
        made.add_new(f"{name}PaletteColorLookupTableDescriptor", "US", [len(channel), 0, entry_bits])
        made.add_new(f"{name}PaletteColorLookupTableData", "OW", entries.tobytes())
    return in_syntax(made, syntax)


def _colour_forms() -> Iterator[ColourForm]:
    for syntax in (*SYNTAXES, *LOSSY):
        name = syntax.name.split(",")[0]
        yield ColourForm(f"RGB {name}", partial(_rgb, syntax), 12.0 if syntax in LOSSY else 1.0)
    for syntax in NATIVE:
        yield ColourForm(f"RGB in planes {syntax.name}", partial(_rgb, syntax, planar=True))
    for syntax in (ExplicitVRLittleEndian, RLELossless, JPEGLSLossless, JPEGLossless):
        make = partial(_rgb, syntax, photometric="YBR_FULL")
        yield ColourForm(f"YBR_FULL {syntax.name.split(',')[0]}", make, 3.0)
    yield ColourForm(
        "YBR_FULL in planes", partial(_rgb, ExplicitVRLittleEndian, planar=True, photometric="YBR_FULL"), 3.0
    )
    yield ColourForm("YBR_FULL JPEG", partial(_rgb, JPEGBaseline8Bit, photometric="YBR_FULL"), 12.0)
    yield ColourForm("YBR_FULL_422 JPEG", partial(_rgb, JPEGBaseline8Bit, photometric="YBR_FULL_422"), 12.0)
    yield ColourForm("YBR_FULL_422", _halved, 8.0)
    yield ColourForm(
        "YBR_FULL_422 that is not shared",
        partial(_rgb, ExplicitVRLittleEndian, photometric="YBR_FULL_422"),
        3.0,
    )
    for bits in (8, 16):
        yield ColourForm(f"palette of {bits} bits", partial(_palette, bits), 24.0)
    yield ColourForm("palette in runs", partial(_palette, 8, RLELossless), 24.0)
    yield ColourForm("palette of 8-bit colours", partial(_palette, 8, entry_bits=8), 24.0)
    yield ColourForm("palette big-endian", partial(_palette, 16, ExplicitVRBigEndian), 24.0)
    yield ColourForm("words big-endian", _words, 1.0)


COLOUR_FORMS: Final = tuple(_colour_forms())
