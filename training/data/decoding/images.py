"""Images from bytes that nobody vouches for: the header is judged before any pixel is decoded."""

import io
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image, ImageFile, ImageOps
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from training.data.decoding.frames import count_gif_frames, count_tiff_pages
from training.data.decoding.pixels import to_rgb
from training.data.decoding.structure import check_structure
from training.errors import ImageError, ImageTooLargeError

MEDIA_TYPES: Final = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WebP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
    "TIFF": "image/tiff",
}
_START_OF_SCAN: Final = b"\xff\xda"
_TILE_WIDTH_TAG: Final = 322
_TILE_HEIGHT_TAG: Final = 323
_ORIENTATION: Final = 0x0112
_TURNED: Final = range(2, 9)
_ON_ITS_SIDE: Final = range(5, 9)
# Pillow's words for its error code -9.
_OUT_OF_MEMORY: Final = "out of memory"


@dataclass(frozen=True)
class ImageLimits:
    """What an image may cost.

    Attributes:
        max_bytes: Size of the file.
        max_pixels: Width times height, as the header states them.
        max_frames: Frames of an animation or pages of a TIFF; only the first is ever decoded.
        max_scans: Passes of a progressive JPEG; each costs a walk over all its pixels.
    """

    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 50_000_000
    max_frames: int = 1_000
    max_scans: int = 100


@dataclass(frozen=True)
class ImageHeader:
    """What the header of an image file says, before any rotation that its EXIF data asks for."""

    format: str
    width: int
    height: int
    frames: int
    media_type: str


def read_header(source: bytes | Path, limits: ImageLimits | None = None) -> ImageHeader:
    """Read format, size and number of frames without decoding a pixel.

    Raises:
        ImageTooLargeError: The file, its pixels or its frames are over the limits.
        ImageError: It is not an image of a format that can be read.
    """
    return _open(read_content(source, limits), limits or ImageLimits())[0]


@dataclass(frozen=True)
class DecodedImage:
    """The first frame of an image file.

    Attributes:
        header: Of the file.
        width: Of the whole image, upright.
        height: Of the whole image, upright.
        pixels: 8-bit RGB, upright; smaller than the whole where it was decoded at a scale.
    """

    header: ImageHeader
    width: int
    height: int
    pixels: Image.Image


def decode_image(
    source: bytes | Path, limits: ImageLimits | None = None, min_side: int | None = None
) -> Image.Image:
    """Decode the first frame to 8-bit RGB, upright, as `decode_whole` does."""
    return decode_whole(source, limits, min_side).pixels


def decode_whole(
    source: bytes | Path, limits: ImageLimits | None = None, min_side: int | None = None
) -> DecodedImage:
    """Read the header and decode the first frame to 8-bit RGB, upright.

    Transparent pixels are laid on white. Grey with more than 8 bits is scaled from its own smallest and
    largest value to 0..255, so nothing is clipped.

    Args:
        source: The bytes of a file, or its path.
        limits: What the image may cost.
        min_side: Both sides of the result need no more pixels than this. A larger JPEG is then decoded at
            1/2, 1/4 or 1/8 of its size, which is many times faster; other formats keep their size.

    Raises:
        ImageTooLargeError: The file, its parts, its pixels or its frames are over the limits.
        ImageError: It is not an image of a format that can be read, or it is damaged.
        MemoryError: The process may not have as much memory as decoding takes.
    """
    header, image = _open(read_content(source, limits), limits or ImageLimits())
    try:
        if min_side is not None:
            image.draft(None, (min_side, min_side))
        whole = image.size == (header.width, header.height)
        image.load()
        upright, on_its_side = _upright(image)
        del image
        size = (header.height, header.width) if on_its_side else (header.width, header.height)
        return DecodedImage(header, *(upright.size if whole else size), to_rgb(upright))
    except MemoryError:
        raise
    except Exception as error:
        if _OUT_OF_MEMORY in str(error):
            raise MemoryError from error
        raise ImageError(f"The {header.format} image is damaged: {_reason(error)}.") from error


def check_signature(content: bytes, limits: ImageLimits) -> None:
    """Refuse a file by its size and its first bytes alone.

    Raises:
        ImageTooLargeError: It has too many bytes.
        ImageError: It is not an image of a format that can be read.
    """
    sniff_format(read_content(content, limits))


def read_content(source: bytes | Path, limits: ImageLimits | None = None) -> bytes:
    """Return the bytes of an image file, of which none are looked at.

    Raises:
        ImageTooLargeError: The file is over the limit.
        ImageError: It cannot be read, or is empty.
    """
    limits = limits or ImageLimits()
    if isinstance(source, Path):
        source = _read_file(source, limits)
    _check_bytes(len(source), limits)
    if not source:
        raise ImageError("The image file is empty.")
    return source


def _read_file(path: Path, limits: ImageLimits) -> bytes:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise ImageError(f"{path} is not a file.")
        _check_bytes(about.st_size, limits)
        return path.read_bytes()
    except FileNotFoundError:
        raise ImageError(f"There is no image file {path}.") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror or error}.") from error


