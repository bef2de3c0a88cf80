"""Handwritten digits of 28 x 28 pixels, drawn by strokes; no two are alike."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from training.samples.canvas import smooth_curve

GLYPH_SIZE: Final = 28
_WRITING_SIZE: Final = 20.0
_MARGIN: Final = 2.75
_STEPS: Final = 4
_STREAM: Final = 28
# Several forms of each digit. A stroke is a smooth curve through points; x goes right and y down, from 0 to
# 100. A slash ends a stroke and makes a corner, o closes one.
_FORMS: Final = """
0  50,0 27,14 19,45 24,80 50,100 75,83 81,50 74,16 o
0  62,3 36,6 20,34 21,72 42,99 68,90 81,55 74,18 50,2
1  50,0 50,50 50,100
1  32,22 44,12 54,0 / 54,0 53,50 52,100
1  52,0 49,35 50,70 48,100
2  18,24 30,6 54,0 76,12 76,33 60,57 38,79 16,97 / 16,97 48,95 84,97
2  20,20 38,2 64,4 77,22 68,46 50,70 30,92 15,93 16,80 32,78 52,91 70,99 88,92
2  22,14 48,0 72,8 76,28 58,58 18,98 / 18,98 46,90 66,100 86,94
3  20,13 42,0 68,7 72,25 58,42 38,47 / 38,47 66,51 80,70 70,92 44,100 16,88
3  20,4 50,3 78,3 / 78,3 60,22 42,42 / 42,42 70,48 80,70 68,92 42,100 16,90
3  22,10 50,0 74,12 68,34 44,46 46,50 74,58 78,80 56,98 20,94
4  26,4 20,30 17,53 / 17,53 50,55 86,50 / 74,4 69,50 64,100
4  62,0 38,33 12,65 / 12,65 50,66 90,63 / 64,0 64,50 62,100
4  24,2 18,28 22,50 44,54 76,46 / 78,6 74,52 68,100
5  78,3 54,2 32,4 / 32,4 28,22 25,42 / 25,42 48,36 73,48 78,71 62,94 36,100 14,90
5  34,8 29,26 25,46 / 25,46 50,40 73,54 72,80 50,99 18,94 / 32,8 58,7 84,0
5  80,0 52,4 36,10 28,38 44,44 68,56 70,80 46,99 16,96
6  66,0 42,20 25,48 20,76 36,98 62,97 76,78 64,58 42,58 24,74
6  58,0 34,24 22,58 28,90 52,100 74,86 70,64 50,54 30,64 23,80
6  46,0 28,34 20,70 34,97 62,96 74,80 58,68 34,74 24,84
7  16,6 48,5 82,3 / 82,3 62,42 44,100
7  16,6 48,6 82,3 / 82,3 62,42 46,100 / 36,54 60,50 82,50
7  18,20 19,6 / 19,6 46,10 78,3 / 78,3 70,40 62,100
8  74,14 52,0 28,12 34,36 60,54 77,78 54,100 26,84 38,58 66,36 o
8  50,0 30,10 30,34 50,46 70,34 70,10 o / 50,46 25,60 25,88 50,100 75,88 75,60 o
8  78,8 46,0 26,16 44,42 68,64 70,90 46,100 28,84 42,60 64,36 80,8
9  74,16 50,0 27,14 24,38 44,52 66,40 75,16 / 75,16 71,55 62,100
9  76,12 54,0 28,12 24,36 44,48 68,36 77,12 78,52 68,88 44,100 22,92
9  72,10 46,4 26,24 36,46 60,38 74,8 / 74,8 72,50 70,100
"""

Line = npt.NDArray[np.float64]
Glyphs = npt.NDArray[np.uint8]


def draw_glyphs(seed: int, variants: int) -> Glyphs:
    """Digits (10, V, 28, 28) in uint8, white on black, in V handwritings each.

    As in MNIST, the writing fits into 20 x 20 pixels and its centre of mass is near the middle. Variant v of
    a digit is the same whatever V is.
    """
    glyphs = np.empty((10, variants, GLYPH_SIZE, GLYPH_SIZE), dtype=np.uint8)
    for digit in range(10):
        lines = [line[1:] for line in _FORMS.splitlines() if line.startswith(str(digit))]
        forms = [[stroke.strip() for stroke in line.split("/")] for line in lines]
        for variant in range(variants):
            glyphs[digit, variant] = _draw(forms, np.random.default_rng([seed, _STREAM, digit, variant]))
    return glyphs


def _draw(forms: Sequence[Sequence[str]], rng: np.random.Generator) -> Glyphs:
    form = forms[int(rng.integers(len(forms)))]
    lines = [_unsteady(line, rng) for line in _write(form, rng)]
    # Pulled up or down and to a side around the middle, as loops are larger in one hand than in another.
    pull = rng.normal(0.0, (4.0, 5.0))
    lines = [line + pull * np.sin(np.pi * line[:, 1:] / 100) for line in lines]
    # Slanted, turned and stretched as one hand does it.
    slant, turn = rng.normal(0.15, 0.17), np.deg2rad(rng.normal(0.0, 5.0))
    stretch = np.diag([float(np.exp(rng.normal(-0.03, 0.15))), 1.0])
    shear = np.array([[1.0, -slant], [0.0, 1.0]])
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    lines = [line @ (rotation @ shear @ stretch).T for line in lines]
    return _ink(_fit(lines), half_width=float(rng.uniform(0.85, 1.75)), rng=rng)


def _write(form: Sequence[str], rng: np.random.Generator) -> list[Line]:
    """The strokes of a form as polylines, each point missed by a little, corners still joined."""
    strokes = [stroke.removesuffix(" o").split() for stroke in form]
    points = dict.fromkeys(point for stroke in strokes for point in stroke)
    centres = [[int(number) for number in point.split(",")] for point in points]
    missed = dict(zip(points, rng.normal(centres, 2.0).tolist(), strict=True))
    return [
        np.array(smooth_curve([missed[point] for point in points], closed=text.endswith(" o"), steps=_STEPS))
        for points, text in zip(strokes, form, strict=True)
    ]


def _unsteady(line: Line, rng: np.random.Generator) -> Line:
    """A line bent by a slow wave."""
    phase = rng.uniform(0.0, 2 * np.pi, 2)
    return line + rng.normal(0.0, 1.4, 2) * np.sin(2 * np.pi * line[:, ::-1] / 100 + phase)


def _fit(lines: Sequence[Line]) -> list[Line]:
    """Enlarged to 20 pixels, with the middle of the ink in the middle of the glyph as far as it fits."""
    points = np.concatenate(lines)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = _WRITING_SIZE / float((high - low).max())
    starts, ends = _segments(lines)
    lengths = np.hypot(*(ends - starts).T)[:, None]
    mass = (lengths * (starts + ends) / 2).sum(axis=0) / lengths.sum()
    least, most = _MARGIN - low * scale, GLYPH_SIZE - _MARGIN - high * scale
    shift = np.clip(GLYPH_SIZE / 2 - mass * scale, least, most)
    return [line * scale + shift for line in lines]


def _ink(lines: Sequence[Line], half_width: float, rng: np.random.Generator) -> Glyphs:
    """Lines in pixels, drawn with a round pen that presses harder at one end."""
    starts, ends = _segments(lines)
    (x, y), (along_x, along_y) = starts.T, (ends - starts).T
    axis = np.arange(GLYPH_SIZE) + 0.5
    # Distance of every pixel (row, column) from every segment.
    to_x, to_y = axis[None, :, None] - x, axis[:, None, None] - y
    share = (to_x * along_x + to_y * along_y) / np.maximum(along_x**2 + along_y**2, 1e-9)
    share.clip(0.0, 1.0, out=share)
    gap = np.hypot(to_x - share * along_x, to_y - share * along_y)
    pressure = half_width * (1.0 + rng.uniform(-0.2, 0.2) * np.linspace(-1.0, 1.0, len(starts)))
    inside = (pressure - gap).max(axis=2)
    ink: Glyphs = np.rint(255.0 * (0.5 + inside / rng.uniform(0.9, 1.5)).clip(0.0, 1.0)).astype(np.uint8)
    return ink


def _segments(lines: Sequence[Line]) -> tuple[Line, Line]:
    """Starts and ends of the lines' segments, each of shape (N, 2)."""
    return np.concatenate([line[:-1] for line in lines]), np.concatenate([line[1:] for line in lines])
