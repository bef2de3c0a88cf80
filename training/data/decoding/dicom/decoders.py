"""Decoding of compressed frames whose headers were judged, by imagecodecs."""

from functools import partial
from typing import Any, Final

from numpy.typing import NDArray

from training.data.decoding.codecs.jpeg import EOI, FRAMES, SOS, segments
from training.data.decoding.dicom.codestreams import Codestream
from training.errors import ImageError, ImageTooLargeError

Samples = NDArray[Any]

_MOST_SCANS: Final = 100
_LOSSY_BITS: Final = (8, 12)
# libjpeg's words.
_OUT_OF_MEMORY: Final = "Insufficient memory"


def decode_codestream(content: bytes, header: Codestream, *, to_rgb: bool) -> Samples:
    """Decode a frame to unsigned cells (H, W, C); signed samples of JPEG 2000 are in two's complement.

    Args:
        content: The frame.
        header: Its header.
        to_rgb: Whether luminance and chrominance of lossy JPEG become RGB, unless its markers say that it has
            RGB. Other colours are given as they are stored.

    Raises:
        ImageTooLargeError: It has more scans than any program writes.
        ImageError: It is damaged, or lossy JPEG of neither 8 nor 12 bits.
        MemoryError: The process may not have as much memory as decoding takes.
    """
    # The package takes longer to load than most images to decode.
    import imagecodecs

    if header.kind == "JPEG 2000":
        decode = imagecodecs.jpeg2k_decode
    elif header.kind == "JPEG-LS":
        decode = imagecodecs.jpegls_decode
    else:
        if header.kind == "JPEG" and header.precision not in _LOSSY_BITS:
            raise ImageError(
                f"The DICOM image is coded by lossy JPEG of {header.precision} bits a sample, which "
                "cannot be read; save it uncompressed or in JPEG 2000."
            )
        _check_scans(content, header.kind)
        as_stored = header.components > 1 and not (to_rgb and header.kind == "JPEG")
        colours = {"colorspace": "RGB", "outcolorspace": "RGB"} if as_stored else {}
        decode = partial(imagecodecs.jpeg8_decode, **colours)
    try:
        samples: Samples = decode(content)
    except (RuntimeError, ValueError) as error:
        if _OUT_OF_MEMORY in str(error):
            raise MemoryError from error
        raise ImageError(f"The DICOM image is damaged: its {header.kind} frame cannot be decoded.") from error
    shape = header.height, header.width, header.components
    if samples.ndim == len(shape) and samples.shape != shape:
        # Colours of JPEG-LS may be coded one after the other.
        samples = samples.transpose(1, 2, 0)
    return samples.view(f"u{samples.itemsize}").reshape(shape)


def _check_scans(content: bytes, kind: str) -> None:
    """Refuse a frame of JPEG that lacks its end or a colour, which libjpeg would fill with grey."""

    def error(reason: str) -> ImageError:
        return ImageError(f"The DICOM image is damaged: its frame is {kind}, and {reason}.")

    stated, scanned = set[int](), set[int]()
    scans, marker = 0, 0
    for marker, payload, _, _ in segments(content, error):
        if marker in FRAMES:
            stated.update(payload[6::3])
        elif marker == SOS:
            scans += 1
            scanned.update(payload[1 : len(payload) - 3 : 2])
    if scans > _MOST_SCANS:
        raise ImageTooLargeError(f"The DICOM image has over {_MOST_SCANS} scans; save it with fewer.")
    if marker != EOI:
        raise error("its end is missing")
    if scanned != stated:
        raise error("not every colour has a scan")
