"""The pixels of a DICOM image: their layout, judged first (PS3.3, C.7.6.3), and the samples of a frame.

Frames are parts of native pixels, or fragments in the form of their transfer syntax (PS3.5, sections 8, 10
and A.4), which imagecodecs decodes.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.dicom.codestreams import Codestream, jpeg_error, read_codestream
from training.imaging.dicom.elements import NATIVE, DicomFile, Elements, Tag
from training.imaging.formats import check_size
from training.imaging.jpeg import check_scans

Samples = NDArray[Any]

# A recording of five minutes, or all of an enhanced scan, has fewer; the fragments of each are looked up.
MOST_FRAMES: Final = 20_000
_GREY: Final = frozenset({"MONOCHROME1", "MONOCHROME2"})
PALETTE: Final = "PALETTE COLOR"
YBR_422: Final = "YBR_FULL_422"
_YBR: Final = frozenset({"YBR_FULL", YBR_422})
# As JPEG 2000 names its own transforms, which its decoder undoes.
_COLOURS: Final = frozenset({"RGB", "YBR_ICT", "YBR_RCT", *_YBR})
_ALLOCATED: Final = frozenset({1, 8, 16, 32})
_COLOUR_SAMPLES: Final = 3
RLE: Final = "1.2.840.10008.1.2.5"
# Retired processes of JPEG are not used for images that are kept.
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51"), "JPEG"),
    **dict.fromkeys(("1.2.840.10008.1.2.4.57", "1.2.840.10008.1.2.4.70"), "JPEG lossless"),
    **dict.fromkeys(("1.2.840.10008.1.2.4.80", "1.2.840.10008.1.2.4.81"), "JPEG-LS"),
    **{f"1.2.840.10008.1.2.4.{number}": "JPEG 2000" for number in (90, 91, 201, 202, 203)},
}
_STARTS: Final = (b"\xff\xd8\xff", b"\xff\x4f\xff\x51")
_UID: Final = re.compile(r"[0-9.]{1,64}")
_RLE_HEADER: Final = struct.Struct("<16I")
_MOST_SCANS: Final = 100
_LOSSY_BITS: Final = (8, 12)
# libjpeg's words.
_OUT_OF_MEMORY: Final = "Insufficient memory"


@dataclass(frozen=True, slots=True)
class PixelAttributes:
    """Layout of the samples of an image.

    Attributes:
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
    def is_ybr(self) -> bool:
        """True if colours are stated as luminance and chrominance (YBR)."""
        return self.photometric in _YBR

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest sample that there can be."""
        below = 1 << self.stored - 1 if self.signed else 0
        return -below, (1 << self.stored) - 1 - below


@dataclass(frozen=True, slots=True)
class DecodedFrame:
    """The samples of a frame.

    Attributes:
        cells: Stored value of each sample (H, W, C), unsigned.
        bits: Bits of a cell that belong to the sample.
        shift: Bits below them.
        ybr: Whether colours are luminance and chrominance.
        signed: Whether samples are in two's complement.
    """

    cells: Samples
    bits: int
    shift: int
    ybr: bool
    signed: bool = False


def read_attributes(elements: Elements, max_pixels: int) -> PixelAttributes:
    """Read and check the layout of the pixels.

    Raises:
        ImageTooLargeError: The image has too many frames, or more rows times columns than the limit.
        ImageError: The image has no pixels, or none of a form that is read.
    """

    def whole(tag: Tag, otherwise: int = 0, form: str = "H") -> int:
        return int(next(iter(elements.numbers(tag, form)), otherwise))

    columns, rows = whole(Tag.COLUMNS), whole(Tag.ROWS)
    check_size(columns, rows, max_pixels)
    frames = max(1, whole(Tag.NUMBER_OF_FRAMES, 1, form="text"))
    if frames > MOST_FRAMES:
        raise ImageTooLargeError(f"The DICOM image has over {MOST_FRAMES:,} frames, the limit.")
    samples = whole(Tag.SAMPLES_PER_PIXEL, 1)
    photometric = elements.text(Tag.PHOTOMETRIC_INTERPRETATION).upper() or (
        "MONOCHROME2" if samples == 1 else "RGB"
    )
    allocated = whole(Tag.BITS_ALLOCATED, 8)
    stored = whole(Tag.BITS_STORED, allocated)
    high = whole(Tag.HIGH_BIT, stored - 1)
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
    if allocated not in _ALLOCATED or not 1 <= stored <= allocated or not stored - 1 <= high < allocated:
        raise ImageError(
            f"The DICOM image has {stored} bits up to number {high} in cells of {allocated}, "
            "which cannot be read; save it with 8 or 16 bits allocated."
        )
    signed = whole(Tag.PIXEL_REPRESENTATION) == 1
    planar = samples > 1 and whole(Tag.PLANAR_CONFIGURATION) == 1
    layout = columns, rows, frames, samples, photometric, allocated, stored, high
    return PixelAttributes(*layout, signed=signed, planar=planar)


def check_syntax(transfer_syntax: str) -> None:
    """Raise an ImageError with the name of a transfer syntax that cannot be decoded."""
    if transfer_syntax not in NATIVE and transfer_syntax != RLE and transfer_syntax not in _KINDS:
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
    if file.transfer_syntax in NATIVE or file.transfer_syntax == RLE:
        native = file.transfer_syntax in NATIVE
        cells = (_native_cells if native else _run_cells)(file.elements, attributes, frame)
        return DecodedFrame(cells, attributes.stored, shift, attributes.is_ybr, signed)
    content = compressed_frame(file.elements, attributes, frame)
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
    actual = (header.width, header.height, header.components)
    if actual != stated:
        raise ImageError(
            "The DICOM image is damaged: its frame has {} x {} pixels of {} samples, where {} x {} of {} are "
            "stated.".format(*actual, *stated)
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
        to_rgb: Whether luminance and chrominance of lossy JPEG become RGB, unless its markers state RGB.
            Other colours stay as they are stored.

    Raises:
        ImageTooLargeError: It has more scans than any program writes.
        ImageError: It is damaged, or lossy JPEG of neither 8 nor 12 bits.
        MemoryError: The process may not have as much memory as decoding takes.
    """
    # The package takes longer to load than most images to decode.
    import imagecodecs

    lossy = header.kind == "JPEG"
    if lossy and header.precision not in _LOSSY_BITS:
        raise ImageError(
            f"The DICOM image is coded by lossy JPEG of {header.precision} bits a sample, which "
            "cannot be read; save it uncompressed or in JPEG 2000."
        )
    is_jpeg = lossy or header.kind == "JPEG lossless"
    if is_jpeg and check_scans(content, jpeg_error) > _MOST_SCANS:
        raise ImageTooLargeError(f"The DICOM image has over {_MOST_SCANS} scans; save it with fewer.")
    space = "RGB" if header.components > 1 and not (to_rgb and lossy) else None
    samples: Samples
    try:
        if header.kind == "JPEG 2000":
            samples = imagecodecs.jpeg2k_decode(content)
        elif header.kind == "JPEG-LS":
            samples = imagecodecs.jpegls_decode(content)
        else:
            samples = imagecodecs.jpeg8_decode(content, colorspace=space, outcolorspace=space)
    except (RuntimeError, ValueError) as error:
        if _OUT_OF_MEMORY in str(error):
            raise MemoryError from error
        raise ImageError(f"The DICOM image is damaged: its {header.kind} frame cannot be decoded.") from error
    shape = header.height, header.width, header.components
    if samples.ndim == len(shape) and samples.shape != shape:
        # Colours of JPEG-LS may be coded one after the other.
        samples = samples.transpose(1, 2, 0)
    return samples.view(f"u{samples.itemsize}").reshape(shape)


