"""Draws sample chest films: tissue adds up along the ray, as in a real one."""

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
    draw_tissue = lateral_tissue if film.view == "LATERAL" else _frontal_tissue
    tissue = draw_tissue(canvas, film, rng)
    return _expose(tissue, film, rng, canvas)


def _expose(tissue: Array, film: Film, rng: np.random.Generator, canvas: SoftCanvas) -> Image.Image:
    size = canvas.size
    grain = rng.normal(0.0, 1.0, (size, size)).astype(np.float32)
    tissue = tissue + 0.025 * smooth_noise(rng, size, 6) + 0.012 * smooth_noise(rng, size, 40)
    light = 1.0 - np.exp(-1.15 * np.clip(tissue, 0.0, None))
    light = np.clip((light - 0.02) / 0.80, 0.0, 1.0) ** _GAMMA[film.exposure]
    grey = np.clip(light + _GRAIN[film.exposure] * grain, 0.0, 1.0)
    image = Image.fromarray((255 * grey).astype(np.uint8))
    return image.rotate(film.tilt, Image.Resampling.BICUBIC, fillcolor=6)


def _frontal_tissue(canvas: SoftCanvas, film: Film, rng: np.random.Generator) -> Array:
    chest = FrontalAnatomy(canvas, film, rng)
    findings = FrontalFindings(chest, rng)
    total = chest.tissue(findings.aerated(film.findings))
    for finding in film.findings:
        total = total + findings.tissue(finding)
    return total + _marker(canvas) if film.marker else total


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
