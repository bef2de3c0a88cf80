"""Decoded pixels of any mode as 8-bit RGB, converted tile by tile so that little is copied at a time."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_DEEP_GREY_MODES: Final = frozenset({"I", "F", "I;16", "I;16L", "I;16B", "I;16N"})
# As doubles they fit into a core's cache.
_TILE_PIXELS: Final = 1 << 16


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image as 8-bit RGB; itself if it is.

    Transparent pixels are laid on white. Grey with more than 8 bits is scaled from its own smallest and
    largest finite value to 0..255.
    """
    if image.mode in _DEEP_GREY_MODES:
        return _scale_grey(image).convert("RGB")
    if image.has_transparency_data:
        return _on_white(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    rgb = Image.new("RGB", image.size)
    for left, top, tile in _tiles(image):
        rgba = tile.convert("RGBA")
        page = Image.new("RGBA", rgba.size, "white")
        page.alpha_composite(rgba)
        rgb.paste(page.convert("RGB"), (left, top))
    return rgb


def _scale_grey(image: Image.Image) -> Image.Image:
    low, high = _range(image)
    scale = 255.0 / (high - low) if high > low else 0.0
    grey = np.empty((image.height, image.width), dtype=np.uint8)
    for left, top, tile in _tiles(image):
        values = np.asarray(tile).astype(np.float64)
        values[~np.isfinite(values)] = low
        np.subtract(values, low, out=values)
        np.multiply(values, scale, out=values)
        np.rint(values, out=values)
        grey[top : top + tile.height, left : left + tile.width] = values
    return Image.fromarray(grey)


def _range(image: Image.Image) -> tuple[float, float]:
    """Smallest and largest finite value; zeros where there is none."""
    low, high = np.inf, -np.inf
    for _, _, tile in _tiles(image):
        values: NDArray[np.generic] = np.asarray(tile)
        if values.dtype.kind == "f":
            values = values[np.isfinite(values)]
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
    return (low, high) if low <= high else (0.0, 0.0)


def _tiles(image: Image.Image) -> Iterator[tuple[int, int, Image.Image]]:
    """Parts that make up an image, each with its left column and top row."""
    columns = min(image.width, _TILE_PIXELS)
    rows = max(1, _TILE_PIXELS // columns)
    for top in range(0, image.height, rows):
        for left in range(0, image.width, columns):
            right, bottom = min(left + columns, image.width), min(top + rows, image.height)
            yield left, top, image.crop((left, top, right, bottom))
