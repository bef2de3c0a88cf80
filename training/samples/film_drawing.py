"""Draws sample chest films: tissue adds up along the ray, as in a real one.

On frontal films the patient's right is on the left; on lateral ones the front is on the left.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from PIL import Image

from training.samples.canvas import Array, Point, SoftCanvas, Stroke, sigmoid, smooth_noise
from training.samples.radiographs import SEVERITY, Film, Finding, Side

_GAMMA: Final = {"low": 0.72, "normal": 1.0, "high": 1.42}
_GRAIN: Final = {"low": 0.022, "normal": 0.012, "high": 0.009}
# Attenuation that an eye can tell from the texture of the film.
_VISIBLE: Final = 0.06
_HILA: Final[dict[Side, Point]] = {"right": (0.415, 0.46), "left": (0.59, 0.435)}
_LUNG: Final[tuple[Point, ...]] = (
    (0.375, 0.105), (0.29, 0.145), (0.215, 0.26), (0.165, 0.42), (0.135, 0.58), (0.12, 0.72), (0.125, 0.815),
    (0.17, 0.775), (0.25, 0.735), (0.34, 0.73), (0.42, 0.77), (0.445, 0.64), (0.45, 0.46), (0.45, 0.30),
    (0.435, 0.17),
)  # fmt: skip


class Box(NamedTuple):
    """A box in fractions of width and height, from the left and the top."""

    x: float
    y: float
    width: float
    height: float


def draw_radiograph(film: Film, rng: np.random.Generator, size: int) -> Image.Image:
    """Draw one film in 8-bit grey.

    Args:
        film: Factors of the film.
        rng: Decides everything that is no factor: vessels, texture and noise.
        size: Width and height in pixels.
    """
    canvas = SoftCanvas(size)
    if film.view == "LATERAL":
        return _expose(_lateral(canvas, film, rng), film, rng)
    tissue, findings = _frontal(canvas, film, rng)
    for added in findings.values():
        tissue = tissue + added
    return _expose(tissue + _marker(canvas) if film.marker else tissue, film, rng)


def find_boxes(film: Film, rng: np.random.Generator, size: int) -> dict[str, Box]:
    """Boxes of the findings by name; none of a finding that the whole anatomy shows, such as a large heart.

    Args:
        film: Factors of the film.
        rng: In the same state as for the drawing of the film.
        size: Width and height of the film in pixels.
    """
    boxes = {}
    for name, tissue in _frontal(SoftCanvas(size), film, rng)[1].items():
        visible = Image.fromarray((255 * (np.abs(tissue) > _VISIBLE)).astype(np.uint8))
        if (edges := visible.rotate(film.tilt).getbbox()) is not None:
            left, top, right, bottom = (edge / size for edge in edges)
            boxes[name] = Box(left, top, right - left, bottom - top)
    return boxes


def _expose(tissue: Array, film: Film, rng: np.random.Generator) -> Image.Image:
    size = len(tissue)
    grain = rng.normal(0.0, 1.0, (size, size)).astype(np.float32)
    tissue = tissue + 0.025 * smooth_noise(rng, size, 6) + 0.012 * smooth_noise(rng, size, 40)
    light = 1.0 - np.exp(-1.15 * np.clip(tissue, 0.0, None))
    light = np.clip((light - 0.02) / 0.80, 0.0, 1.0) ** _GAMMA[film.exposure]
    grey = np.clip(light + _GRAIN[film.exposure] * grain, 0.0, 1.0)
    image = Image.fromarray((255 * grey).astype(np.uint8))
    return image.rotate(film.tilt, Image.Resampling.BICUBIC, fillcolor=6)


def _frontal(canvas: SoftCanvas, film: Film, rng: np.random.Generator) -> tuple[Array, dict[str, Array]]:
    """Attenuation (S, S) of a chest, and what each finding adds to it."""
    chest = _Chest(canvas, film, rng)
    tissue = chest.tissue(film.findings)
    return tissue, {finding.name: chest.finding(finding) for finding in film.findings}


def _marker(canvas: SoftCanvas) -> Array:
    """The letter R next to the patient's right shoulder."""
    x, y = 0.075, 0.055
    bow = [(x, y + 0.06), (x, y), (x + 0.028, y), (x + 0.036, y + 0.014), (x + 0.028, y + 0.03)]
    bow += [(x, y + 0.03)]
    leg = [(x + 0.016, y + 0.03), (x + 0.038, y + 0.06)]
    return 1.2 * canvas.strokes([(bow, 0.009), (leg, 0.009)], blur=0.0008, smooth=False)


