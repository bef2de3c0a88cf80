"""Whether two pictures are the same but for size, compression, brightness, contrast or a cropped edge."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# (left, upper, right, lower), shares of width and height.
Window = tuple[float, float, float, float]
# A picture's gradients, of length one; zero where it is blank.
Gradients = NDArray[np.float32]
_WHOLE: Final[Window] = (0.0, 0.0, 1.0, 1.0)
# Width and height of all pictures, whatever their shape: a copy may be squashed.
_SIDE: Final = 96
_SKETCH: Final = 8
SKETCH_DIM: Final = _SKETCH * _SKETCH
_COARSE: Final = 16
_FINE: Final = 32
# Steps by which each edge of a window is moved while that makes pictures more alike.
_STEPS: Final = (0.04, 0.02, 0.01)
_ROUNDS: Final = 4
_SMALLEST: Final = 0.5
# Grey levels that a picture of one colour may span: the thumbnail is compressed with losses.
_BLANK_LEVELS: Final = 3
# Rounding errors of a blank window's gradients are shorter than this.
_BLANK: Final = 0.1
# Copies with up to 8 % cut off each edge reach this before edges are moved, and after the first moves
# (measured: at least 0.73 and 0.61); most pairs of different photographs do not, nor half of radiographs.
_HOPELESS: Final = 0.5
# Radiographs of different patients reach 0.86; copies with up to 8 % cut off each edge go beyond (measured).
_SAME: Final = 0.88


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A small grey picture (S, S) and its gradients."""

    pixels: NDArray[np.uint8]
    gradients: Gradients

    @property
    def blank(self) -> bool:
        """Whether it has one colour."""
        return int(self.pixels.max()) - int(self.pixels.min()) <= _BLANK_LEVELS

    @property
    def sketch(self) -> NDArray[np.float32]:
        """Brightness pattern as a vector (SKETCH_DIM,) of length one; zero for a blank picture.

        A cropped edge changes it little.
        """
        if self.blank:
            return np.zeros(SKETCH_DIM, dtype=np.float32)
        part = _SIDE // _SKETCH
        means = self.pixels.reshape(_SKETCH, part, _SKETCH, part).mean((1, 3), dtype=np.float32).ravel()
        means -= means.mean()
        length = float(np.linalg.norm(means))
        sketch: NDArray[np.float32] = means / np.float32(length if length > _BLANK else np.inf)
        return sketch


def read_picture(path: Path) -> Picture:
    """Read a picture.

    Raises:
        OSError: The file cannot be read.
    """
    with Image.open(path) as image:
        small = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    pixels = np.asarray(small)
    return Picture(pixels, _gradients(pixels, [_WHOLE], _FINE)[0])


def same_picture(first: Picture, second: Picture) -> bool:
    """Tell whether one picture is the other, or a window of it, but for size, compression and tone.

    The gradients of one whole picture are correlated with those of windows of the other, whose edges are
    moved while that makes them more alike. Gradients do not see brightness, their correlation does not see
    contrast, and the windows find what a crop has kept.
    """
    if first.blank or second.blank:
        # Pictures of one colour have nothing in common but that.
        return False
    if float(first.gradients @ second.gradients) >= _SAME:
        return True
    return _is_window(first, second) or _is_window(second, first)


def _is_window(whole: Picture, larger: Picture) -> bool:
    coarse = _gradients(whole.pixels, [_WHOLE], _COARSE)[0]
    likely, window = _best(coarse, larger, _STARTS, _COARSE)
    if likely < _HOPELESS:
        return False
    value, window = _best(whole.gradients, larger, [window, _WHOLE], _FINE)
    for step in _STEPS:
        for _ in range(_ROUNDS):
            moved, nearer = _best(whole.gradients, larger, _near(window, step), _FINE)
            if moved <= value:
                break
            value, window = moved, nearer
            if value >= _SAME:
                return True
        if value < _HOPELESS:
            return False
    return False


def _near(window: Window, step: float) -> list[Window]:
    """Return the window with each one of its edges moved, and with it moved as a whole."""
    edge = np.eye(4)
    moves = np.vstack([edge, edge[:2] + edge[2:]])
    near = []
    for edges in np.array(window) + step * np.vstack([moves, -moves]):
        left, upper, right, lower = edges.clip(0.0, 1.0).round(4).tolist()
        if right - left >= _SMALLEST and lower - upper >= _SMALLEST:
            near.append((left, upper, right, lower))
    return near


def _best(gradients: Gradients, image: Picture, windows: Sequence[Window], side: int) -> tuple[float, Window]:
    """Return the correlation with the likest of some windows of a picture, and that window."""
    values = _gradients(image.pixels, windows, side) @ gradients
    best = int(np.argmax(values))
    return float(values[best]), windows[best]


def _gradients(pixels: NDArray[np.uint8], windows: Sequence[Window], side: int) -> Gradients:
    """Return the gradients (W, G) of windows of a picture, each made `side` wide and high."""
    across = np.stack([_weights(left, right, side) for left, _, right, _ in windows])
    down = np.stack([_weights(upper, lower, side) for _, upper, _, lower in windows])
    small = down @ pixels.astype(np.float32) @ across.transpose(0, 2, 1)
    to_right = small[:, 1:, 1:] - small[:, 1:, :-1]
    to_bottom = small[:, 1:, 1:] - small[:, :-1, 1:]
    slopes = np.concatenate((to_right, to_bottom), axis=1).reshape(len(windows), -1)
    lengths = np.linalg.norm(slopes, axis=1, keepdims=True)
    gradients: Gradients = np.divide(slopes, lengths, out=np.zeros_like(slopes), where=lengths > _BLANK)
    return gradients


@lru_cache(maxsize=4096)
def _weights(start: float, end: float, side: int) -> NDArray[np.float32]:
    """Return how much each pixel (S) counts in the means of `side` equal parts of a stretch, (side, S)."""
    edges = np.linspace(start * _SIDE, end * _SIDE, side + 1)[:, None]
    pixels = np.arange(_SIDE)
    covered = np.minimum(edges[1:], pixels + 1) - np.maximum(edges[:-1], pixels)
    weights: NDArray[np.float32] = (covered.clip(0) / (edges[1:] - edges[:-1])).astype(np.float32)
    return weights


def _windows() -> tuple[Window, ...]:
    windows = [_WHOLE]
    for share in (0.92, 0.84, 0.76):
        offsets = (0.0, (1 - share) / 2, 1 - share)
        windows += [(x, y, x + share, y + share) for x in offsets for y in offsets]
    return tuple(windows)


_STARTS: Final = _windows()