def _native_cells(elements: Elements, attributes: PixelAttributes, frame: int) -> Samples:
    """Return the cells (H, W, C) of a native frame (PS3.5, section 8.1)."""
    rows, columns, samples = attributes.rows, attributes.columns, attributes.samples
    element = elements.by_tag[Tag.PIXEL_DATA]
    there = 0 if element.undefined else element.end - element.start
    bits = rows * columns * samples * attributes.allocated
    # Two pixels share their chrominance; some programs write all of it, and say otherwise.
    halved = attributes.photometric == YBR_422 and there < attributes.frames * bits // 8
    bits = bits * 2 // 3 if halved else bits
    needed = -(-bits * attributes.frames // 8)
    if needed > there:
        raise ImageError(
            f"The DICOM image is damaged: {attributes.frames:,} x {columns} x {rows} pixels take {needed:,} "
            f"bytes; it has {there:,}."
        )
    start, end = frame * bits // 8, -(-(frame + 1) * bits // 8)
    pixels = np.frombuffer(elements.walk.content, np.uint8, there, element.start)
    if elements.walk.big and element.representation == b"OW" and attributes.allocated <= 8:
        # Bytes are parts of words (PS3.5, section 8.1.1), which an odd frame shares with its neighbours.
        words = pixels[start // 2 * 2 : (end + 1) // 2 * 2]
        paired = len(words) // 2 * 2
        swapped = np.concatenate((words[:paired].reshape(-1, 2)[:, ::-1].reshape(-1), words[paired:]))
        content = swapped[start % 2 :][: end - start]
    else:
        content = pixels[start:end]
    cells: Samples
    if attributes.allocated == 1:
        # The first byte may also have bits of the frame before.
        skipped = frame * bits % 8
        cells = np.unpackbits(content, bitorder="little")[skipped : skipped + rows * columns * samples]
    else:
        order = ">" if elements.walk.big else "<"
        cells = np.frombuffer(content, f"{order}u{attributes.allocated // 8}")
    if halved:
        if columns % 2:
            raise ImageError("The DICOM image is damaged: pixels share chrominance in rows of an odd number.")
        pairs = cells.reshape(-1, 4)
        shared = np.repeat(pairs[:, 2:], 2, axis=0)
        return np.concatenate((pairs[:, :2].reshape(-1, 1), shared), axis=1).reshape(rows, columns, 3)
    if attributes.planar:
        return cells.reshape(samples, rows, columns).transpose(1, 2, 0)
    return cells.reshape(rows, columns, samples)


def _run_cells(elements: Elements, attributes: PixelAttributes, frame: int) -> Samples:
    """Return the cells (H, W, C) of a frame in run-length encoding (PS3.5, annex G)."""
    content = compressed_frame(elements, attributes, frame)
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


def compressed_frame(elements: Elements, attributes: PixelAttributes, frame: int) -> bytes:
    """Return the bytes of a compressed frame (PS3.5, section A.4).

    Raises:
        ImageTooLargeError: The file has too many fragments.
        ImageError: The fragments cannot be followed or assigned to frames.
    """
    element = elements.by_tag[Tag.PIXEL_DATA]
    parts = list(elements.walk.items(element)) if element.undefined else []
    if len(parts) < 2:
        raise ImageError("The DICOM image is damaged: its compressed pixels have no fragments.")
    table, *fragments = parts
    content = elements.walk.content
    first, last = _span(elements, content[slice(*table)], fragments, attributes.frames, frame)
    return b"".join(content[slice(*fragment)] for fragment in fragments[first:last])


def _span(
    elements: Elements, table: bytes, fragments: list[tuple[int, int]], frames: int, frame: int
) -> tuple[int, int]:
    """Return the first fragment of a frame and the one after its last."""
    if frames == 1:
        return 0, len(fragments)
    if frames == len(fragments):
        return frame, frame + 1
    positions = {start - fragments[0][0]: number for number, (start, _) in enumerate(fragments)}
    candidates = []
    for offsets, size in ((elements.value(Tag.EXTENDED_OFFSET_TABLE), 8), (table, 4)):
        numbers = np.frombuffer(offsets[: len(offsets) // size * size], f"<u{size}").tolist()
        if all(number in positions for number in numbers):
            candidates.append([positions[number] for number in numbers])
    # Without a table that can be true, a codestream begins each frame.
    content = elements.walk.content
    candidates.append([n for n, (start, _) in enumerate(fragments) if content.startswith(_STARTS, start)])
    for firsts in candidates:
        if len(firsts) == frames and firsts[0] == 0 and all(one < other for one, other in pairwise(firsts)):
            return firsts[frame], [*firsts, len(fragments)][frame + 1]
    raise ImageError(
        f"The DICOM image is damaged: it has {len(fragments):,} fragments, which cannot be told apart into "
        f"{frames:,} frames."
    )