class _Chest:
    """The frontal chest of one film; each part is the attenuation that it adds along the ray."""

    def __init__(self, canvas: SoftCanvas, film: Film, rng: np.random.Generator) -> None:
        self._canvas = canvas
        self._film = film
        self._rng = rng
        self._build = np.random.default_rng(film.patient.build_seed)
        # Breadth of the chest, around 1, and offset of the diaphragm below its average position.
        self._wide = self._build.uniform(0.94, 1.06)
        self._depth = self._build.uniform(-0.02, 0.035) - (0.035 if film.view == "AP" else 0.0)
        self._lungs = {side: canvas.polygon(self._lung(side), blur=0.007) for side in _HILA}

    def tissue(self, findings: tuple[Finding, ...]) -> Array:
        """Attenuation of the chest without what findings add."""
        aerated = dict(self._lungs)
        for finding in findings:
            if finding.name == "Pneumothorax" and finding.side is not None:
                # A collapsed part has no vessels.
                aerated[finding.side] = self._canvas.polygon(self._collapsed(finding), blur=0.004)
        vessels = self._vessels(aerated["right"] + aerated["left"])
        chest = self._body() - 0.50 * (self._lungs["right"] + self._lungs["left"]) + self._centre()
        return chest + self._heart() + vessels + self._bones() + self._abdomen()

    def finding(self, finding: Finding) -> Array:
        """What one finding adds; nothing for one that the anatomy itself shows, such as a large heart."""
        match finding.name:
            case "Pleural Effusion":
                return self._effusion(finding)
            case "Pneumothorax":
                return self._pneumothorax(finding)
            case "Lung Nodule":
                return self._nodules(finding)
            case "Consolidation":
                return self._consolidation(finding)
            case "Edema":
                return self._edema(finding)
            case "Atelectasis":
                return self._atelectasis(finding)
            case "Pacemaker":
                return self._pacemaker()
            case "Central Line":
                end = 0.44 + self._rng.uniform(-0.03, 0.05)
                line = [(0.36, -0.02), (0.395, 0.08), (0.44, 0.18), (0.452, 0.3), (0.455, end)]
                return 0.42 * self._canvas.strokes([(line, 0.0085)], blur=0.001)
        return np.zeros_like(self._lungs["right"])

    def _lung(self, side: Side) -> list[Point]:
        low = self._depth - (0.0 if side == "right" else -0.012)
        points = [(0.5 + (x - 0.5) * self._wide, y + low * max(0.0, (y - 0.3) / 0.5)) for x, y in _LUNG]
        return points if side == "right" else _mirrored(points)

    def _body(self) -> Array:
        half = [(0.435, -0.1), (0.425, 0.06), (0.33, 0.095), (0.16, 0.135), (0.03, 0.20), (-0.08, 0.34)]
        half += [(-0.02, 0.45), (0.055, 0.52), (0.065, 0.75), (0.05, 1.1)]
        outline = [(0.5 + (x - 0.5) * self._wide, y) for x, y in half]
        body = 0.66 * self._canvas.polygon([*outline, *_mirrored(outline[::-1])], blur=0.012)
        if self._film.patient.sex == "F":
            heights = 0.66 + self._build.uniform(-0.02, 0.04)
            for x in (0.27, 0.73):
                body = body + 0.11 * self._canvas.ellipse((x, heights), (0.15, 0.13), blur=0.022)
        return body

    def _centre(self) -> Array:
        x, y = self._canvas.grid()
        column = np.exp(-(((x - 0.5) / 0.055) ** 4))
        waves = np.cos(2 * math.pi * y * 15).astype(np.float32)
        vertebrae = 0.05 * waves * np.exp(-(((x - 0.5) / 0.04) ** 4))
        windpipe = self._canvas.strokes([([(0.5, -0.05), (0.5, 0.2), (0.495, 0.36)], 0.038)], blur=0.008)
        knob = self._canvas.ellipse((0.555, 0.275), (0.045, 0.05), blur=0.008)
        vessels = [(0.45, 0.12), (0.56, 0.12), (0.575, 0.3), (0.57, 0.5), (0.43, 0.5)]
        great = self._canvas.polygon(vessels, blur=0.012)
        centre: Array = 0.14 * column + vertebrae + 0.16 * knob + 0.14 * great - 0.13 * windpipe
        return centre

    def _heart(self) -> Array:
        finding = self._film.finding("Cardiomegaly")
        grow = 1.0 if finding is None else 1.38 + 0.22 * SEVERITY[finding.size]
        grow *= 1.06 if self._film.view == "AP" else 1.0
        low = self._depth * 0.9
        right, left = 0.075 * (0.6 + 0.4 * grow), 0.175 * grow
        outline = [(0.5 - right, 0.66), (0.5 - right * 0.8, 0.53), (0.49, 0.43), (0.56, 0.42)]
        outline += [(0.5 + left * 0.62, 0.52), (0.5 + left, 0.68), (0.5 + left * 0.93, 0.77), (0.52, 0.81)]
        outline += [(0.5 - right * 0.7, 0.78)]
        return 0.40 * self._canvas.polygon([(x, y + low) for x, y in outline], blur=0.007)

    def _abdomen(self) -> Array:
        dome = [(-0.1, 0.84), (0.125, 0.815), (0.2, 0.75), (0.3, 0.73), (0.42, 0.77), (0.5, 0.80)]
        dome += [(0.6, 0.785), (0.7, 0.745), (0.8, 0.765), (0.875, 0.83), (1.1, 0.85), (1.1, 1.2)]
        dome += [(-0.1, 1.2)]
        below = self._canvas.polygon([(x, y + self._depth) for x, y in dome], blur=0.01)
        bubble = self._canvas.ellipse((0.68, 0.855 + self._depth), (0.065, 0.04), blur=0.012)
        return 0.28 * below - 0.26 * bubble * float(self._build.random() < 0.8)

    def _bones(self) -> Array:
        back: list[Stroke] = []
        front: list[Stroke] = []
        for number in range(9):
            y = 0.12 + 0.072 * number
            out = min(0.385, 0.17 + 0.048 * number) * self._wide
            for sign in (-1, 1):
                ends = [(0.05, y), (out * 0.55, y - 0.012), (out * 0.93, y + 0.045), (out, y + 0.10)]
                back.append(([(0.5 + sign * x, y) for x, y in ends], 0.024))
                if 1 <= number <= 6:
                    ends = [(out, y + 0.08), (out * 0.8, y + 0.145), (out * 0.45, y + 0.175)]
                    front.append(([(0.5 + sign * x, y) for x, y in ends], 0.026))
        lift, inward = (0.025, 0.05) if self._film.view == "AP" else (0.0, 0.0)
        half = [(0.045, 0.205), (0.15, 0.175), (0.25, 0.178), (0.345, 0.155)]
        collar: list[Stroke] = [([(0.5 + sign * x, y - lift) for x, y in half], 0.03) for sign in (-1, 1)]
        blade = [(0.13, 0.16), (0.20 + inward, 0.2), (0.19 + inward, 0.34), (0.14 + inward, 0.42)]
        blade += [(0.09, 0.26)]
        blades = self._canvas.polygon(blade, blur=0.006) + self._canvas.polygon(_mirrored(blade), blur=0.006)
        ribs: Array = 0.095 * self._cortical(back) + 0.055 * self._cortical(front)
        return ribs + 0.17 * self._cortical(collar) + 0.08 * blades

    def _cortical(self, lines: list[Stroke]) -> Array:
        inner = [(points, width * 0.55) for points, width in lines]
        return self._canvas.strokes(lines, blur=0.003) - 0.35 * self._canvas.strokes(inner, blur=0.003)

    def _vessels(self, aerated: Array) -> Array:
        lines: list[Stroke] = []
        for side, (x, y) in _HILA.items():
            away = -1.0 if side == "right" else 1.0
            for angle in np.linspace(-1.25, 1.25, 11).tolist():
                reach = self._rng.uniform(0.13, 0.26)
                turn = angle + self._rng.normal(0.0, 0.12)
                middle = (x + away * 0.5 * reach * math.cos(turn), y + 0.5 * reach * math.sin(turn) * 1.25)
                for bend in (turn - 0.25, turn + 0.25):
                    end = (x + away * reach * math.cos(bend), y + reach * math.sin(bend) * 1.25)
                    lines.append(([(x, y), middle, end], 0.0055))
                lines.append(([(x, y), middle], 0.011))
        tree = self._canvas.strokes(lines, blur=0.0035)
        roots = np.zeros_like(tree)
        for hilum in _HILA.values():
            roots = roots + self._canvas.ellipse(hilum, (0.032, 0.062), blur=0.014)
        return 0.11 * tree * aerated + 0.10 * roots

    def _effusion(self, finding: Finding) -> Array:
        x, y = self._canvas.grid()
        outward = (0.5 - x) if finding.side == "right" else (x - 0.5)
        height = 0.09 + 0.24 * SEVERITY[finding.size]
        surface = 0.80 + self._depth - height * (0.45 + 0.85 * np.clip(outward / 0.36, 0.0, 1.0) ** 3)
        wet: Array = 0.52 * sigmoid((y - surface) / 0.011) * self._lungs[finding.side or "right"]
        return wet

    def _collapsed(self, finding: Finding) -> list[Point]:
        """The outline of a lung behind a pneumothorax."""
        side = finding.side or "right"
        keep = 0.86 - 0.30 * SEVERITY[finding.size]
        x0, y0 = (0.44 if side == "right" else 0.56), 0.56
        return [(x0 + (x - x0) * keep, y0 + (y - y0) * (keep + 0.04)) for x, y in self._lung(side)]

    def _pneumothorax(self, finding: Finding) -> Array:
        whole, outline = self._lungs[finding.side or "right"], self._collapsed(finding)
        edge = self._canvas.strokes([([*outline, outline[0]], 0.007)], blur=0.0015)
        lung = self._canvas.polygon(outline, blur=0.004)
        free = np.clip(whole - lung, 0.0, 1.0)
        added: Array = 0.17 * edge * whole - 0.12 * free + 0.05 * lung + 0.10 * SEVERITY[finding.size] * lung
        return added

    def _nodules(self, finding: Finding) -> Array:
        radius = 0.021 + 0.022 * SEVERITY[finding.size]
        y, out = {"upper": (0.27, 0.175), "middle": (0.47, 0.225), "lower": (0.65, 0.25)}[finding.zone]
        y += self._rng.uniform(-0.05, 0.05)
        out += self._rng.uniform(-0.045, 0.045)
        x = 0.5 - out * self._wide if finding.side != "left" else 0.5 + out * self._wide
        # Several are around one point, far enough apart to be counted.
        apart = 0.0 if finding.count == 1 else 1.4 * radius
        first = self._rng.uniform(0.0, math.pi)
        total = np.zeros_like(self._lungs["right"])
        for number in range(finding.count):
            angle = first + 2.0 * math.pi * number / finding.count
            centre = (x + apart * math.cos(angle), y + apart * math.sin(angle))
            stretch = self._rng.uniform(0.9, 1.1)
            disc = self._canvas.ellipse(centre, (radius * stretch, radius / stretch), blur=0.005)
            total = np.maximum(total, disc)
        return 0.33 * total

    def _consolidation(self, finding: Finding) -> Array:
        side = finding.side or "right"
        x, y = self._canvas.grid()
        height, out, spread = {
            "upper": (0.245, 0.17, 0.10), "middle": (0.52, 0.17, 0.062), "lower": (0.69, 0.24, 0.09),
        }[finding.zone]  # fmt: skip
        centre = 0.5 - out * self._wide if side == "right" else 0.5 + out * self._wide
        texture = 0.55 * smooth_noise(self._rng, self._canvas.size, 9)
        texture = texture + 0.25 * smooth_noise(self._rng, self._canvas.size, 24)
        distance = ((x - centre) / 0.145) ** 2 + ((y - height) / spread) ** 2
        patch = sigmoid(5.0 * (1.0 - distance - 0.8 * texture))
        opacity: Array = 0.42 * patch * self._lungs[side] * (1.0 + 0.45 * texture)
        return opacity

    def _edema(self, finding: Finding) -> Array:
        x, y = self._canvas.grid()
        haze = np.zeros_like(x)
        for hx, hy in _HILA.values():
            haze = haze + np.exp(-(((x - hx) / 0.15) ** 2) - ((y - hy - 0.05) / 0.19) ** 2)
        texture = 1.0 + 0.35 * smooth_noise(self._rng, self._canvas.size, 22)
        strength = 0.17 + 0.15 * SEVERITY[finding.size]
        wet: Array = strength * haze * texture * (self._lungs["right"] + self._lungs["left"])
        return wet

    def _atelectasis(self, finding: Finding) -> Array:
        side = finding.side or "right"
        lines: list[Stroke] = []
        for number in range(3):
            y = 0.665 + 0.033 * number + self._depth
            points = [(0.20, y + 0.008), (0.29, y - 0.006), (0.38 - 0.02 * number, y + 0.012)]
            lines.append((points if side == "right" else _mirrored(points), 0.010))
        return 0.27 * self._canvas.strokes(lines, blur=0.0025) * self._lungs[side]

    def _pacemaker(self) -> Array:
        x, y = 0.765 + self._rng.uniform(-0.02, 0.02), 0.235 + self._rng.uniform(-0.02, 0.02)
        case = [(x - 0.05, y - 0.035), (x + 0.045, y - 0.045), (x + 0.055, y + 0.03), (x, y + 0.055)]
        case += [(x - 0.05, y + 0.035)]
        lead = [(x - 0.03, y - 0.03), (0.66, 0.155), (0.56, 0.19), (0.475, 0.30), (0.465, 0.48)]
        lead += [(0.49, 0.66), (0.57, 0.73)]
        body = self._canvas.polygon(case, blur=0.002)
        coil = self._canvas.strokes([(lead, 0.008)], blur=0.001)
        electrode = self._canvas.ellipse((0.57, 0.73), (0.009, 0.009), blur=0.001)
        metal: Array = 1.0 * body + 0.55 * coil + 0.7 * electrode
        return metal


