"""Draws sample chest films: tissue adds up along the ray, as in a real one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image

from training.samples.canvas import Array, Point, SoftCanvas, smooth_noise
from training.samples.radiographs.factors import Film
from training.samples.radiographs.frontal_anatomy import FrontalAnatomy
from training.samples.radiographs.frontal_findings import FrontalFindings
from training.samples.radiographs.lateral_drawing import lateral_tissue

_GAMMA: Final = {"low": 0.72, "normal": 1.0, "high": 1.42}
_GRAIN: Final = {"low": 0.022, "normal": 0.012, "high": 0.009}


def draw_radiograph(film: Film, rng: np.random.Generator, size: int) -> Image.Image:
    """Draw one film in 8-bit grey.

    Args:
        film: Factors of the film.
        rng: Decides everything that is no factor: vessels, texture and noise.
        size: Width and height in pixels.
    """
    canvas = SoftCanvas(size)
    tissue = (
        lateral_tissue(canvas, film, rng) if film.view == "LATERAL" else _frontal(canvas, film, rng).sum()
    )
    return _expose(tissue, film, rng, canvas)


def draw_layers(film: Film, rng: np.random.Generator, size: int) -> "FilmLayers":
    """The layers of a frontal film as `draw_radiograph` adds them up, before it is exposed and turned."""
    return _frontal(SoftCanvas(size), film, rng)


@dataclass(frozen=True, slots=True)
class FilmLayers:
    """Attenuation (S, S) along the ray: of the chest, of each finding by its name, and of the marker."""

    chest: Array
    findings: Mapping[str, Array]
    marker: Array | None

    def sum(self) -> Array:
        """All layers together."""
        total = self.chest
        for tissue in self.findings.values():
            total = total + tissue
        return total if self.marker is None else total + self.marker


def _expose(tissue: Array, film: Film, rng: np.random.Generator, canvas: SoftCanvas) -> Image.Image:
    size = canvas.size
    grain = rng.normal(0.0, 1.0, (size, size)).astype(np.float32)
    tissue = tissue + 0.025 * smooth_noise(rng, size, 6) + 0.012 * smooth_noise(rng, size, 40)
    light = 1.0 - np.exp(-1.15 * np.clip(tissue, 0.0, None))
    light = np.clip((light - 0.02) / 0.80, 0.0, 1.0) ** _GAMMA[film.exposure]
    grey = np.clip(light + _GRAIN[film.exposure] * grain, 0.0, 1.0)
    image = Image.fromarray((255 * grey).astype(np.uint8))
    return image.rotate(film.tilt, Image.Resampling.BICUBIC, fillcolor=6)


def _frontal(canvas: SoftCanvas, film: Film, rng: np.random.Generator) -> FilmLayers:
    chest = FrontalAnatomy(canvas, film, rng)
    findings = FrontalFindings(chest, rng)
    tissue = chest.tissue(findings.aerated(film.findings))
    added = {finding.name: findings.tissue(finding) for finding in film.findings}
    return FilmLayers(tissue, added, _marker(canvas) if film.marker else None)


def _marker(canvas: SoftCanvas) -> Array:
    """The letter R beside the patient's right shoulder."""
    x, y = 0.075, 0.055
    letter: list[list[Point]] = [
        [
            (x, y + 0.06),
            (x, y),
            (x + 0.028, y),
            (x + 0.036, y + 0.014),
            (x + 0.028, y + 0.03),
            (x, y + 0.03),
        ],
        [(x + 0.016, y + 0.03), (x + 0.038, y + 0.06)],
    ]
    return 1.2 * canvas.strokes([(line, 0.009) for line in letter], blur=0.0008, smooth=False)