def _check_bytes(size: int, limits: ImageLimits) -> None:
    if size > limits.max_bytes:
        raise ImageTooLargeError(
            f"The image file has {size / 1e6:,.1f} MB; the limit is {limits.max_bytes / 1e6:,.1f} MB."
        )


def _open(content: bytes, limits: ImageLimits) -> tuple[ImageHeader, ImageFile.ImageFile]:
    format_name = sniff_format(content)
    check_structure(content, format_name)
    if format_name == "WebP":
        # Pillow's WebP decoder reserves the whole canvas as soon as it is opened.
        _check_pixels(*_webp_size(content), limits)
    if format_name == "JPEG" and content.count(_START_OF_SCAN) > limits.max_scans:
        raise ImageTooLargeError(f"The JPEG image has over {limits.max_scans} scans; save it with fewer.")
    try:
        image = _OPENERS[format_name](content)
        _check_pixels(*image.size, limits)
        _check_tiles(image, limits)
        frames = _count_frames(image, content, limits)
    except (ImageError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageTooLargeError(f"The image has over {_mega(limits.max_pixels)}, the limit.") from error
    except Exception as error:
        raise ImageError(f"The header of the {format_name} image is damaged: {_reason(error)}.") from error
    return ImageHeader(format_name, *image.size, frames, MEDIA_TYPES[format_name]), image


# The plugins are called directly: Image.open tries every plugin installed and applies a limit of its own,
# Image.MAX_IMAGE_PIXELS, which is one global for the whole process.
_OPENERS: Final[dict[str, Callable[[bytes], ImageFile.ImageFile]]] = {
    "JPEG": lambda content: JpegImageFile(io.BytesIO(content)),
    "PNG": lambda content: PngImageFile(io.BytesIO(content)),
    "WebP": lambda content: WebPImageFile(io.BytesIO(content)),
    "GIF": lambda content: GifImageFile(io.BytesIO(content)),
    "BMP": lambda content: BmpImageFile(io.BytesIO(content)),
    "TIFF": lambda content: TiffImageFile(io.BytesIO(content)),
}


def sniff_format(content: bytes) -> str:
    """Tell the format of an image file from its signature.

    Raises:
        ImageError: It is of none that can be read.
    """
    if content.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "WebP"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if content.startswith(b"BM"):
        return "BMP"
    if content.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return "TIFF"
    raise ImageError("The file is not an image that can be read: send JPEG, PNG, WebP, GIF, BMP or TIFF.")


def _webp_size(content: bytes) -> tuple[int, int]:
    """Width and height from the first chunk of a WebP file (RFC 9649, sections 2.5 to 2.7)."""
    kind, chunk = content[12:16], content[20:30]
    if kind == b"VP8X" and len(chunk) >= 10:
        return int.from_bytes(chunk[4:7], "little") + 1, int.from_bytes(chunk[7:10], "little") + 1
    if kind == b"VP8 " and len(chunk) >= 10:
        width, height = struct.unpack_from("<HH", chunk, 6)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and len(chunk) >= 5:
        bits = int.from_bytes(chunk[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    raise ImageError("The header of the WebP image is damaged: its first chunk gives no size.")


def _check_pixels(width: int, height: int, limits: ImageLimits) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"The image is {width} x {height} pixels: there is nothing in it.")
    if width * height > limits.max_pixels:
        raise ImageTooLargeError(
            f"The image is {width} x {height} pixels, {_mega(width * height)}; "
            f"the limit is {_mega(limits.max_pixels)}."
        )


def _mega(pixels: int) -> str:
    return f"{pixels / 1e6:,.10g} megapixels"


def _check_tiles(image: ImageFile.ImageFile, limits: ImageLimits) -> None:
    # The buffer of a TIFF tile may be far larger than the image that it covers.
    if isinstance(image, TiffImageFile):
        width, height = image.tag_v2.get(_TILE_WIDTH_TAG, 1), image.tag_v2.get(_TILE_HEIGHT_TAG, 1)
        if width * height > limits.max_pixels:
            raise ImageTooLargeError(
                f"The TIFF image has tiles of {width} x {height} pixels; "
                f"the limit is {_mega(limits.max_pixels)}."
            )


def _count_frames(image: ImageFile.ImageFile, content: bytes, limits: ImageLimits) -> int:
    if isinstance(image, GifImageFile):
        frames = count_gif_frames(content, limits.max_frames)
    elif isinstance(image, TiffImageFile):
        frames = count_tiff_pages(content, limits.max_frames)
    else:
        frames = int(getattr(image, "n_frames", 1))
    if frames > limits.max_frames:
        raise ImageTooLargeError(f"The image has more than {limits.max_frames} frames.")
    return frames


def _upright(image: Image.Image) -> tuple[Image.Image, bool]:
    """Turn an image as its EXIF data asks; true where width and height have changed places."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
        if orientation not in _TURNED:
            # Without the copy that Pillow makes.
            return image, False
        return ImageOps.exif_transpose(image), orientation in _ON_ITS_SIDE
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - Pillow raises whatever a damaged block leads to; the pixels are whole
        return image, False


def _reason(error: Exception) -> str:
    """The decoder's own words, as the end of a sentence."""
    words = " ".join(str(error).split()) or type(error).__name__
    if words == "not identified by this driver":
        return "it gives no size"
    return words.rstrip(".")
