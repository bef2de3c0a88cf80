"""Small DICOM images of tests, and their grey levels."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.uid import UID, ExplicitVRLittleEndian, RLELossless

from tests.dicom_forms import data_set, film
from training.imaging.images import decode_whole

# Films that reach neither end of their bits.
EIGHT: Final = np.rint(film() * 150 + 40).astype(np.uint8)
TWELVE: Final = np.rint(film(2) * 2400 + 800).astype(np.uint16)


def grey(content: bytes, **options: Any) -> NDArray[np.uint8]:
    pixels = np.asarray(decode_whole(content, **options).pixels)
    assert (pixels == pixels[..., :1]).all()
    return pixels[..., 0]


def ramp(dtype: str = "u2") -> NDArray[Any]:
    """Samples 0 to 4095 in 64 rows and columns."""
    return np.arange(4096).reshape(64, 64).astype(dtype)


def made(pixels: NDArray[Any] | None = None, stored: int = 12, **attributes: Any) -> Dataset:
    given = {"photometric": "MONOCHROME2", **attributes}
    return data_set(ramp() if pixels is None else pixels, stored=stored, **given)


def several(count: int, syntax: UID = ExplicitVRLittleEndian) -> Dataset:
    """An image of frames that have one grey value each, but for a corner."""
    frames = np.stack([np.full((16, 16), 10 * (number + 1), np.uint8) for number in range(count)])
    frames[:, 0, 0] = 255
    image = data_set(frames[0], photometric="MONOCHROME2", stored=8, NumberOfFrames=str(count))
    image.PixelData = frames.tobytes()
    if syntax == RLELossless:
        image.compress(syntax, generate_instance_uid=False)
    return image
