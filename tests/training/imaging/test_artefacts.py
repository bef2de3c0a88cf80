"""Films look the same with and without artefacts of any kind; pictures without any keep their range."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tests.film_artefacts import LARGEST, SHAPES, TISSUES, Marked, collimate, draw_tissue, mark
from tests.films import Film
from tests.image_files import png
from training.imaging.artefacts import find_picture
from training.imaging.images import decode_image, decode_whole

SMOOTH = ("faint", "12 bits", "wide", "chest", "wide chest")


def grey_of(film: Film) -> NDArray[np.float64]:
    return np.asarray(decode_image(png(film[..., None], 16)))[..., 0].astype(float)


def assert_alike(film: Marked, most: int) -> None:
    before, after = grey_of(film.plain)[film.outside], grey_of(film.marked)[film.outside]
    assert np.corrcoef(before, after)[0, 1] >= 0.99
    assert after.std() > 40
    assert np.abs(before - after).max() <= most


_BRIGHT: list[tuple[str, str, float, float]] = [
    *product(SMOOTH, ["text"], [0.008, 0.018], [1, 2.5, 4]),
    *product(SMOOTH, ["block"], [0.0008, 0.01, 0.065], [0, 2.5]),
    *product(SMOOTH, ["wedge"], [0.02, 0.065], [0, 2.5]),
    *product(SMOOTH, ["cells"], [0.0005, 0.01, 0.02], [0]),
    *product(["limb", "negative limb"], ["text", "block", "wedge"], [0.01], [0, 2.5]),
]


@pytest.mark.parametrize(
    ("tissue", "shape", "share", "blur"),
    # Every eighth is of each tissue, shape, share and blur.
    [
        pytest.param(*case, marks=() if place % 8 == 0 else pytest.mark.slow)
        for place, case in enumerate(_BRIGHT)
    ],
)
def test_bright_artefacts_take_no_grey_levels(tissue: str, shape: str, share: float, blur: float) -> None:
    seed = round(share * 1_000 + blur)
    plain = draw_tissue(tissue, seed)
    noise = 0.01 * LARGEST if seed % 2 else 0
    film = mark(plain, shape, share=share, blur=blur, value=LARGEST, noise=noise, seed=seed)
    # Where a film's own values reach 55,000, no artefact is far above them, and it may stay in the range.
    assert_alike(film, 56 if tissue.startswith("wide") else 20)


@pytest.mark.parametrize(("shape", "blur"), [*product(("text", "block", "wedge"), (0, 1, 3)), ("cells", 0)])
def test_dark_artefacts_take_no_grey_levels(shape: str, blur: float) -> None:
    plain = draw_tissue("bright", 3)
    assert_alike(mark(plain, shape, share=0.02, blur=blur, value=0, seed=4), 10)


def test_bright_and_dark_cells_together() -> None:
    plain = draw_tissue("faint", 5)
    salted = mark(plain, "cells", share=0.01, blur=0, value=LARGEST, seed=1)
    both = mark(salted.marked, "cells", share=0.01, blur=0, value=0, seed=2)
    assert_alike(Marked(plain, both.marked, salted.outside & both.outside), 10)


@pytest.mark.parametrize("blur", [0, 1])
@pytest.mark.parametrize("share", [0.008, 0.018])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_a_marker_little_brighter_than_the_film(seed: int, share: float, blur: float) -> None:
    plain = draw_tissue("wide", seed)
    assert plain.max() < 60_000
    film = mark(plain, "text", share=share, blur=blur, value=60_000, seed=seed)
    # On tissue that is nearly as bright, a letter is hardly higher than the film's own slopes.
    on_bright_tissue = np.quantile(plain[~film.outside], 0.9) > 38_000
    assert_alike(film, 26 if on_bright_tissue else 10)


@pytest.mark.parametrize("tissue", ["faint", "12 bits", pytest.param("chest", marks=pytest.mark.slow)])
@pytest.mark.parametrize("sides", ["l", "tb", "tbl", "tblr"])
@pytest.mark.parametrize(("value", "blur"), [(0, 0), (0, 3), (LARGEST, 0), (LARGEST, 3)])
def test_borders_take_no_grey_levels(tissue: str, sides: str, value: int, blur: float) -> None:
    film = collimate(draw_tissue(tissue, 7), sides, blur=blur, value=value, noise=10, seed=8)
    rows, columns = (np.flatnonzero(film.outside.any(axis=axis)) for axis in (1, 0))
    inside = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    alone, framed = grey_of(film.plain[inside]), grey_of(film.marked)[inside]
    shown = film.outside[inside]
    assert np.corrcoef(alone[shown], framed[shown])[0, 1] >= 0.99
    assert np.abs(alone - framed)[shown].max() <= 25


def _ramps() -> dict[str, Film]:
    draw = np.random.default_rng(0)
    ramp = np.tile(np.linspace(0, LARGEST, 300), (200, 1))
    halves = np.full((200, 300), 5_000.0)
    halves[:, 150:] = 55_000
    page = Image.new("L", (400, 500), 255)
    for line in range(12):
        ImageDraw.Draw(page).text((30, 30 + 36 * line), "The quick brown fox jumps over", font_size=20)
    paper = 4_000 + 220 * np.asarray(page, np.float64)
    y, x = np.mgrid[-150:150, -150:150]
    body = np.hypot(y / 1.2, x)
    slice_ = np.where(body < 110, 1_040 + 40 * np.sin(y / 20) + 600 * (body > 103), 24)
    made = {
        "ramp": ramp,
        "ramp down": ramp.T,
        "halves": halves + draw.normal(0, 300, halves.shape),
        "document": paper + draw.normal(0, 300, paper.shape),
        "body in air": slice_ + draw.normal(0, 3, slice_.shape),
    }
    return {name: values.clip(0, LARGEST).astype(np.uint16) for name, values in made.items()}


@pytest.mark.parametrize("name", _ramps())
def test_pictures_without_artefacts_keep_their_range(name: str) -> None:
    picture = _ramps()[name]
    levels = decode_whole(png(picture[..., None], 16)).levels
    low, high = np.quantile(picture, (0.005, 0.995))
    assert levels is not None
    assert (levels.low, levels.high) == pytest.approx((low, high), abs=3 / 255 * (high - low))


@pytest.mark.parametrize("tissue", TISSUES)
@pytest.mark.parametrize("seed", range(3))
def test_films_without_artefacts_have_their_percentiles_as_window(tissue: str, seed: int) -> None:
    plain = draw_tissue(tissue, seed)
    levels = decode_whole(png(plain[..., None], 16)).levels
    low, high = np.quantile(plain, (0.005, 0.995))
    assert levels is not None
    assert (levels.low, levels.high) == pytest.approx((low, high), abs=3 / 255 * (high - low))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_film_has_one_range_upright_and_turned(shape: str) -> None:
    film = mark(draw_tissue("chest", 9), shape, share=0.02, blur=0, value=LARGEST, seed=9).marked
    upright, turned = (decode_whole(png(values[..., None], 16)).levels for values in (film, film[::-1].T))
    assert upright is not None
    assert turned is not None
    assert turned.high == pytest.approx(upright.high, rel=0.02)


def test_pixels_that_lie_between_those_that_are_looked_at_are_seen() -> None:
    values = np.zeros((600, 600, 2), np.uint16)
    values[1, :, 0], values[1, :, 1] = np.linspace(20_000, 40_000, 600), 65_535
    line = np.asarray(decode_image(png(values[..., [0, 0, 0, 1]], 16)))[1, :, 0]
    assert line[0] <= 2
    assert line[-1] >= 253


def test_pixels_that_are_not_seen_do_not_count() -> None:
    values = draw_tissue("12 bits", 1)[::2, ::2].astype(np.float64)
    seen = np.ones(values.shape, bool)
    seen[:40] = False
    kept = find_picture(values, seen)
    assert not kept[:40].any()
    other = values.copy()
    other[:40] = 60_000
    assert np.array_equal(find_picture(other, seen), kept)