def _mirrored(points: list[Point]) -> list[Point]:
    return [(1.0 - x, y) for x, y in points]


def _lateral(canvas: SoftCanvas, film: Film, rng: np.random.Generator) -> Array:
    """Attenuation along the ray on a lateral film, from 0 for air to about 1.5 for metal."""
    wide = np.random.default_rng(film.patient.build_seed).uniform(0.94, 1.06)
    body = [(0.36, -0.1), (0.30, 0.07), (0.2, 0.18), (0.13, 0.38), (0.11, 0.6), (0.14, 0.85), (0.13, 1.1)]
    body += [(0.88, 1.1), (0.89, 0.75), (0.92, 0.45), (0.86, 0.2), (0.72, 0.07), (0.66, -0.1)]
    lung = [(0.47, 0.12), (0.32, 0.2), (0.23, 0.36), (0.2, 0.58), (0.24, 0.74), (0.38, 0.68), (0.55, 0.7)]
    lung += [(0.70, 0.79), (0.80, 0.90), (0.84, 0.66), (0.84, 0.4), (0.76, 0.2), (0.6, 0.12)]
    inside = canvas.polygon([(0.5 + (x - 0.5) * wide, y) for x, y in lung], blur=0.008)
    total = 0.72 * canvas.polygon([(0.5 + (x - 0.5) * wide, y) for x, y in body], blur=0.012) - 0.46 * inside
    total += _lateral_bones(canvas) + _lateral_heart(canvas, film) + _lateral_vessels(canvas, rng) * inside
    total += 0.20 * canvas.polygon([(0.42, -0.1), (0.7, -0.1), (0.66, 0.14), (0.46, 0.16)], blur=0.03)
    return total + _lateral_findings(canvas, film, inside)


