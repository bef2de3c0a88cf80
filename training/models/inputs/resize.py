"""A decoded image as the square of an encoder's input; needs Pillow alone."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from PIL import Image

Resize = Literal["crop", "shortest_edge", "squash", "pad"]
Rounding = Literal["down", "even"]
Filter = Literal["bicubic", "bilinear", "box", "hamming", "lanczos", "nearest"]

_FILTERS: Final[Mapping[Filter, Image.Resampling]] = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
    "lanczos": Image.Resampling.LANCZOS,
    "nearest": Image.Resampling.NEAREST,
}

# Pixels that are resized, in proportion to those that are kept.
_MOST_RESIZED: Final = 16


@dataclass(frozen=True, slots=True)
class Square:
    """How an image becomes `size` x `size` pixels.

    Attributes:
        size: Side.
        resize: Crop the centre and resize it, resize and crop the centre, stretch, or pad with black.
        resize_to: Of a crop: pixels of the short side, of which `size` are kept; None: `size`.
        filter: Antialiased.
        rounding: Of `shortest_edge`: where the crop begins if half a pixel is left, as transformers or as
            torchvision counts it.
    """

    size: int
    resize: Resize
    resize_to: int | None = None
    filter: Filter = "bicubic"
    rounding: Rounding = "down"


def to_square(image: Image.Image, square: Square) -> Image.Image:
    """Resize an image of any size and mode to a square of RGB."""
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    size, resampling = square.size, _FILTERS[square.filter]
    match square.resize:
        case "crop":
            return _crop(rgb, size, square.resize_to or size, resampling)
        case "shortest_edge":
            return _shortest_edge(rgb, square, resampling)
        case "squash":
            return rgb.resize((size, size), resampling)
        case "pad":
            return _pad(rgb, size, resampling)


def _crop(image: Image.Image, size: int, resize_to: int, resampling: Image.Resampling) -> Image.Image:
    side = min(image.size) * size / resize_to
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return image.resize((size, size), resampling, box=(left, top, left + side, top + side))


def _shortest_edge(image: Image.Image, square: Square, resampling: Image.Resampling) -> Image.Image:
    """The centre of the resized image, both in whole pixels."""
    size, short = square.size, min(image.size)
    width, height = ((square.resize_to or size) * side // short for side in image.size)
    # round() of a half is the even number.
    begin = round if square.rounding == "even" else math.floor
    left, top = begin((width - size) / 2), begin((height - size) / 2)
    right, bottom = left + size, top + size
    if width * height <= _MOST_RESIZED * size**2:
        return image.resize((width, height), resampling).crop((left, top, right, bottom))
    # A long strip as a whole would not fit the memory.
    across, down = image.width / width, image.height / height
    return image.resize((size, size), resampling, (left * across, top * down, right * across, bottom * down))


def _pad(image: Image.Image, size: int, resampling: Image.Resampling) -> Image.Image:
    scale = size / max(image.size)
    width, height = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    square = Image.new("RGB", (size, size))
    square.paste(image.resize((width, height), resampling), ((size - width) // 2, (size - height) // 2))
    return square
