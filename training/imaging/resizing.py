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


def to_square(image: "Image.Image", square: Square) -> "Image.Image":
    """Resize an image of any size and mode to a square of RGB."""
    from PIL import Image

    rgb = image if image.mode == "RGB" else image.convert("RGB")
    size, resampling = square.size, Image.Resampling[square.filter.upper()]
    match square.resize:
        case "crop":
            side = min(rgb.size) * size / (square.resize_to or size)
            left, top = (rgb.width - side) / 2, (rgb.height - side) / 2
            return rgb.resize((size, size), resampling, box=(left, top, left + side, top + side))
        case "shortest_edge":
            return _shortest_edge(rgb, square, resampling)
        case "squash":
            return rgb.resize((size, size), resampling)
        case "pad":
            width, height = _fitted(rgb.size, size)
            padded = Image.new("RGB", (size, size))
            padded.paste(rgb.resize((width, height), resampling), ((size - width) // 2, (size - height) // 2))
            return padded


def shown(picture: tuple[int, int], square: Square) -> tuple[float, float, float, float]:
    """The part of a picture of this width and height that its square shows.

    Returns:
        Left, top, width and height in fractions of the picture; beyond it where it is padded.
    """
    match square.resize:
        case "squash":
            return 0.0, 0.0, 1.0, 1.0
        case "crop":
            side = min(picture) * square.size / (square.resize_to or square.size)
            kept = [side / length for length in picture]
            return (1 - kept[0]) / 2, (1 - kept[1]) / 2, kept[0], kept[1]
        case "shortest_edge":
            resized = _edges(picture, square)
            begins = _begins(resized, square)
        case "pad":
            resized = _fitted(picture, square.size)
            begins = -((square.size - resized[0]) // 2), -((square.size - resized[1]) // 2)
    return (
        begins[0] / resized[0],
        begins[1] / resized[1],
        square.size / resized[0],
        square.size / resized[1],
    )


def _shortest_edge(image: "Image.Image", square: Square, resampling: "Image.Resampling") -> "Image.Image":
    """The centre of the resized image, both in whole pixels."""
    size = square.size
    width, height = _edges(image.size, square)
    left, top = _begins((width, height), square)
    right, bottom = left + size, top + size
    if width * height <= _MOST_RESIZED * size**2:
        return image.resize((width, height), resampling).crop((left, top, right, bottom))
    # A long strip as a whole would not fit the memory.
    across, down = image.width / width, image.height / height
    return image.resize((size, size), resampling, (left * across, top * down, right * across, bottom * down))


def _edges(picture: tuple[int, int], square: Square) -> tuple[int, int]:
    """Width and height of a picture whose short side is resized."""
    kept, short = square.resize_to or square.size, min(picture)
    return kept * picture[0] // short, kept * picture[1] // short


def _begins(resized: tuple[int, int], square: Square) -> tuple[int, int]:
    """Left and top of the centre of a resized picture."""
    # round() of a half is the even number.
    begin = round if square.rounding == "even" else math.floor
    return begin((resized[0] - square.size) / 2), begin((resized[1] - square.size) / 2)


def _fitted(picture: tuple[int, int], size: int) -> tuple[int, int]:
    """Width and height of a picture whose long side is resized."""
    scale = size / max(picture)
    return max(1, round(picture[0] * scale)), max(1, round(picture[1] * scale))
