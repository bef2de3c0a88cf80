"""The small picture of an image file that grids of hits show."""

import io
from pathlib import Path
from typing import Final

from PIL import Image

from training.data.decoding.images import ImageLimits, decode_image

THUMBNAIL_SIDE: Final = 256
THUMBNAIL_MEDIA_TYPE: Final = "image/webp"

# An image that was let in once stays readable, whatever limits intake has by now.
STORED_LIMITS: Final = ImageLimits(
    max_bytes=1 << 40, max_pixels=1 << 40, max_frames=1 << 40, accept_truncated=True, checksums=False
)


def make_thumbnail(original: Path) -> bytes:
    """Make the WebP of an image file, at most 256 pixels a side.

    Raises:
        ImageError: The file cannot be decoded.
    """
    image = decode_image(original, STORED_LIMITS, min_side=THUMBNAIL_SIDE)
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    image.save(content, "WEBP", quality=80)
    return content.getvalue()
