"""Decoders of compressed frames whose headers were judged: Pillow, GDCM and OpenJPEG."""

import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL.JpegImagePlugin import JpegImageFile

from training.data.decoding.dicom.attributes import PixelAttributes
from training.data.decoding.dicom.codestreams import Codestream
from training.data.decoding.dicom.lossless import rewrite_lossless
from training.data.decoding.structure import check_structure
from training.errors import ImageError, ImageTooLargeError

Samples = NDArray[Any]

_START_OF_SCAN: Final = b"\xff\xda"
_MOST_SCANS: Final = 100
_JPEG_BITS: Final = 8
# Copies of coded bytes and of samples that GDCM and pydicom hold at once, measured at 49 megapixels.
_COPIES: Final = 7


def decode_jpeg(content: bytes, header: Codestream, attributes: PixelAttributes) -> Samples:
    """Decode a frame of lossy JPEG to grey values or RGB (H, W, C).

    Raises:
        ImageTooLargeError: It has more parts than any program writes.
        ImageError: Its samples have more than 8 bits.
        Exception: As Pillow raises it for damaged frames.
    """
    if header.precision != _JPEG_BITS:
        raise ImageError(
            f"The DICOM image is coded by lossy JPEG of {header.precision} bits a sample (JPEG Extended), "
            "which cannot be read; save it uncompressed or in JPEG 2000."
        )
    check_structure(content, "JPEG")
    if content.count(_START_OF_SCAN) > _MOST_SCANS:
        raise ImageTooLargeError(f"The DICOM image has over {_MOST_SCANS} scans; save it with fewer.")
    image = JpegImageFile(io.BytesIO(content))
    as_it_is = header.components > 1 and not header.colours and not attributes.is_ybr
    if as_it_is:
        # Pillow takes a stream without a marker for YCbCr; a draft in YCbCr keeps it from converting to RGB.
        image.draft("YCbCr", image.size)
    image.load()
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)


def decode_lossless(content: bytes, header: Codestream, transfer_syntax: str) -> Samples:
    """Decode a frame of lossless JPEG or JPEG-LS to what is stored (H, W, C).

    Raises:
        ImageTooLargeError: The process may not have the memory that decoding takes.
        ImageError: It is damaged.
    """
    # Importing GDCM takes longer than decoding most images.
    from pydicom.encaps import encapsulate
    from pydicom.pixels.decoders.base import get_decoder

    if header.kind == "JPEG lossless":
        content = rewrite_lossless(content, header)
    _check_memory(len(content), header)
    options: dict[str, Any] = {
        "rows": header.height,
        "columns": header.width,
        "number_of_frames": 1,
        "samples_per_pixel": header.components,
        "planar_configuration": 0,
        "photometric_interpretation": "MONOCHROME2" if header.components == 1 else "RGB",
        "bits_allocated": 8 if header.precision <= _JPEG_BITS else 16,
        "bits_stored": header.precision,
        "pixel_representation": 0,
        "pixel_keyword": "PixelData",
    }
    decoder, fragments = get_decoder(transfer_syntax), encapsulate([content], has_bot=False)
    try:
        pixels, _ = decoder.as_array(fragments, index=0, raw=True, decoding_plugin="gdcm", **options)
    except RuntimeError as error:
        raise ImageError(f"The DICOM image is damaged: its {header.kind} frame cannot be decoded.") from error
    return pixels.reshape(header.height, header.width, header.components)


def _check_memory(coded: int, header: Codestream) -> None:
    """Refuse a frame whose decoding takes more memory than is left: GDCM ends the whole process then.

    Raises:
        ImageTooLargeError: It does.
    """
    cell = 1 if header.precision <= _JPEG_BITS else 2
    needed = _COPIES * (coded + header.width * header.height * header.components * cell)
    try:
        np.empty(needed, np.uint8)
    except MemoryError:
        raise ImageTooLargeError(
            f"The DICOM image is coded by {header.kind}, and decoding it takes up to {needed / 1e6:,.0f} MB "
            "of memory, more than this process may have; save it uncompressed or in JPEG 2000."
        ) from None


def decode_j2k(content: bytes) -> Samples:
    """Decode a frame of JPEG 2000, also of high throughput, to what is stored (H, W, C).

    Raises:
        Exception: As the decoder raises it for damaged frames.
    """
    from openjpeg.utils import decode

    pixels = decode(content)
    # Cells are unsigned: signed samples stay in two's complement.
    cells = pixels.view(pixels.dtype.str.replace("i", "u"))
    return cells.reshape(*cells.shape[:2], -1)