def _lateral_bones(canvas: SoftCanvas) -> Array:
    blocks = []
    for y in (0.07 + 0.072 * number for number in range(13)):
        x = 0.735 + 0.075 * float(np.sin(np.pi * (y - 0.05)))
        blocks.append(canvas.ellipse((x, y), (0.043, 0.029), blur=0.005))
    spine = np.max(np.stack(blocks), axis=0)
    sternum = canvas.strokes([([(0.30, 0.2), (0.215, 0.38), (0.185, 0.56)], 0.026)], blur=0.004)
    ribs = [[(0.78, 0.14 + 0.075 * n), (0.6, 0.22 + 0.08 * n), (0.36, 0.36 + 0.075 * n)] for n in range(8)]
    front = canvas.strokes([(rib, 0.017) for rib in ribs], blur=0.003)
    bones: Array = 0.20 * spine + 0.16 * sternum + 0.055 * front
    return bones


def _lateral_heart(canvas: SoftCanvas, film: Film) -> Array:
    finding = film.finding("Cardiomegaly")
    grow = 1.0 if finding is None else {"small": 1.28, "moderate": 1.38, "large": 1.5}[finding.size]
    centre, radii = (0.36 + 0.06 * (grow - 1), 0.60), (0.135 * grow, 0.125 * min(grow, 1.3))
    arch = canvas.strokes([([(0.40, 0.5), (0.44, 0.32), (0.54, 0.29), (0.62, 0.4)], 0.075)], blur=0.014)
    return 0.34 * canvas.ellipse(centre, radii, blur=0.01) + 0.11 * arch


