"""TIFF of any depth (TIFF 6.0): Pillow opens the layouts that it reads whole; libtiff alone unpacks others.

Pillow knows a list of layouts, keeps the upper 8 of 16 bits in colour, and does not invert deep WhiteIsZero.
"""

import io
import struct
from collections.abc import Iterator
from math import isfinite
from typing import Final

import numpy as np
from PIL import ImagePalette
from PIL.ExifTags import Base as Tag
from PIL.TiffImagePlugin import COMPRESSION_INFO, ImageFileDirectory_v2, TiffImageFile

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.depth import DeepImage, Samples, band_rows
from training.imaging.formats import megapixels
from training.imaging.window import Window

_COLOURS: Final = {0: 1, 1: 1, 2: 3, 5: 4}
_WHITE_IS_ZERO: Final = 0
_REDUCED: Final = 1
_MOST_THUMBNAILS: Final = 16
_INKS: Final = 4
# None, LZW, Deflate (two numbers), PackBits, LZMA, Zstandard.
_COMPRESSIONS: Final = frozenset({1, 5, 8, 32_946, 32_773, 34_925, 50_000})
# Compressions that Pillow's libtiff doesn't decode.
_NAMES: Final = {
    **dict.fromkeys((33_003, 33_004, 33_005, 34_712), "JPEG 2000"),
    **{34_887: "LERC", 34_892: "JPEG", 34_933: "PNG", 34_934: "JPEG XR", 50_001: "WebP"},
    **dict.fromkeys((50_002, 52_546), "JPEG XL"),
}
_KINDS: Final = {1: "u", 2: "i", 3: "f", 4: "u"}
_DEPTHS: Final = {"u": {*range(1, 17), 32, 64}, "i": {8, 16, 32, 64}, "f": {16, 32, 64}}
_WHOLE_NUMBERS: Final = {3: "H", 4: "I"}
_SEPARATE: Final = 2
_PREMULTIPLIED, _OPACITY = 1, 2
# Pillow's words.
_UNKNOWN_LAYOUT: Final = "unknown pixel mode"
_MOST_SAMPLES: Final = 8
# RGB with opacity, as floats.
_MOST_BYTES_A_PIXEL: Final = 16


def read_tags(content: bytes, page: int = 0) -> ImageFileDirectory_v2:
    """Read the tags of a page.

    Raises:
        Exception: As Pillow raises it for damaged files.
    """
    file = io.BytesIO(content)
    if _is_big(content):
        # Pillow tells a BigTIFF from its header in little-endian order alone.
        tags = ImageFileDirectory_v2(b"II+\0" + content[4:16], prefix=content[:2])
    else:
        tags = ImageFileDirectory_v2(content[:8])
    offset = tags.next
    for _ in range(page + 1):
        if not offset:
            raise EOFError("it has fewer pages than it says")
        file.seek(offset)
        tags.load(file)
        offset = tags.next
    return tags


def first_page(content: bytes, pages: int) -> int:
    """Return the first page that is no thumbnail of another one; 0 where all are."""
    for page in range(min(pages, _MOST_THUMBNAILS)):
        if not number(read_tags(content, page), Tag.NewSubfileType, 0) & _REDUCED:
            return page
    return 0


def open_page(content: bytes, page: int, tags: ImageFileDirectory_v2) -> TiffImageFile:
    """Open a page that Pillow reads, by its number from 0 and its tags.

    Raises:
        ImageError: It is one of a big-endian BigTIFF, whose directory Pillow does not find, or of a
            compression or a layout that nobody reads.
        Exception: As Pillow raises it for damaged files.
    """
    if _is_big_endian_big(content):
        raise ImageError(
            "The TIFF image is a big-endian BigTIFF in colours or a compression that cannot be read; "
            "save it as a TIFF or a PNG."
        )
    compression = number(tags, Tag.Compression, 1)
    if compression in _NAMES or compression not in COMPRESSION_INFO:
        name = _NAMES.get(compression, f"number {compression}")
        raise ImageError(
            f"The TIFF image has the compression {name}, which cannot be read; save it with LZW or Deflate."
        )
    try:
        image = TiffImageFile(io.BytesIO(content))
        image.seek(page)
    except SyntaxError as error:
        if _UNKNOWN_LAYOUT not in str(error):
            raise
        bits = " + ".join(map(str, _listed(tags, Tag.BitsPerSample, 1)))
        raise ImageError(
            f"The TIFF image has pixels of {bits} bits of the photometric interpretation "
            f"{number(tags, Tag.PhotometricInterpretation, 0)}, which cannot be read; "
            "save it in grey or RGB of 8 or 16 bits."
        ) from error
    colours = _listed(tags, Tag.ColorMap, 0)
    if image.mode == "P" and max(colours) < 256:
        # Some programs write colours of 8 bits where 16 belong, as libtiff also takes them.
        image.palette = ImagePalette.raw("RGB;L", bytes(colours))
    return image


def _listed(tags: ImageFileDirectory_v2, tag: int, otherwise: int) -> tuple[int, ...]:
    values = tags.get(tag, otherwise)
    return values if isinstance(values, tuple) else (values,)


def number(tags: ImageFileDirectory_v2, tag: int, otherwise: int) -> int:
    """Return a tag that is one whole number.

    Raises:
        ValueError: It is something else.
    """
    value = tags.get(tag, otherwise)
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, int):
        raise ValueError(f"tag {tag} is no number")
    return value


def check_tiles(tags: ImageFileDirectory_v2, most_pixels: int) -> None:
    """Raise an ImageTooLargeError for tiles of more pixels than an image may have."""
    width, height = number(tags, Tag.TileWidth, 1), number(tags, Tag.TileLength, 1)
    if width * height > most_pixels:
        raise ImageTooLargeError(
            f"The TIFF image has tiles of {width} x {height} pixels; the limit is {megapixels(most_pixels)}."
        )


