"""Drawn films with artefacts: every kind of tissue, and markers, wedges, broken cells and borders on it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tests.films import Film

Values = NDArray[np.float64]
Opacity = NDArray[np.float64]

HEIGHT, WIDTH = 360, 300
LARGEST: Final = 65_535


@dataclass(frozen=True, slots=True)
class Marked:
    """A film with and without artefacts.

    Attributes:
        plain: Without.
        marked: With them.
        outside: Pixels on which the artefacts have no influence.
    """

    plain: Film
    marked: Film
    outside: NDArray[np.bool_]


def _waves(draw: np.random.Generator) -> Values:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH] / WIDTH
    made: Values = np.sin(draw.uniform(3, 8) * y + draw.uniform(0, 6)) * np.cos(
        draw.uniform(3, 8) * x + draw.uniform(0, 6)
    )
    return made


def _chest(draw: np.random.Generator) -> Values:
    """Two dark lungs with bright ribs, from 0 to 1."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH] / WIDTH
    lungs = sum(np.exp(-((((x - c) / 0.17) ** 2 + ((y - 0.6) / 0.33) ** 2) ** 2)) for c in (0.27, 0.73))
    ribs = (np.sin(38 * y + 9 * (x - 0.5) ** 2 + draw.uniform(0, 6)) > 0.6) * 0.12
    return np.asarray(0.85 - 0.7 * lungs + ribs + 0.03 * _waves(draw))


def _limb(draw: np.random.Generator) -> Values:
    """A limb with a bone on a ground without tissue, from 0 to 1."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH] / WIDTH
    across = np.abs(x - 0.5 - 0.06 * np.sin(3 * y))
    tissue = np.clip(1 - (across / 0.3) ** 2, 0, None) ** 0.5 * 0.6
    return np.asarray(0.05 + tissue + 0.3 * (across < 0.08) + 0.02 * _waves(draw))


TISSUES: dict[str, Callable[[np.random.Generator], Values]] = {
    "faint": lambda draw: 900 + 420 * _waves(draw),
    "12 bits": lambda draw: 2_000 + 1_500 * _waves(draw),
    "wide": lambda draw: 30_000 + 25_000 * _waves(draw),
    "bright": lambda draw: 52_000 + 8_000 * _waves(draw),
    "chest": lambda draw: 300 + 3_000 * _chest(draw),
    "wide chest": lambda draw: 6_000 + 48_000 * _chest(draw),
    "limb": lambda draw: 100 + 3_600 * _limb(draw),
    "negative limb": lambda draw: 3_900 - 3_600 * _limb(draw),
}


def draw_tissue(name: str, seed: int) -> Film:
    """Return a film without artefacts, with grain."""
    draw = np.random.default_rng(seed)
    values = TISSUES[name](draw)
    grain = draw.normal(0, draw.uniform(0.004, 0.03) * np.ptp(values), values.shape)
    film: Film = (values + grain).clip(1, LARGEST).astype(np.uint16)
    return film


def blurred(opacity: Opacity, deviation: float) -> Opacity:
    """Return a picture with soft edges."""
    reach = int(4 * deviation) + 1
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    for axis in (0, 1):
        padding = [(reach, reach) if axis == along else (0, 0) for along in (0, 1)]
        padded = np.pad(opacity, padding, mode="edge")
        opacity = np.apply_along_axis(np.convolve, axis, padded, weights / weights.sum(), mode="valid")
    return opacity


def _text(share: float, draw: np.random.Generator) -> Opacity:
    """Letters whose strokes cover a share of the film."""
    for size in range(8, 200, 2):
        image = Image.new("L", (WIDTH, HEIGHT))
        place = (int(draw.integers(5, 40)), int(draw.integers(5, 40)))
        ImageDraw.Draw(image).text(place, "RL 4", fill=255, font_size=size)
        letters = np.asarray(image) / 255
        if letters.mean() >= share:
            break
    return letters


def _block(share: float, draw: np.random.Generator, *, aspect: float = 1.5) -> Opacity:
    tall = round((share * HEIGHT * WIDTH / aspect) ** 0.5)
    wide = min(round(tall * aspect), WIDTH - 20)
    top, left = draw.integers(3, HEIGHT - tall - 3), draw.integers(3, WIDTH - wide - 3)
    opacity = np.zeros((HEIGHT, WIDTH))
    opacity[top : top + tall, left : left + wide] = 1
    return opacity


def _cells(share: float, draw: np.random.Generator) -> Opacity:
    return np.asarray(draw.random((HEIGHT, WIDTH)) < share, np.float64)


SHAPES: dict[str, Callable[[float, np.random.Generator], Opacity]] = {
    "text": _text,
    "block": _block,
    "wedge": lambda share, draw: _block(share, draw, aspect=2.6),
    "cells": _cells,
}


def mark(
    plain: Film, shape: str, *, share: float, blur: float, value: int, noise: float = 0, seed: int = 0
) -> Marked:
    """Lay an artefact on a film.

    Args:
        plain: The film.
        shape: One of `SHAPES`. The values of a wedge fall from `value` to a third of the way to the tissue.
        share: Part of the film that it covers.
        blur: Standard deviation of its edges, in pixels.
        value: Its stored value.
        noise: Standard deviation of its values.
        seed: Of its place and noise.
    """
    draw = np.random.default_rng(seed)
    opacity = SHAPES[shape](share, draw)
    values = np.full(plain.shape, float(value))
    if shape == "wedge":
        columns = np.flatnonzero(opacity.any(axis=0))
        middle = float(np.median(plain))
        ramp = np.linspace(value, middle + (value - middle) / 3, len(columns))
        values[:, columns] = ramp
    values += draw.normal(0, noise, plain.shape) if noise else 0
    if blur:
        opacity = blurred(opacity, blur)
    marked = (plain * (1 - opacity) + values * opacity).clip(0, LARGEST).astype(np.uint16)
    return Marked(plain, marked, opacity < 1e-4)


def collimate(plain: Film, sides: str, *, blur: float, value: int, noise: float = 0, seed: int = 0) -> Marked:
    """Cover a film from one side or several, each a letter of `tblr`, with a border of one value."""
    draw = np.random.default_rng(seed)
    opacity = np.zeros(plain.shape)
    for side in sides:
        wide = int(draw.integers(15, 60))
        places = {
            "t": np.s_[:wide, :],
            "b": np.s_[-wide:, :],
            "l": np.s_[:, :wide],
            "r": np.s_[:, -wide:],
        }
        opacity[places[side]] = 1
    if blur:
        opacity = blurred(opacity, blur)
    values = value + draw.normal(0, noise, plain.shape) if noise else np.full(plain.shape, float(value))
    marked = (plain * (1 - opacity) + values * opacity).clip(0, LARGEST).astype(np.uint16)
    return Marked(plain, marked, opacity < 1e-4)
