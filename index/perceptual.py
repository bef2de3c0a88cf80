"""Whether two pictures are the same but for size, compression, brightness, contrast or a cropped edge."""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# (left, upper, right, lower), shares of width and height.
Window = tuple[float, float, float, float]

_WHOLE: Final[Window] = (0.0, 0.0, 1.0, 1.0)
# Pictures are held this wide and high, whatever their shape: a copy may be squashed.
_SIDE: Final = 96
_COARSE: Final = 16
_FINE: Final = 32
# Steps by which each edge of a window is moved while that makes pictures more alike.
_STEPS: Final = (0.04, 0.02, 0.01)
_ROUNDS: Final = 4
_SMALLEST: Final = 0.5
# Different pictures seldom reach this before edges are moved; copies with a cropped edge do.
_HOPELESS: Final = 0.3
# Radiographs of different patients reach 0.86; copies with up to 8 % cut off each edge go beyond (measured).
_SAME: Final = 0.88


def read_small(path: Path) -> Image.Image:
    """Read a picture as `same_picture` takes it: grey and small.

    Raises:
        OSError: It cannot be read.
    """
    with Image.open(path) as image:
        return image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)


def same_picture(first: Image.Image, second: Image.Image) -> bool:
    """Tell whether one picture is the other, or a window of it, but for size, compression and tone.

    The gradients of one whole picture are correlated with those of windows of the other, whose edges are
    moved while that makes them more alike. Gradients do not see brightness, their correlation does not see
    contrast, and the windows find what a crop has kept.

    Args:
        first: As `read_small` gives it.
        second: Likewise.
    """
    return _is_window(first, second) or _is_window(second, first)


def _is_window(whole: Image.Image, larger: Image.Image) -> bool:
    fine = _gradients(whole, _WHOLE, _FINE)
    value = _correlation(fine, larger, _WHOLE, _FINE)
    if value >= _SAME:
        return True
    coarse = _gradients(whole, _WHOLE, _COARSE)
    likely, window = max((_correlation(coarse, larger, place, _COARSE), place) for place in _PLACES)
    if likely < _HOPELESS:
        return False
    value, window = max((_correlation(fine, larger, place, _FINE), place) for place in {window, _WHOLE})
    for step in _STEPS:
        for _ in range(_ROUNDS):
            moved, place = max(
                (_correlation(fine, larger, near, _FINE), near) for near in _near(window, step)
            )
            if moved <= value:
                break
            value, window = moved, place
            if value >= _SAME:
                return True
    return False


def _near(window: Window, step: float) -> list[Window]:
    """Return the window with each one of its edges moved, and with it moved as a whole."""
    moves = [
        tuple(step * sign * (edge == place) for place in range(4)) for edge in range(4) for sign in (1, -1)
    ]
    moves += [(x, y, x, y) for x, y in ((step, 0.0), (-step, 0.0), (0.0, step), (0.0, -step))]
    near = []
    for move in moves:
        left, upper, right, lower = (
            min(max(edge + by, 0.0), 1.0) for edge, by in zip(window, move, strict=True)
        )
        if right - left >= _SMALLEST and lower - upper >= _SMALLEST:
            near.append((left, upper, right, lower))
    return near


def _correlation(gradients: NDArray[np.float32], image: Image.Image, window: Window, side: int) -> float:
    return float(gradients @ _gradients(image, window, side))


def _gradients(image: Image.Image, window: Window, side: int) -> NDArray[np.float32]:
    """Return the gradients of a window of an image as one vector of length one; zero where it is blank."""
    left, upper, right, lower = (edge * _SIDE for edge in window)
    box = (left, upper, right, lower)
    pixels = np.asarray(image.resize((side, side), Image.Resampling.BOX, box=box), dtype=np.float32)
    across, down = pixels[1:, 1:] - pixels[1:, :-1], pixels[1:, 1:] - pixels[:-1, 1:]
    gradients: NDArray[np.float32] = np.concatenate((across.ravel(), down.ravel()))
    length = float(np.linalg.norm(gradients))
    if length > 0:
        gradients /= np.float32(length)
    return gradients


def _windows() -> tuple[Window, ...]:
    places = [_WHOLE]
    for share in (0.92, 0.84, 0.76):
        offsets = (0.0, (1 - share) / 2, 1 - share)
        places += [(x, y, x + share, y + share) for x in offsets for y in offsets]
    return tuple(places)


_PLACES: Final = _windows()