def read_deep_tiff(
    content: bytes, page: int, tags: ImageFileDirectory_v2, most_pixels: int
) -> DeepImage | None:
    """Read a page whose samples Pillow would cut or refuse.

    Returns:
        The image; None where Pillow itself keeps all bits, or nobody reads them.

    Raises:
        ImageTooLargeError: Its samples take more bytes than those of an image of so many pixels may.
        Exception: As libtiff raises it for damaged files.
    """
    photometric = number(tags, Tag.PhotometricInterpretation, 0)
    count = number(tags, Tag.SamplesPerPixel, 1)
    bits, kind = _same(tags, Tag.BitsPerSample), _KINDS.get(_same(tags, Tag.SampleFormat))
    colours = _COLOURS.get(photometric)
    if (
        colours is None
        or kind is None
        or not colours <= count <= _MOST_SAMPLES
        or bits not in _DEPTHS[kind]
        or number(tags, Tag.Compression, 1) not in _COMPRESSIONS
        or (_is_known(photometric, count, bits, kind) and not _is_big_endian_big(content))
    ):
        return None
    width, height = number(tags, Tag.ImageWidth, 0), number(tags, Tag.ImageLength, 0)
    # Those of up to 8 bits take a byte, others a power of two.
    cell = 1 if bits <= 8 else 2 if bits <= 16 else bits // 8
    if count * cell * width * height > _MOST_BYTES_A_PIXEL * most_pixels:
        raise ImageTooLargeError(
            f"The TIFF image has {count} samples of {bits} bits in each of {width} x {height} pixels, more "
            "than can be read; save it with 16 bits or smaller."
        )
    if colours == _INKS:
        # The decoder would make 8 bits in RGB of inks; as grey they stay what they are.
        order, length = "<" if content[:2] == b"II" else ">", "Q" if _is_big(content) else "I"
        for number_type, value in _WHOLE_NUMBERS.items():
            start = struct.pack(f"{order}HH{length}", Tag.PhotometricInterpretation, number_type, 1)
            inks, grey = (start + struct.pack(order + value, code) for code in (5, 1))
            content = content.replace(inks, grey)
    # The package takes longer to load than most images to decode.
    from imagecodecs import tiff_decode

    separate = count > 1 and number(tags, Tag.PlanarConfiguration, 1) == _SEPARATE
    shape = (count, height, width) if separate else (height, width, count) if count > 1 else (height, width)
    # The decoder refuses a page that is another one for it than by its tags here.
    # What damage leaves unwritten is black, not earlier content of the memory.
    cells: Samples = np.zeros(shape, bool if bits == 1 else f"{kind}{cell}")
    tiff_decode(content, page, out=cells)
    cells = np.moveaxis(cells, 0, -1) if separate else cells.reshape(height, width, count)
    extra = next(iter(_listed(tags, Tag.ExtraSamples, 0)), 0) if colours != _INKS and count > colours else 0
    opaque = _largest(kind, bits) if extra in (_PREMULTIPLIED, _OPACITY) else None
    kept = colours + (opaque is not None)
    signed_byte = kind == "i" and bits == 8

    def bands() -> Iterator[tuple[int, Samples]]:
        for top, bottom in band_rows(width, height):
            samples = cells[top:bottom, :, :kept]
            if extra == _PREMULTIPLIED and opaque is not None:
                samples = _unmultiplied(samples, opaque)
            yield top, samples.astype(np.int16) + 128 if signed_byte else samples

    # Colours of 16 bits are spread from 0 unless they are a film's.
    spread = colours == _INKS or bits <= 8 or (colours == 3 and kind == "u" and bits <= 16)
    return DeepImage(
        width,
        height,
        colours,
        bands,
        opaque=opaque,
        full=255.0 if signed_byte else _largest(kind, bits) if spread else None,
        inverted=photometric == _WHITE_IS_ZERO,
        stated=_stated(tags),
    )


def _is_big(content: bytes) -> bool:
    return content[2:4] in (b"+\0", b"\0+")


def _is_big_endian_big(content: bytes) -> bool:
    return _is_big(content) and content[:2] == b"MM"


def _same(tags: ImageFileDirectory_v2, tag: int) -> int:
    """Return a tag that is the same for all samples; 0 where it is not."""
    values = _listed(tags, tag, 1)
    return int(values[0]) if values and len(set(values)) == 1 else 0


def _is_known(photometric: int, count: int, bits: int, kind: str) -> bool:
    """Whether Pillow reads all bits of such samples."""
    # With several channels in addition to colours it reads none in planes, and few otherwise.
    if kind != "u" or bits > 8 or count > _COLOURS[photometric] + 1:
        return False
    return (bits == 8 and (count == 1 or photometric > 1)) or (count == 1 and bits in (1, 2, 4))


def _largest(kind: str, bits: int) -> float:
    return 1.0 if kind == "f" else float((1 << bits - (kind == "i")) - 1)


def _stated(tags: ImageFileDirectory_v2) -> Window | None:
    """Return the range of values that the file gives for display."""
    low, high = (
        next(iter(_listed(tags, tag, 0)), None) if tag in tags else None
        for tag in (Tag.SMinSampleValue, Tag.SMaxSampleValue)
    )
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    width = float(high) - float(low)
    return Window(float(low) + width / 2, width) if isfinite(width) and width > 0 else None


def _unmultiplied(samples: Samples, opaque: float) -> Samples:
    values = samples.astype(np.float64)
    opacity = values[..., -1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        values[..., :-1] = np.where(opacity > 0, values[..., :-1] * opaque / opacity, 0.0)
    return values
