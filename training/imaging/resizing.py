"""A decoded image as the square of an encoder's input; needs Pillow alone."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    # Settings and losses import this module for its types, also where Pillow isn't installed.
    from PIL import Image

Resize = Literal["crop", "shortest_edge", "squash", "pad"]
Rounding = Literal["down", "even"]
Filter = Literal["bicubic", "bilinear", "box", "hamming", "lanczos", "nearest"]

# Pixels that are resized, in proportion to those that are kept.
_MOST_RESIZED: Final = 16


@dataclass(frozen=True, slots=True)
class Square:
    """How an image becomes `size` x `size` pixels.

    Attributes:
        size: Side.
        resize: Crop the centre and resize it, resize and crop the centre, stretch, or pad with black.
        resize_to: Pixels of the short side of a crop, of which `size` are kept; None: `size`.
        filter: Antialiased.
        rounding: How `shortest_edge` rounds where the crop begins if half a pixel is left: as transformers
            or as torchvision does.
    """

    size: int
    resize: Resize
    resize_to: int | None = None
    filter: Filter = "bicubic"
    rounding: Rounding = "down"


def to_square(image: "Image.Image", square: Square) -> "Image.Image":
    """Resize an image of any size and mode to a square of RGB."""
    from PIL import Image

    rgb = image if image.mode == "RGB" else image.convert("RGB")
    size, resampling = square.size, Image.Resampling[square.filter.upper()]
    if square.resize == "squash":
        return rgb.resize((size, size), resampling)
    if square.resize == "crop":
        side = min(rgb.size) * size / (square.resize_to or size)
        left, top = (rgb.width - side) / 2, (rgb.height - side) / 2
        return rgb.resize((size, size), resampling, box=(left, top, left + side, top + side))
    (width, height), (left, top) = _whole_pixels(rgb.size, square)
    if square.resize == "pad":
        padded = Image.new("RGB", (size, size))
        padded.paste(rgb.resize((width, height), resampling), (-left, -top))
        return padded
    right, bottom = left + size, top + size
    if width * height <= _MOST_RESIZED * size**2:
        return rgb.resize((width, height), resampling).crop((left, top, right, bottom))
    # All of a long strip would not fit into memory.
    across, down = rgb.width / width, rgb.height / height
    return rgb.resize((size, size), resampling, (left * across, top * down, right * across, bottom * down))


def shown(picture: tuple[int, int], square: Square) -> tuple[float, float, float, float]:
    """The part of a picture of this width and height that its square shows.

    Returns:
        Left, top, width and height in fractions of the picture; beyond it where it is padded.
    """
    if square.resize == "squash":
        return 0.0, 0.0, 1.0, 1.0
    if square.resize == "crop":
        side = min(picture) * square.size / (square.resize_to or square.size)
        across, down = (side / length for length in picture)
        return (1 - across) / 2, (1 - down) / 2, across, down
    (width, height), (left, top) = _whole_pixels(picture, square)
    return left / width, top / height, square.size / width, square.size / height


def _whole_pixels(picture: tuple[int, int], square: Square) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the size of a picture before it is cropped or padded, and where the square begins."""
    size, (width, height) = square.size, picture
    if square.resize == "pad":
        scale = size / max(picture)
        resized = max(1, round(width * scale)), max(1, round(height * scale))
        return resized, (-((size - resized[0]) // 2), -((size - resized[1]) // 2))
    kept, short = square.resize_to or size, min(picture)
    resized = kept * width // short, kept * height // short
    # round() of a half is the even number.
    begin = round if square.rounding == "even" else math.floor
    return resized, (begin((resized[0] - size) / 2), begin((resized[1] - size) / 2))
