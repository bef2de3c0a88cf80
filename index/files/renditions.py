"""A stored image as a picture of 8 bits that any browser shows, and its thumbnail for grids of hits."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image, ImageChops

from training.imaging.depth import Levels
from training.imaging.images import PIXELS_VERSION, ImageLimits, decode_image, decode_whole
from training.imaging.window import Window

THUMBNAIL_SIDE: Final = 256
THUMBNAIL_MEDIA_TYPE: Final = "image/webp"

# An image that was accepted once stays readable, even if intake has lower limits now.
STORED_LIMITS: Final = ImageLimits(
    max_bytes=1 << 40, max_pixels=1 << 40, max_frames=1 << 40, accept_truncated=True, checksums=False
)
# Largest sides that the formats can have, those first that are made faster.
LARGEST_SIDES: Final = {"image/jpeg": 65_500, "image/webp": 16_383, "image/png": (1 << 31) - 1}
# To be raised when scaling or encoding changes; decoding has a version of its own.
_ENCODING_VERSION: Final = 1
VERSION: Final = f"{PIXELS_VERSION}.{_ENCODING_VERSION}"


@dataclass(frozen=True, slots=True)
class Rendition:
    """A picture to be made of a stored image.

    Attributes:
        media_type: One of `LARGEST_SIDES`.
        size: Longest side in pixels, of a larger image; None: that of the image.
        window: Stored values that are spread over the grey levels; None: as for its thumbnail.
    """

    media_type: str
    size: int | None = None
    window: Window | None = None


def scaled_size(width: int, height: int, size: int | None) -> tuple[int, int]:
    """Return width and height of a rendition; nothing is enlarged."""
    longest = max(width, height)
    if size is None or size >= longest:
        return width, height
    return max(1, round(width * size / longest)), max(1, round(height * size / longest))


def make_rendition(original: Path, rendition: Rendition) -> bytes:
    """Make the picture of an image file."""
    decoded = decode_whole(original, STORED_LIMITS, min_side=rendition.size, window=rendition.window)
    image = decoded.pixels
    if rendition.size is not None:
        size = scaled_size(decoded.width, decoded.height, rendition.size)
        if size != image.size:
            image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
    if _is_grey(image):
        image = image.getchannel("G")
    content = io.BytesIO()
    match rendition.media_type:
        case "image/jpeg":
            image.save(content, "JPEG", quality=92, subsampling=0)
        case "image/webp":
            image.save(content, "WEBP", quality=90, method=1)
        case _:
            image.save(content, "PNG", compress_level=2)
    return content.getvalue()


def read_levels(original: Path) -> Levels | None:
    """Return the stored values of an image file; None where its samples have 8 bits."""
    return decode_whole(original, STORED_LIMITS).levels


def make_thumbnail(original: Path) -> bytes:
    """Make the WebP of an image file, at most 256 pixels a side."""
    image = decode_image(original, STORED_LIMITS, min_side=THUMBNAIL_SIDE)
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    image.save(content, "WEBP", quality=80)
    return content.getvalue()


def _is_grey(image: Image.Image) -> bool:
    """Return whether all channels are alike: one takes a third of the time and the bytes."""
    green = image.getchannel("G")
    return all(ImageChops.difference(green, image.getchannel(name)).getbbox() is None for name in "RB")
