"""Operations on 8-bit pixels: turn upright, lay on a ground, spread over the levels, tell a blank picture."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from PIL import Image

from training.imaging.window import Window

_TILE_PIXELS: Final = 1 << 16
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Differences that lossy compression may make within one colour.
_BLANK: Final = 3
# A drawing whose visible pixels are all this bright would not be seen on white.
_BRIGHT: Final = 224
_VISIBLE: Final = 16


def turn(image: Image.Image, orientation: int) -> Image.Image:
    """Return an image upright, by the orientation of its EXIF data; itself if it is."""
    return image.transpose(_TURNS[orientation]) if orientation in _TURNS else image


def lay_on_ground(image: Image.Image) -> Image.Image:
    """Return an L, LA, RGB or RGBA image as RGB; itself if it is.

    Transparent pixels are laid on white, or on black where all that can be seen is nearly white.
    """
    if image.mode not in ("LA", "RGBA"):
        return image if image.mode == "RGB" else image.convert("RGB")
    ground = "black" if _is_white_on_clear(image) else "white"
    rgb = Image.new("RGB", image.size)
    for left, top, tile in _tiles(image):
        rgba = tile.convert("RGBA")
        page = Image.new("RGBA", rgba.size, ground)
        page.alpha_composite(rgba)
        rgb.paste(page.convert("RGB"), (left, top))
    return rgb


def spread(image: Image.Image, window: Window) -> Image.Image:
    """Return an L, LA, RGB or RGBA image with the values of a window spread over all levels."""
    levels = (np.arange(256) - window.low) * (255.0 / window.width)
    table = np.rint(levels.clip(0, 255)).astype(int).tolist()
    bands = [list(range(256)) if band == "A" else table for band in image.getbands()]
    return image.point([level for band in bands for level in band])


def is_blank(image: Image.Image) -> bool:
    """Tell whether an RGB image has one colour, but for what lossy compression makes of it."""
    low, high = np.full(3, 255), np.zeros(3, int)
    for _, _, tile in _tiles(image):
        # NumPy's minimum over pixels of three samples takes many times as long.
        lows, highs = np.array(tile.getextrema()).T
        low, high = np.minimum(low, lows), np.maximum(high, highs)
        if (high - low).max() > _BLANK:
            # Most images are known by their first rows.
            return False
    return True


def _is_white_on_clear(image: Image.Image) -> bool:
    clear, seen = False, False
    for _, _, tile in _tiles(image):
        pixels = np.asarray(tile)
        visible = pixels[..., -1] >= _VISIBLE
        if visible.any():
            seen = True
            if pixels[..., :-1][visible].min() < _BRIGHT:
                return False
        clear = clear or not visible.all()
    return clear and seen


def _tiles(image: Image.Image) -> Iterator[tuple[int, int, Image.Image]]:
    """Parts that make up an image, each with its left column and top row."""
    columns = min(image.width, _TILE_PIXELS)
    rows = max(1, _TILE_PIXELS // columns)
    for top in range(0, image.height, rows):
        for left in range(0, image.width, columns):
            right, bottom = min(left + columns, image.width), min(top + rows, image.height)
            yield left, top, image.crop((left, top, right, bottom))
