"""Text that was burned into the pixels of a film: strokes of letters' size, sharp on both sides, in rows."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from training.imaging.artefacts import components

Grey = NDArray[np.uint8]
Numbers = NDArray[np.int64]

# Grey levels from which a stroke is light; dark strokes are those of the negative.
_LEVELS: Final = (235, 160)
# A stroke ends within so many pixels, by so many grey levels.
_EDGE: Final = 3
_CONTRAST: Final = 50
# Heights of letters: in pixels, and as a share of the film.
_LOWEST: Final = 6
_HIGHEST: Final = 0.16
_WIDEST: Final = 1.7
# Letters that touch: strokes in a row for each height of width, and their width in heights.
_STROKES: Final = 1.0
_PITCH: Final = 0.8
_FULLEST: Final = 0.92
_EMPTIEST: Final = 0.1
# Letters of a line: side markers with the initials of who made the film have no more than three.
_FEWEST: Final = 4
_MOST_LETTERS: Final = 3000
_MOST_RUNS: Final = 400_000


def find_text(grey: Grey) -> str:
    """Return where a film (H, W) seems to have text, such as "at the top left"; "" where there is none.

    A row of at least four letters counts; single letters, as side markers have them, do not.
    """
    for picture in (grey, 255 - grey):
        for level in _LEVELS:
            line = _line(_letters(picture, level))
            if line is not None:
                row, column = line[:, 0].mean() / grey.shape[0], line[:, 2].mean() / grey.shape[1]
                return f"at the {'top' if row < 0.5 else 'bottom'} {'left' if column < 0.5 else 'right'}"
    return ""


def _letters(picture: Grey, level: int) -> Numbers:
    """Return the boxes of what has the size of letters: top, bottom, left, right (N, 4)."""
    runs = _strokes(picture, level)
    if not len(runs) or len(runs) > _MOST_RUNS:
        return np.empty((0, 4), np.int64)
    labels = _joined(runs)
    row, start, end = runs.T
    count = int(labels.max()) + 1
    boxes = np.tile(np.array([picture.shape[0], 0, picture.shape[1], 0], np.int64), (count, 1))
    np.minimum.at(boxes[:, 0], labels, row)
    np.maximum.at(boxes[:, 1], labels, row + 1)
    np.minimum.at(boxes[:, 2], labels, start)
    np.maximum.at(boxes[:, 3], labels, end)
    area = np.bincount(labels, end - start, count)
    height, width = boxes[:, 1] - boxes[:, 0], boxes[:, 3] - boxes[:, 2]
    full = area / (height * width)
    tallest = max(2 * _LOWEST, _HIGHEST * picture.shape[0])
    fits = (height >= _LOWEST) & (height <= tallest) & (full >= _EMPTIEST)
    # A letter such as I fills its box; wider ones do not.
    fits &= (full <= _FULLEST) | (width <= 0.35 * height)
    # Letters that touch have several strokes in most rows.
    strokes = np.bincount(labels, minlength=count) / height
    fits &= (width <= _WIDEST * height) | (strokes >= _STROKES * width / height)
    letters: Numbers = boxes[fits][:_MOST_LETTERS]
    return letters


def _strokes(picture: Grey, level: int) -> Numbers:
    """Return the runs of light pixels in rows that are sharp on both sides: row, start, end (N, 3)."""
    padded = np.pad(picture, ((0, 0), (1, 1)), mode="edge")
    light = padded >= level
    light[:, 0] = light[:, -1] = False
    changes = np.flatnonzero(np.diff(light.ravel()))
    rows, columns = np.divmod(changes, light.shape[1])
    row, start, end = rows[::2], columns[::2], columns[1::2]
    # No horizontal stroke of a letter is longer.
    longest = _WIDEST * max(2 * _LOWEST, _HIGHEST * picture.shape[0])
    kept = end - start <= longest
    row, start, end = row[kept], start[kept], end[kept]
    reach = np.arange(1, _EDGE + 1)[:, None]
    left = picture[row, np.maximum(start - reach, 0)].min(axis=0)
    right = picture[row, np.minimum(end - 1 + reach, picture.shape[1] - 1)].min(axis=0)
    sharp = np.maximum(left, right) <= level - _CONTRAST
    runs: Numbers = np.stack([row, start, end], axis=1)[sharp].astype(np.int64)
    return runs


def _joined(runs: Numbers) -> Numbers:
    """Number the connected groups of runs: those of neighbouring rows that overlap."""
    row, start, end = runs.T
    width = int(end.max()) + 2
    # Runs are in order, so those of the next row that overlap are consecutive.
    first = np.searchsorted(row * width + end, (row + 1) * width + start, side="right")
    last = np.searchsorted(row * width + start, (row + 1) * width + end, side="left")
    counts = np.maximum(last - first, 0)
    above = np.repeat(np.arange(len(runs)), counts)
    below = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    return components(len(runs), above, below)


def _line(boxes: Numbers) -> Numbers | None:
    """Return the boxes of the longest row of letters; None where none has enough."""
    if len(boxes) < _FEWEST:
        return None
    boxes = boxes[np.argsort(boxes[:, 2])]
    top, bottom, left, right = boxes.astype(np.float64).T
    height = bottom - top
    tall = np.maximum(height[:, None], height)
    alike = tall <= 1.7 * np.minimum(height[:, None], height)
    level = (np.abs(bottom[:, None] - bottom) <= 0.25 * tall) | (np.abs(top[:, None] - top) <= 0.25 * tall)
    gap = left - right[:, None]
    near = (gap >= -0.15 * tall) & (gap <= 0.9 * tall) & (left > left[:, None])
    one, other = np.nonzero(alike & level & near)
    labels = components(len(boxes), one, other)
    # Letters that touch are one box.
    wide = (right - left) / height
    sizes = np.bincount(labels, np.where(wide > _WIDEST, np.rint(wide / _PITCH), 1))
    longest = int(sizes.argmax())
    return boxes[labels == longest] if sizes[longest] >= _FEWEST else None
