"""The DICOM rows of the matrix of image files."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom.uid import (
    UID,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

from tests.dicom_forms import data_set, file_of, in_syntax
from tests.image_form import ImageForm
from tests.image_quadrants import (
    COLOURS,
    GREYS,
    LOSSY,
    grey,
    levels,
)


def dicoms() -> list[ImageForm]:
    def row(
        name: str, samples: NDArray[Any], bits: int, syntax: UID = ExplicitVRLittleEndian, **attributes: Any
    ) -> ImageForm:
        photometric = attributes.pop("photometric", "MONOCHROME2")

        def make() -> bytes:
            pixels = samples[..., 0] if samples.shape[-1] == 1 else samples
            return in_syntax(data_set(pixels, photometric=photometric, stored=bits, **attributes), syntax)

        quadrants = COLOURS if samples.shape[-1] == 3 else GREYS
        return ImageForm(f"dicom {name}", make, quadrants, LOSSY if syntax == JPEGBaseline8Bit else 1)

    def framed() -> bytes:
        frames = np.stack((grey(4095, "u2"), np.zeros_like(grey(4095, "u2"))))[..., 0]
        image = data_set(frames[0], photometric="MONOCHROME2", stored=12, NumberOfFrames="2")
        image.PixelData = frames.tobytes()
        return file_of(image)

    deep, small, colour = grey(4095, "u2"), grey(), levels(COLOURS)
    window: dict[str, Any] = {
        "WindowCenter": "1.5",
        "WindowWidth": "4096",
        "RescaleSlope": "1",
        "RescaleIntercept": "-2046",
    }
    negative: dict[str, Any] = {"photometric": "MONOCHROME1"}
    return [
        row("grey 8", small, 8),
        row("grey 12", deep, 12),
        row("grey 16 signed", grey(32_767, "i2", smallest=-32_768), 16, ImplicitVRLittleEndian),
        row("grey 12 with a window", deep, 12, **window),
        row("grey 12 of MONOCHROME1", (4095 - deep).astype("u2"), 12, **negative),
        row("grey 12 big-endian", deep, 12, ExplicitVRBigEndian),
        row("grey 12 deflated", deep, 12, DeflatedExplicitVRLittleEndian),
        row("grey 12 in runs", deep, 12, RLELossless),
        row("grey 8 in JPEG", small, 8, JPEGBaseline8Bit),
        row(
            "grey 12 in lossless JPEG of MONOCHROME1",
            (4095 - deep).astype("u2"),
            12,
            JPEGLosslessSV1,
            **negative,
        ),
        row("grey 12 in JPEG-LS", deep, 12, JPEGLSLossless),
        row("grey 12 in JPEG 2000 with a window", deep, 12, JPEG2000Lossless, **window),
        row("rgb 8", colour, 8, photometric="RGB"),
        row("rgb 16", levels(COLOURS, 4095, "u2"), 16, photometric="RGB"),
        row("rgb 8 in runs", colour, 8, RLELossless, photometric="RGB"),
        ImageForm("dicom frames", framed, GREYS),
    ]
