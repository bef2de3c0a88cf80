"""Draws the normal anatomy of a frontal chest film; the patient's right is on the left."""

import math
from typing import Final

import numpy as np

from training.samples.canvas import Array, Point, SoftCanvas, Stroke
from training.samples.radiographs.factors import SEVERITY, Film, Side

HILA: Final[dict[Side, Point]] = {"right": (0.415, 0.46), "left": (0.59, 0.435)}
_LUNG: Final[tuple[Point, ...]] = (
    (0.375, 0.105), (0.29, 0.145), (0.215, 0.26), (0.165, 0.42), (0.135, 0.58), (0.12, 0.72), (0.125, 0.815),
    (0.17, 0.775), (0.25, 0.735), (0.34, 0.73), (0.42, 0.77), (0.445, 0.64), (0.45, 0.46), (0.45, 0.30),
    (0.435, 0.17),
)  # fmt: skip


class FrontalAnatomy:
    """The chest of one film; each part is the attenuation that it adds along the ray.

    Attributes:
        canvas: Canvas of the drawing.
        wide: Breadth of the chest, around 1.
        depth: Offset of the diaphragm below its average position, as a share of the height.
        lungs: The inside of each lung.
    """

    def __init__(self, canvas: SoftCanvas, film: Film, rng: np.random.Generator) -> None:
        self.canvas = canvas
        self._film = film
        self._rng = rng
        self._build = np.random.default_rng(film.patient.build_seed)
        self.wide = float(self._build.uniform(0.94, 1.06))
        self.depth = float(self._build.uniform(-0.02, 0.035)) - (0.035 if film.view == "AP" else 0.0)
        self.lungs: dict[Side, Array] = {side: canvas.polygon(self.lung(side), blur=0.007) for side in HILA}

    def tissue(self, aerated: Array) -> Array:
        """Attenuation of a healthy chest along the ray.

        Args:
            aerated: Mask (S, S) of lung with vessels.
        """
        chest = self._body() - 0.50 * (self.lungs["right"] + self.lungs["left"]) + self._centre()
        return chest + self._heart() + self._vessels(aerated) + self._bones() + self._abdomen()

    def lung(self, side: Side) -> list[Point]:
        """The outline of a lung."""
        low = self.depth - (0.0 if side == "right" else -0.012)
        points = [(0.5 + (x - 0.5) * self.wide, y + low * max(0.0, (y - 0.3) / 0.5)) for x, y in _LUNG]
        return points if side == "right" else [(1.0 - x, y) for x, y in points]

    def _body(self) -> Array:
        half = [(0.435, -0.1), (0.425, 0.06), (0.33, 0.095), (0.16, 0.135), (0.03, 0.20), (-0.08, 0.34)]
        half += [(-0.02, 0.45), (0.055, 0.52), (0.065, 0.75), (0.05, 1.1)]
        outline = [(0.5 + (x - 0.5) * self.wide, y) for x, y in half]
        body = 0.66 * self.canvas.polygon(
            [*outline, *[(1.0 - x, y) for x, y in reversed(outline)]], blur=0.012
        )
        if self._film.patient.sex == "F":
            heights = 0.66 + float(self._build.uniform(-0.02, 0.04))
            for x in (0.27, 0.73):
                body = body + 0.11 * self.canvas.ellipse((x, heights), (0.15, 0.13), blur=0.022)
        return body

    def _centre(self) -> Array:
        x, y = self.canvas.grid()
        column = np.exp(-(((x - 0.5) / 0.055) ** 4))
        vertebrae = (
            0.05 * np.cos(2 * math.pi * y * 15).astype(np.float32) * np.exp(-(((x - 0.5) / 0.04) ** 4))
        )
        windpipe = self.canvas.strokes([([(0.5, -0.05), (0.5, 0.2), (0.495, 0.36)], 0.038)], blur=0.008)
        knob = self.canvas.ellipse((0.555, 0.275), (0.045, 0.05), blur=0.008)
        great = self.canvas.polygon(
            [(0.45, 0.12), (0.56, 0.12), (0.575, 0.3), (0.57, 0.5), (0.43, 0.5)], blur=0.012
        )
        centre: Array = 0.14 * column + vertebrae + 0.16 * knob + 0.14 * great - 0.13 * windpipe
        return centre

    def _heart(self) -> Array:
        finding = self._film.finding("Cardiomegaly")
        grow = 1.0 if finding is None else 1.38 + 0.22 * SEVERITY[finding.size]
        grow *= 1.06 if self._film.view == "AP" else 1.0
        low = self.depth * 0.9
        right, left = 0.075 * (0.6 + 0.4 * grow), 0.175 * grow
        outline = [(0.5 - right, 0.66), (0.5 - right * 0.8, 0.53), (0.49, 0.43), (0.56, 0.42)]
        outline += [(0.5 + left * 0.62, 0.52), (0.5 + left, 0.68), (0.5 + left * 0.93, 0.77), (0.52, 0.81)]
        outline += [(0.5 - right * 0.7, 0.78)]
        return 0.40 * self.canvas.polygon([(x, y + low) for x, y in outline], blur=0.007)

    def _abdomen(self) -> Array:
        dome = [(-0.1, 0.84), (0.125, 0.815), (0.2, 0.75), (0.3, 0.73), (0.42, 0.77), (0.5, 0.80)]
        dome += [
            (0.6, 0.785),
            (0.7, 0.745),
            (0.8, 0.765),
            (0.875, 0.83),
            (1.1, 0.85),
            (1.1, 1.2),
            (-0.1, 1.2),
        ]
        below = self.canvas.polygon([(x, y + self.depth) for x, y in dome], blur=0.01)
        bubble = self.canvas.ellipse((0.68, 0.855 + self.depth), (0.065, 0.04), blur=0.012)
        return 0.28 * below - 0.26 * bubble * float(self._build.random() < 0.8)

    def _bones(self) -> Array:
        back: list[Stroke] = []
        front: list[Stroke] = []
        for number in range(9):
            y = 0.12 + 0.072 * number
            out = min(0.385, 0.17 + 0.048 * number) * self.wide
            for sign in (-1, 1):
                ends = [(0.05, y), (out * 0.55, y - 0.012), (out * 0.93, y + 0.045), (out, y + 0.10)]
                back.append(([(0.5 + sign * x, y) for x, y in ends], 0.024))
                if 1 <= number <= 6:
                    ends = [(out, y + 0.08), (out * 0.8, y + 0.145), (out * 0.45, y + 0.175)]
                    front.append(([(0.5 + sign * x, y) for x, y in ends], 0.026))
        ribs: Array = 0.095 * self._cortical(back) + 0.055 * self._cortical(front)
        return ribs + 0.17 * self._cortical(self._collar_bones()) + self._shoulder_blades()

    def _collar_bones(self) -> list[Stroke]:
        lift = 0.025 if self._film.view == "AP" else 0.0
        half = [(0.045, 0.205), (0.15, 0.175), (0.25, 0.178), (0.345, 0.155)]
        return [([(0.5 + sign * x, y - lift) for x, y in half], 0.03) for sign in (-1, 1)]

    def _cortical(self, lines: list[Stroke]) -> Array:
        inner = [(points, width * 0.55) for points, width in lines]
        return self.canvas.strokes(lines, blur=0.003) - 0.35 * self.canvas.strokes(inner, blur=0.003)

    def _shoulder_blades(self) -> Array:
        inward = 0.05 if self._film.view == "AP" else 0.0
        half = [
            (0.13, 0.16),
            (0.20 + inward, 0.2),
            (0.19 + inward, 0.34),
            (0.14 + inward, 0.42),
            (0.09, 0.26),
        ]
        right = self.canvas.polygon(half, blur=0.006)
        left = self.canvas.polygon([(1.0 - x, y) for x, y in half], blur=0.006)
        return 0.08 * (right + left)

    def _vessels(self, aerated: Array) -> Array:
        lines: list[Stroke] = []
        for side, (x, y) in HILA.items():
            away = -1.0 if side == "right" else 1.0
            for angle in np.linspace(-1.25, 1.25, 11):
                reach = float(self._rng.uniform(0.13, 0.26))
                turn = float(angle + self._rng.normal(0.0, 0.12))
                middle = (x + away * 0.5 * reach * math.cos(turn), y + 0.5 * reach * math.sin(turn) * 1.25)
                for bend in (-0.25, 0.25):
                    end = (
                        x + away * reach * math.cos(turn + bend),
                        y + reach * math.sin(turn + bend) * 1.25,
                    )
                    lines.append(([(x, y), middle, end], 0.0055))
                lines.append(([(x, y), middle], 0.011))
        tree = self.canvas.strokes(lines, blur=0.0035)
        roots = sum(
            (self.canvas.ellipse(place, (0.032, 0.062), blur=0.014) for place in HILA.values()),
            start=np.zeros_like(tree),
        )
        return 0.11 * tree * aerated + 0.10 * roots
