"""Draws the lateral view: the front of the patient is on the left."""

import numpy as np

from training.samples.canvas import Array, SoftCanvas
from training.samples.radiographs.factors import Film


def lateral_tissue(canvas: SoftCanvas, film: Film, rng: np.random.Generator) -> Array:
    """Attenuation along the ray on a lateral film, from 0 for air to about 1.5 for metal."""
    build = np.random.default_rng(film.patient.build_seed)
    wide = float(build.uniform(0.94, 1.06))
    body = [(0.36, -0.1), (0.30, 0.07), (0.2, 0.18), (0.13, 0.38), (0.11, 0.6), (0.14, 0.85), (0.13, 1.1)]
    body += [(0.88, 1.1), (0.89, 0.75), (0.92, 0.45), (0.86, 0.2), (0.72, 0.07), (0.66, -0.1)]
    lung = [(0.47, 0.12), (0.32, 0.2), (0.23, 0.36), (0.2, 0.58), (0.24, 0.74), (0.38, 0.68), (0.55, 0.7)]
    lung += [(0.70, 0.79), (0.80, 0.90), (0.84, 0.66), (0.84, 0.4), (0.76, 0.2), (0.6, 0.12)]
    inside = canvas.polygon([(0.5 + (x - 0.5) * wide, y) for x, y in lung], blur=0.008)
    total = 0.72 * canvas.polygon([(0.5 + (x - 0.5) * wide, y) for x, y in body], blur=0.012) - 0.46 * inside
    total += _bones(canvas) + _heart(canvas, film) + _vessels(canvas, rng) * inside
    arms = canvas.polygon([(0.42, -0.1), (0.7, -0.1), (0.66, 0.14), (0.46, 0.16)], blur=0.03)
    total += 0.20 * arms
    return total + _findings(canvas, film, inside)


def _bones(canvas: SoftCanvas) -> Array:
    blocks = []
    for number in range(13):
        y = 0.07 + 0.072 * number
        x = 0.735 + 0.075 * np.sin(np.pi * (y - 0.05))
        blocks.append(canvas.ellipse((float(x), y), (0.043, 0.029), blur=0.005))
    spine = np.max(np.stack(blocks), axis=0)
    sternum = canvas.strokes([([(0.30, 0.2), (0.215, 0.38), (0.185, 0.56)], 0.026)], blur=0.004)
    ribs = canvas.strokes(
        [
            ([(0.78, 0.14 + 0.075 * n), (0.6, 0.22 + 0.08 * n), (0.36, 0.36 + 0.075 * n)], 0.017)
            for n in range(8)
        ],
        blur=0.003,
    )
    bones: Array = 0.20 * spine + 0.16 * sternum + 0.055 * ribs
    return bones


def _heart(canvas: SoftCanvas, film: Film) -> Array:
    finding = film.finding("Cardiomegaly")
    grow = 1.0 if finding is None else {"small": 1.28, "moderate": 1.38, "large": 1.5}[finding.size]
    heart = canvas.ellipse(
        (0.36 + 0.06 * (grow - 1), 0.60), (0.135 * grow, 0.125 * min(grow, 1.3)), blur=0.01
    )
    arch = canvas.strokes([([(0.40, 0.5), (0.44, 0.32), (0.54, 0.29), (0.62, 0.4)], 0.075)], blur=0.014)
    return 0.34 * heart + 0.11 * arch


def _vessels(canvas: SoftCanvas, rng: np.random.Generator) -> Array:
    lines = []
    for angle in np.linspace(-2.6, 2.9, 15):
        reach = float(rng.uniform(0.12, 0.24))
        turn = float(angle + rng.normal(0.0, 0.1))
        end = (0.52 + reach * float(np.cos(turn)), 0.45 + reach * float(np.sin(turn)))
        middle = (
            0.52 + 0.5 * reach * float(np.cos(turn + 0.15)),
            0.45 + 0.5 * reach * float(np.sin(turn + 0.15)),
        )
        lines.append(([(0.52, 0.45), middle, end], 0.007))
    return 0.10 * canvas.strokes(lines, blur=0.004) + 0.14 * canvas.ellipse(
        (0.52, 0.45), (0.05, 0.06), blur=0.02
    )


def _findings(canvas: SoftCanvas, film: Film, inside: Array) -> Array:
    x, y = canvas.grid()
    total = np.zeros_like(x)
    effusion = film.finding("Pleural Effusion")
    if effusion is not None:
        height = {"small": 0.10, "moderate": 0.19, "large": 0.30}[effusion.size]
        surface = 0.90 - height * (0.35 + 0.9 * np.clip((x - 0.3) / 0.5, 0.0, 1.0) ** 2)
        total += 0.45 * inside / (1.0 + np.exp(-(y - surface) / 0.012))
    if film.finding("Pacemaker") is not None:
        total += canvas.ellipse((0.22, 0.26), (0.018, 0.05), blur=0.002)
        lead = [(0.23, 0.23), (0.36, 0.2), (0.45, 0.32), (0.42, 0.5), (0.34, 0.66)]
        total += 0.5 * canvas.strokes([(lead, 0.008)], blur=0.001)
    return total
