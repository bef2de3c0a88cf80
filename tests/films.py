"""Drawn radiographs, as their detectors store them."""

import numpy as np
from numpy.typing import NDArray

SIDE = 200
Film = NDArray[np.uint16]


def film(noise: float = 30.0) -> Film:
    """A 12-bit film of smooth tissue with grain."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    tissue = 2000 + 800 * np.sin(6 * y) * np.cos(5 * x)
    made: Film = (tissue + np.random.default_rng(1).normal(0, noise, (SIDE, SIDE))).astype(np.uint16)
    return made


def drawn_film(seed: int) -> Film:
    """Waves, a bright mediastinum, a limb on a dark ground, or a dark body on a bright one."""
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    waves = np.sin(draw.uniform(2, 9) * y + draw.uniform(0, 6)) * np.cos(draw.uniform(2, 9) * x)
    body = np.exp(-(((x - 0.5) / 0.2) ** 2 + ((y - 0.5) / 0.3) ** 2) * 2) * (1 + 0.2 * waves)
    values = (
        2_000 + 800 * waves,
        600 + 500 * waves,
        30_000 + 25_000 * waves,
        800 + 2_200 * np.exp(-(((x - 0.5) / 0.12) ** 2)) + 600 * (y > 0.7) + 150 * waves,
        200 + 1_500 * body,
        3_600 - 2_500 * body,
    )[seed % 6]
    grained: Film = (values + draw.normal(0, draw.uniform(3, 40), values.shape)).clip(1).astype(np.uint16)
    return grained