def _lateral_vessels(canvas: SoftCanvas, rng: np.random.Generator) -> Array:
    x, y = hilum = 0.52, 0.45
    lines: list[Stroke] = []
    for angle in np.linspace(-2.6, 2.9, 15).tolist():
        reach = rng.uniform(0.12, 0.24)
        turn = angle + rng.normal(0.0, 0.1)
        end = (x + reach * float(np.cos(turn)), y + reach * float(np.sin(turn)))
        bend = turn + 0.15
        middle = (x + 0.5 * reach * float(np.cos(bend)), y + 0.5 * reach * float(np.sin(bend)))
        lines.append(([hilum, middle, end], 0.007))
    return 0.10 * canvas.strokes(lines, blur=0.004) + 0.14 * canvas.ellipse(hilum, (0.05, 0.06), blur=0.02)


def _lateral_findings(canvas: SoftCanvas, film: Film, inside: Array) -> Array:
    x, y = canvas.grid()
    total = np.zeros_like(x)
    if (effusion := film.finding("Pleural Effusion")) is not None:
        height = {"small": 0.10, "moderate": 0.19, "large": 0.30}[effusion.size]
        surface = 0.90 - height * (0.35 + 0.9 * np.clip((x - 0.3) / 0.5, 0.0, 1.0) ** 2)
        total += 0.45 * inside / (1.0 + np.exp(-(y - surface) / 0.012))
    if film.finding("Pacemaker") is not None:
        total += canvas.ellipse((0.22, 0.26), (0.018, 0.05), blur=0.002)
        lead = [(0.23, 0.23), (0.36, 0.2), (0.45, 0.32), (0.42, 0.5), (0.34, 0.66)]
        total += 0.5 * canvas.strokes([(lead, 0.008)], blur=0.001)
    return total
