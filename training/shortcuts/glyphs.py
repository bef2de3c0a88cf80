"""Handwritten digits of 28 x 28 pixels, drawn by strokes; no two are alike."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from training.samples.canvas import smooth_curve
from training.shortcuts.digit_strokes import DIGIT_FORMS, Stroke

GLYPH_SIZE: Final = 28
_WRITING_SIZE: Final = 20.0
_MARGIN: Final = 2.75
_STEPS: Final = 4
_STREAM: Final = 28

Line = npt.NDArray[np.float64]
Glyphs = npt.NDArray[np.uint8]


def draw_glyphs(seed: int, variants: int) -> Glyphs:
    """Digits (10, V, 28, 28) in uint8, white on black, in V handwritings each.

    As in MNIST, the writing fits into 20 x 20 pixels and its centre of mass is near the middle. Variant v of
    a digit is the same whatever V is.
    """
    glyphs = np.empty((10, variants, GLYPH_SIZE, GLYPH_SIZE), dtype=np.uint8)
    for digit, variant in np.ndindex(10, variants):
        glyphs[digit, variant] = _draw(digit, np.random.default_rng([seed, _STREAM, digit, variant]))
    return glyphs


def _draw(digit: int, rng: np.random.Generator) -> Glyphs:
    forms = DIGIT_FORMS[digit]
    form = forms[int(rng.integers(len(forms)))]
    lines = [_unsteady(line, rng) for line in _write(form, rng)]
    return _ink(_fit(_lean(_bend(lines, rng), rng)), half_width=float(rng.uniform(0.85, 1.75)), rng=rng)


def _write(form: Sequence[Stroke], rng: np.random.Generator) -> list[Line]:
    """The strokes of a form as polylines, each point missed by a little, corners still joined."""
    points = dict.fromkeys(point for stroke in form for point in stroke.points)
    missed = dict(zip(points, rng.normal(list(points), 2.0).tolist(), strict=True))
    return [
        np.array(smooth_curve([missed[point] for point in stroke.points], closed=stroke.closed, steps=_STEPS))
        for stroke in form
    ]


def _bend(lines: Sequence[Line], rng: np.random.Generator) -> list[Line]:
    """Pulled up or down and to a side around the middle, as loops are larger in one hand than in another."""
    pull = rng.normal(0.0, (4.0, 5.0))
    return [line + pull * np.sin(np.pi * line[:, 1:] / 100) for line in lines]


def _unsteady(line: Line, rng: np.random.Generator) -> Line:
    """A line bent by a slow wave."""
    phase = rng.uniform(0.0, 2 * np.pi, 2)
    return line + rng.normal(0.0, 1.4, 2) * np.sin(2 * np.pi * line[:, ::-1] / 100 + phase)


def _lean(lines: Sequence[Line], rng: np.random.Generator) -> list[Line]:
    """Slanted, turned and stretched as one hand does it."""
    slant, turn = rng.normal(0.15, 0.17), np.deg2rad(rng.normal(0.0, 5.0))
    stretch = np.diag([float(np.exp(rng.normal(-0.03, 0.15))), 1.0])
    shear = np.array([[1.0, -slant], [0.0, 1.0]])
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return [line @ (rotation @ shear @ stretch).T for line in lines]


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
