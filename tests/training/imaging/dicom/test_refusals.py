"""DICOM images that are refused, each with its reason."""

from collections.abc import Callable

import pytest
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.uid import (
    MPEG2MPML,
    UID,
    JPEGBaseline8Bit,
    JPEGExtended12Bit,
    JPEGLossless,
)

from tests.dicom_forms import file_of, with_frames
from tests.image_files import encoded
from tests.training.imaging.dicom.pictures import made, ramp
from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.images import ImageLimits, decode_whole, read_header


def refusal(content: bytes, limits: ImageLimits | None = None) -> str:
    with pytest.raises(ImageError) as caught:
        decode_whole(content, limits)
    return str(caught.value)


@pytest.mark.parametrize(
    ("syntax", "name"),
    [
        (MPEG2MPML, "MPEG2 Main Profile / Main Level"),
        (UID("1.2.840.10008.1.2.4.94"), "JPIP Referenced"),
        (UID("1.2.3.4"), "1.2.3.4"),
    ],
)
def test_a_syntax_that_nothing_decodes_is_refused_by_its_name(syntax: UID, name: str) -> None:
    content = file_of(with_frames(made(), syntax, [bytes(64)]))
    assert refusal(content) == (
        f"The DICOM image has the transfer syntax {name}, which cannot be read; save it uncompressed or in "
        "JPEG 2000."
    )


def test_lossy_jpeg_of_another_depth_is_refused_with_the_reason() -> None:
    jpeg = bytearray(encoded(Image.new("L", (64, 64)), "JPEG"))
    place = jpeg.index(b"\xff\xc0")
    jpeg[place + 1], jpeg[place + 4] = 0xC1, 10
    said = refusal(file_of(with_frames(made(), JPEGExtended12Bit, [bytes(jpeg)])))
    assert said.startswith("The DICOM image is coded by lossy JPEG of 10 bits a sample, which cannot be read")


def without(image: Dataset, *keywords: str) -> Dataset:
    for keyword in keywords:
        delattr(image, keyword)
    return image


def report() -> Dataset:
    image = without(made(), "PixelData")
    image.SOPClassUID = "1.2.840.10008.5.1.4.1.1.88.11"
    return image


def floats() -> Dataset:
    image = without(made(), "PixelData")
    image.FloatPixelData = ramp("f4").tobytes()
    return image


_REFUSED: dict[str, Callable[[], Dataset]] = {
    "has no pixels: it is Basic Text SR Storage.": report,
    "has pixels of floating point": floats,
    "The image is 64 x 0 pixels": lambda: made(Rows=0),
    "has a photometric interpretation that cannot be read": lambda: made(photometric="HSV"),
    "says that RGB has 1 samples a pixel, where it has 3": lambda: made(photometric="RGB"),
    "says that MONOCHROME2 has 3 samples": lambda: made(SamplesPerPixel=3),
    "has 17 bits up to number 16 in cells of 16": lambda: made(BitsStored=17, HighBit=16),
    "has 12 bits up to number 11 in cells of 12": lambda: made(BitsAllocated=12),
    "has 12 bits up to number 3 in cells of 16": lambda: made(HighBit=3),
    "9 x 64 x 64 pixels take 73,728 bytes; it has 8,192": lambda: made(NumberOfFrames="9"),
    "1 x 64 x 640 pixels take 81,920 bytes; it has 8,192": lambda: made(Rows=640),
    "has a palette in segments or none": lambda: made(photometric="PALETTE COLOR"),
}


@pytest.mark.parametrize("reason", _REFUSED)
def test_what_cannot_be_read_is_refused_with_the_reason(reason: str) -> None:
    assert reason in refusal(file_of(_REFUSED[reason]()))


def test_sizes_are_judged_before_anything_is_decoded() -> None:
    huge = file_of(made(Rows=65_535, Columns=65_535))
    assert isinstance(_error(huge), ImageTooLargeError)
    assert "4,294.836225 megapixels; the limit is 50 megapixels" in refusal(huge)
    many = file_of(made(NumberOfFrames="2000000"))
    assert isinstance(_error(many), ImageTooLargeError)
    assert refusal(many) == "The DICOM image has over 20,000 frames, the limit."
    with pytest.raises(ImageTooLargeError):
        read_header(huge)


def _error(content: bytes) -> BaseException:
    with pytest.raises(ImageError) as caught:
        read_header(content)
    return caught.value


def test_a_codestream_of_another_size_is_not_decoded() -> None:
    jpeg = encoded(Image.new("L", (5000, 5000)), "JPEG")
    said = refusal(file_of(with_frames(made(), JPEGBaseline8Bit, [jpeg])))
    assert "its frame has 5000 x 5000 pixels of 1 samples, where 64 x 64 of 1 are stated" in said
    said = refusal(file_of(with_frames(made(), JPEGLossless, [jpeg])))
    assert "its frame is JPEG, where JPEG lossless is stated" in said
