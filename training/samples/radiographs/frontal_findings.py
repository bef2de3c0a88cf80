"""Draws findings onto a frontal chest film."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from training.samples.canvas import Array, Point, Stroke, sigmoid, smooth_noise
from training.samples.radiographs.factors import SEVERITY, Finding, Side
from training.samples.radiographs.frontal_anatomy import HILA, FrontalAnatomy

_ZONE_HEIGHTS: Final = {"upper": 0.27, "middle": 0.47, "lower": 0.65}


class FrontalFindings:
    """Attenuation that findings add along the ray to a chest."""

    def __init__(self, chest: FrontalAnatomy, rng: np.random.Generator) -> None:
        self._chest = chest
        self._canvas = chest.canvas
        self._rng = rng

    def tissue(self, finding: Finding) -> Array:
        """One finding; nothing for one that the anatomy itself shows, such as a large heart."""
        painters: dict[str, Callable[[Finding], Array]] = {
            "Pleural Effusion": self._effusion,
            "Pneumothorax": self._pneumothorax,
            "Lung Nodule": self._nodules,
            "Consolidation": self._consolidation,
            "Edema": self._edema,
            "Atelectasis": self._atelectasis,
            "Pacemaker": self._pacemaker,
            "Central Line": self._central_line,
        }
        painter = painters.get(finding.name)
        return painter(finding) if painter else np.zeros_like(self._chest.lungs["right"])

    def aerated(self, findings: tuple[Finding, ...]) -> Array:
        """Mask of lung with vessels; a collapsed part has none."""
        lungs = dict(self._chest.lungs)
        for finding in findings:
            if finding.name == "Pneumothorax" and finding.side is not None:
                lungs[finding.side] = self._collapsed(finding)
        return lungs["right"] + lungs["left"]

    def _effusion(self, finding: Finding) -> Array:
        x, y = self._canvas.grid()
        outward = (0.5 - x) if finding.side == "right" else (x - 0.5)
        height = 0.09 + 0.24 * SEVERITY[finding.size]
        surface = 0.80 + self._chest.depth - height * (0.45 + 0.85 * np.clip(outward / 0.36, 0.0, 1.0) ** 3)
        fluid = sigmoid((y - surface) / 0.011)
        wet: Array = 0.52 * fluid * self._chest.lungs[finding.side or "right"]
        return wet

    def _collapsed(self, finding: Finding) -> Array:
        return self._canvas.polygon(self._collapsed_outline(finding), blur=0.004)

    def _collapsed_outline(self, finding: Finding) -> list[Point]:
        side = finding.side or "right"
        keep = 0.86 - 0.30 * SEVERITY[finding.size]
        x0, y0 = (0.44 if side == "right" else 0.56), 0.56
        return [(x0 + (x - x0) * keep, y0 + (y - y0) * (keep + 0.04)) for x, y in self._chest.lung(side)]

    def _pneumothorax(self, finding: Finding) -> Array:
        whole = self._chest.lungs[finding.side or "right"]
        outline = self._collapsed_outline(finding)
        edge = self._canvas.strokes([([*outline, outline[0]], 0.007)], blur=0.0015)
        free = np.clip(whole - self._collapsed(finding), 0.0, 1.0)
        shrunk = 0.10 * SEVERITY[finding.size] * self._collapsed(finding)
        added: Array = 0.17 * edge * whole - 0.12 * free + 0.05 * self._collapsed(finding) + shrunk
        return added

    def _spot(self, side: Side, zone: str) -> Point:
        """A place inside a zone of a lung."""
        y = _ZONE_HEIGHTS[zone] + float(self._rng.uniform(-0.05, 0.05))
        out = {"upper": 0.175, "middle": 0.225, "lower": 0.25}[zone] + float(self._rng.uniform(-0.045, 0.045))
        return (0.5 - out * self._chest.wide if side == "right" else 0.5 + out * self._chest.wide), y

    def _nodules(self, finding: Finding) -> Array:
        radius = 0.021 + 0.022 * SEVERITY[finding.size]
        x, y = self._spot(finding.side or "right", finding.zone)
        # Several stand around one place, far enough apart to be counted.
        apart = 0.0 if finding.count == 1 else 1.4 * radius
        first = float(self._rng.uniform(0.0, math.pi))
        total = np.zeros_like(self._chest.lungs["right"])
        for number in range(finding.count):
            angle = first + 2.0 * math.pi * number / finding.count
            centre = (x + apart * math.cos(angle), y + apart * math.sin(angle))
            stretch = float(self._rng.uniform(0.9, 1.1))
            disc = self._canvas.ellipse(centre, (radius * stretch, radius / stretch), blur=0.005)
            total = np.maximum(total, disc)
        return 0.33 * total

    def _consolidation(self, finding: Finding) -> Array:
        side = finding.side or "right"
        x, y = self._canvas.grid()
        height = {"upper": 0.245, "middle": 0.52, "lower": 0.69}[finding.zone]
        out = {"upper": 0.17, "middle": 0.17, "lower": 0.24}[finding.zone]
        centre = 0.5 - out * self._chest.wide if side == "right" else 0.5 + out * self._chest.wide
        spread = {"upper": 0.10, "middle": 0.062, "lower": 0.09}[finding.zone]
        texture = 0.55 * smooth_noise(self._rng, self._canvas.size, 9)
        texture = texture + 0.25 * smooth_noise(self._rng, self._canvas.size, 24)
        distance = ((x - centre) / 0.145) ** 2 + ((y - height) / spread) ** 2
        patch = sigmoid(5.0 * (1.0 - distance - 0.8 * texture))
        opacity: Array = 0.42 * patch * self._chest.lungs[side] * (1.0 + 0.45 * texture)
        return opacity

    def _edema(self, finding: Finding) -> Array:
        x, y = self._canvas.grid()
        haze = sum(
            (np.exp(-(((x - hx) / 0.15) ** 2) - ((y - hy - 0.05) / 0.19) ** 2) for hx, hy in HILA.values()),
            start=np.zeros_like(x),
        )
        texture = 1.0 + 0.35 * smooth_noise(self._rng, self._canvas.size, 22)
        strength = 0.17 + 0.15 * SEVERITY[finding.size]
        wet: Array = strength * haze * texture * (self._chest.lungs["right"] + self._chest.lungs["left"])
        return wet

    def _atelectasis(self, finding: Finding) -> Array:
        side = finding.side or "right"
        lines: list[Stroke] = []
        for number in range(3):
            y = 0.665 + 0.033 * number + self._chest.depth
            points = [(0.20, y + 0.008), (0.29, y - 0.006), (0.38 - 0.02 * number, y + 0.012)]
            lines.append(([(x if side == "right" else 1.0 - x, y) for x, y in points], 0.010))
        return 0.27 * self._canvas.strokes(lines, blur=0.0025) * self._chest.lungs[side]

    def _pacemaker(self, _: Finding) -> Array:
        place = (0.765 + float(self._rng.uniform(-0.02, 0.02)), 0.235 + float(self._rng.uniform(-0.02, 0.02)))
        x, y = place
        case = [(x - 0.05, y - 0.035), (x + 0.045, y - 0.045), (x + 0.055, y + 0.03), (x, y + 0.055)]
        case += [(x - 0.05, y + 0.035)]
        lead = [(x - 0.03, y - 0.03), (0.66, 0.155), (0.56, 0.19), (0.475, 0.30), (0.465, 0.48)]
        lead += [(0.49, 0.66), (0.57, 0.73)]
        body = self._canvas.polygon(case, blur=0.002)
        coil = self._canvas.strokes([(lead, 0.008)], blur=0.001)
        electrode = self._canvas.ellipse((0.57, 0.73), (0.009, 0.009), blur=0.001)
        metal: Array = 1.0 * body + 0.55 * coil + 0.7 * electrode
        return metal

    def _central_line(self, _: Finding) -> Array:
        end = 0.44 + float(self._rng.uniform(-0.03, 0.05))
        line = [(0.36, -0.02), (0.395, 0.08), (0.44, 0.18), (0.452, 0.3), (0.455, end)]
        return 0.42 * self._canvas.strokes([(line, 0.0085)], blur=0.001)
