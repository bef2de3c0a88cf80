"""Soft shapes and smooth noise on a unit square, from which the sample images are drawn."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

Array = npt.NDArray[np.floating]
Point = tuple[float, float]
Stroke = tuple[Sequence[Point], float]
_THIN: Final = 8


def smooth_curve(points: Sequence[Point], *, closed: bool, steps: int = 8) -> list[Point]:
    """A Catmull-Rom curve through the points, as a polyline."""
    known = np.asarray(points, dtype=np.float64)
    padded = (
        np.vstack([known[-1:], known, known[:2]])
        if closed
        else np.vstack([2 * known[0] - known[1], known, 2 * known[-1] - known[-2]])
    )
    windows = np.stack([padded[:-3], padded[1:-2], padded[2:-1], padded[3:]], axis=1)
    curve = np.einsum("tk,nkd->ntd", _catmull_rom(steps), windows).reshape(-1, 2)
    end = known[:1] if closed else known[-1:]
    return [(x, y) for x, y in np.vstack([curve, end]).tolist()]


@cache
def _catmull_rom(steps: int) -> npt.NDArray[np.float64]:
    """Weights of four neighbouring points at `steps` places between the middle two, of shape (steps, 4)."""
    t = np.linspace(0.0, 1.0, steps, endpoint=False)[:, None]
    powers = np.concatenate([np.ones_like(t), t, t**2, t**3], axis=1)
    basis = np.array([[0, 2, 0, 0], [-1, 0, 1, 0], [2, -5, 4, -1], [-1, 3, -3, 1]], dtype=np.float64)
    return powers @ (basis / 2)


class SoftCanvas:
    """Soft grey shapes of `size` x `size` pixels; coordinates run from 0 to 1.

    A shape is drawn at twice the size inside the box that it needs, made smaller and blurred; `blur` is the
    standard deviation as a share of the width.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def polygon(self, points: Sequence[Point], *, blur: float = 0.004) -> Array:
        """The inside of a smooth closed curve, 1 inside and 0 outside."""
        curve = smooth_curve(points, closed=True)
        return self._draw([curve], 0.0, blur, lambda draw, lines: draw.polygon(lines[0], fill=255))

    def ellipse(self, centre: Point, radii: Point, *, blur: float = 0.004) -> Array:
        """A filled ellipse."""
        (x, y), (rx, ry) = centre, radii
        box = [(x - rx, y - ry), (x + rx, y + ry)]
        return self._draw([box], 0.0, blur, lambda draw, lines: draw.ellipse(lines[0], fill=255))

    def strokes(self, lines: Sequence[Stroke], *, blur: float = 0.002, smooth: bool = True) -> Array:
        """Open curves, each with its width."""
        curves = [smooth_curve(points, closed=False) if smooth else list(points) for points, _ in lines]
        widths = [max(1, round(2 * self.size * width)) for _, width in lines]

        def paint(draw: ImageDraw.ImageDraw, placed: list[list[Point]]) -> None:
            for curve, width in zip(placed, widths, strict=True):
                # Round joints cost much and can only be seen on wide lines.
                draw.line(curve, fill=255, width=width, joint="curve" if width > _THIN else None)

        return self._draw(curves, max(width for _, width in lines), blur, paint)

    def grid(self) -> tuple[Array, Array]:
        """The x and y of every pixel's centre, each of shape (S, S)."""
        axis = (np.arange(self.size, dtype=np.float32) + 0.5) / self.size
        return np.tile(axis, (self.size, 1)), np.tile(axis[:, None], (1, self.size))

    def _draw(
        self,
        curves: list[list[Point]],
        width: float,
        blur: float,
        paint: Callable[[ImageDraw.ImageDraw, list[list[Point]]], None],
    ) -> Array:
        size, margin = self.size, width + 4 * blur + 2 / self.size
        across = [x for curve in curves for x, _ in curve]
        down = [y for curve in curves for _, y in curve]
        left, right = self._pixels(min(across) - margin), self._pixels(max(across) + margin)
        top, bottom = self._pixels(min(down) - margin), self._pixels(max(down) + margin)
        whole = np.zeros((size, size), dtype=np.float32)
        if left == right or top == bottom:
            return whole
        box = Image.new("L", (2 * (right - left), 2 * (bottom - top)))
        placed = [[(2 * (x * size - left), 2 * (y * size - top)) for x, y in curve] for curve in curves]
        paint(ImageDraw.Draw(box), placed)
        soft = box.reduce(2).filter(ImageFilter.GaussianBlur(blur * size))
        whole[top:bottom, left:right] = np.asarray(soft, dtype=np.float32) / np.float32(255.0)
        return whole

    def _pixels(self, share: float) -> int:
        return min(self.size, max(0, math.floor(share * self.size)))


def smooth_noise(rng: np.random.Generator, size: int, cells: int) -> Array:
    """Noise of shape (S, S) from -1 to 1 that changes over about 1/`cells` of the width."""
    coarse = Image.fromarray(rng.uniform(-1.0, 1.0, (cells, cells)).astype(np.float32))
    return np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), dtype=np.float32)


def sigmoid(values: Array) -> Array:
    """A soft step from 0 to 1, without overflow."""
    step: Array = (0.5 * (1.0 + np.tanh(0.5 * values))).astype(np.float32)
    return step


def pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    """One of several texts, all equally likely."""
    return choices[int(rng.integers(len(choices)))]
