"""Samples of a frame from its native or compressed bytes, by transfer syntax (PS3.5, sections 8 and 10).

imagecodecs decodes compressed frames, whose headers are judged before.
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.codecs.jpeg import EOI, FRAMES, SOS, segments
from training.imaging.dicom.attributes import PixelAttributes
from training.imaging.dicom.codestreams import Codestream, read_codestream
from training.imaging.dicom.file import NATIVE, DicomFile
from training.imaging.dicom.frames import NativeFrame, compressed_frame, native_frame

Samples = NDArray[Any]

_RLE: Final = "1.2.840.10008.1.2.5"
# Retired processes of JPEG are not used for images that are kept.
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51"), "JPEG"),
    **dict.fromkeys(("1.2.840.10008.1.2.4.57", "1.2.840.10008.1.2.4.70"), "JPEG lossless"),
    **dict.fromkeys(("1.2.840.10008.1.2.4.80", "1.2.840.10008.1.2.4.81"), "JPEG-LS"),
    **{f"1.2.840.10008.1.2.4.{number}": "JPEG 2000" for number in (90, 91, 201, 202, 203)},
}
_UID: Final = re.compile(r"[0-9.]{1,64}")
_RLE_HEADER: Final = struct.Struct("<16I")
_MOST_SCANS: Final = 100
_LOSSY_BITS: Final = (8, 12)
# libjpeg's words.
_OUT_OF_MEMORY: Final = "Insufficient memory"


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """The samples of a frame.

    Attributes:
        cells: Stored value of each sample (H, W, C), unsigned.
        bits: Bits of a cell that belong to the sample.
        shift: Bits below them.
        ybr: Whether colours are one of luminance and two of chrominance.
        signed: Whether samples are in two's complement.
    """

    cells: Samples
    bits: int
    shift: int
    ybr: bool
    signed: bool = False


def check_syntax(transfer_syntax: str) -> None:
    """Refuse a transfer syntax that nothing here decodes.

    Raises:
        ImageError: It is one of these; its name is said.
    """
    if transfer_syntax not in NATIVE and transfer_syntax != _RLE and transfer_syntax not in _KINDS:
        raise ImageError(
            f"The DICOM image has the transfer syntax {uid_name(transfer_syntax)}, which cannot be read; "
            "save it uncompressed or in JPEG 2000."
        )


def uid_name(uid: str) -> str:
    """Return the name of a UID of the standard; itself if it has none, and no word that is no UID."""
    if not _UID.fullmatch(uid):
        return "unknown"
    # The package takes longer to load than most images to decode.
    from pydicom.config import IGNORE
    from pydicom.uid import UID

    return str(UID(uid[:64], IGNORE).name)


def decode_frame(file: DicomFile, attributes: PixelAttributes, frame: int) -> DecodedFrame:
    """Decode a frame.

    Raises:
        ImageTooLargeError: It has more parts than any program writes.
        ImageError: It is damaged, or cannot be decoded.
        Exception: As the decoders raise it for damaged frames.
    """
    shift, signed = attributes.high + 1 - attributes.stored, attributes.signed
    if file.transfer_syntax in NATIVE:
        native = native_frame(file.elements, attributes, frame)
        cells = _unpack(native, attributes, file)
        return DecodedFrame(cells, attributes.stored, shift, attributes.is_ybr, signed)
    content = compressed_frame(file.elements, attributes, frame)
    if file.transfer_syntax == _RLE:
        cells = _unpack_runs(content, attributes)
        return DecodedFrame(cells, attributes.stored, shift, attributes.is_ybr, signed)
    header = read_codestream(content)
    _check_header(header, attributes, _KINDS[file.transfer_syntax])
    bits = min(attributes.stored, header.precision)
    shift = max(0, min(header.precision, attributes.high + 1) - attributes.stored)
    # A frame without the bit of the sign has no negative samples, unless it says so itself.
    signed = signed and (header.signed or header.precision >= attributes.stored)
    # JPEG 2000 names its transform in the frame, and its decoder undoes it.
    named = bool(header.colours) and header.kind in ("JPEG", "JPEG 2000")
    cells = _decode_codestream(content, header, to_rgb=named or attributes.is_ybr)
    ybr = attributes.is_ybr and not named and header.kind != "JPEG"
    return DecodedFrame(cells, bits, shift, ybr, signed)


def _check_header(header: Codestream, attributes: PixelAttributes, kind: str) -> None:
    """Compare a codestream with what the attributes say of it."""
    if header.kind != kind:
        raise ImageError(f"The DICOM image is damaged: its frame is {header.kind}, where {kind} is stated.")
    stated = (attributes.columns, attributes.rows, attributes.samples)
    found = (header.width, header.height, header.components)
    if found != stated:
        raise ImageError(
            "The DICOM image is damaged: its frame has {} x {} pixels of {} samples, where {} x {} of {} are "
            "stated.".format(*found, *stated)
        )
    if not 1 <= header.precision <= attributes.allocated:
        raise ImageError(
            f"The DICOM image is damaged: its frame has {header.precision} bits a sample, and "
            f"{attributes.allocated} are allocated."
        )


def _decode_codestream(content: bytes, header: Codestream, *, to_rgb: bool) -> Samples:
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

    decode: Callable[[bytes], Samples]
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
        space = "RGB" if as_stored else None
        decode = partial(imagecodecs.jpeg8_decode, colorspace=space, outcolorspace=space)
    try:
        samples = decode(content)
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


def _unpack(native: NativeFrame, attributes: PixelAttributes, file: DicomFile) -> Samples:
    """Return the cells (H, W, C) of a native frame."""
    rows, columns, samples = attributes.rows, attributes.columns, attributes.samples
    if attributes.allocated == 1:
        bits = np.unpackbits(np.frombuffer(native.content, np.uint8), bitorder="little")
        cells = bits[native.skipped : native.skipped + rows * columns * samples]
    else:
        order = ">" if file.elements.walk.big else "<"
        cells = np.frombuffer(native.content, f"{order}u{attributes.allocated // 8}")
    if native.halved:
        if columns % 2:
            raise ImageError("The DICOM image is damaged: pixels share chrominance in rows of an odd number.")
        pairs = cells.reshape(-1, 4)
        shared = np.repeat(pairs[:, 2:], 2, axis=0)
        return np.concatenate((pairs[:, :2].reshape(-1, 1), shared), axis=1).reshape(rows, columns, 3)
    if attributes.planar:
        return cells.reshape(samples, rows, columns).transpose(1, 2, 0)
    return cells.reshape(rows, columns, samples)


def _unpack_runs(content: bytes, attributes: PixelAttributes) -> Samples:
    """Return the cells (H, W, C) of a frame in run-length encoding (PS3.5, annex G)."""
    rows, columns, samples = attributes.rows, attributes.columns, attributes.samples
    size = attributes.allocated // 8
    if len(content) < _RLE_HEADER.size or not size:
        raise ImageError("The DICOM image is damaged: its runs have no header.")
    count, *offsets = _RLE_HEADER.unpack_from(content)
    offsets = [*offsets[: samples * size], len(content)]
    if count != samples * size or offsets != sorted(offsets) or offsets[0] < _RLE_HEADER.size:
        raise ImageError(
            f"The DICOM image is damaged: it has {count:,} segments of runs, where {samples * size} belong."
        )
    planes = []
    for start, end in pairwise(offsets):
        # The runs are those of PackBits, and may go on in the next row.
        try:
            line = Image.frombytes("L", (rows * columns, 1), content[start:end], "packbits", "L")
        except ValueError:
            raise ImageError("The DICOM image is damaged: its runs end too soon.") from None
        planes.append(np.asarray(line).reshape(rows, columns))
    # The most significant bytes of each sample come first.
    cells = np.stack(planes, axis=-1).reshape(rows, columns, samples, size)
    return np.ascontiguousarray(cells).view(f">u{size}")[..., 0]
