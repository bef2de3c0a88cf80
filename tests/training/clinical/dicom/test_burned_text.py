"""Text burned into films: found on drawn films in every corner, and not found in side markers and anatomy."""

from functools import cache
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from training.clinical.dicom.burned_text import find_text
from training.samples.film_drawing import draw_radiograph
from training.samples.radiographs import draw_film, draw_patient

SIDE: Final = 1024
Grey = NDArray[np.uint8]


@cache
def _film(seed: int) -> Grey:
    draw = np.random.default_rng(seed)
    film = draw_radiograph(draw_film(draw, draw_patient(draw, seed)), draw, 256)
    large = np.asarray(film.convert("L").resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float64)
    return (large + draw.normal(0, 3, large.shape)).clip(0, 255).astype(np.uint8)


def _with_text(film: Grey, text: str, place: str, size: int, *, box: int | None, fill: int) -> Grey:
    picture = Image.fromarray(film)
    drawing = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size)
    _, _, width, height = map(int, drawing.textbbox((0, 0), text, font=font))
    x = 20 if "left" in place else SIDE - 20 - width
    y = 20 if "top" in place else SIDE - 20 - height
    if box is not None:
        drawing.rectangle((x - 6, y - 4, x + width + 6, y + height + 6), fill=box)
    drawing.text((x, y), text, font=font, fill=fill)
    return np.asarray(picture)


@pytest.mark.parametrize("place", ["top left", "top right", "bottom left", "bottom right"])
@pytest.mark.parametrize(("box", "fill"), [(0, 255), (255, 0)])
@pytest.mark.parametrize("size", [16, 24, 40])
def test_names_and_dates_are_found(place: str, box: int, fill: int, size: int) -> None:
    film = _with_text(_film(1), "DOE, Jane 12.03.1960", place, size, box=box, fill=fill)
    assert find_text(film) == f"at the {place}"


@pytest.mark.parametrize("text", ["DOE JANE", "1960-03-12"])
@pytest.mark.parametrize("share", [0.08, 0.11, 0.15, 0.18])
def test_large_letters_are_found(text: str, share: float) -> None:
    film = _with_text(_film(1), text, "top left", round(share * SIDE), box=0, fill=255)
    assert find_text(film) == "at the top left"


@pytest.mark.parametrize("seed", range(6))
def test_films_without_text_have_none(seed: int) -> None:
    assert find_text(_film(seed)) == ""


@pytest.mark.parametrize("marker", ["L", "R", "R AP", "L JS"])
@pytest.mark.parametrize("size", [30, 60])
def test_side_markers_are_no_text(marker: str, size: int) -> None:
    assert find_text(_with_text(_film(2), marker, "top left", size, box=None, fill=255)) == ""


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 2000)])
@pytest.mark.parametrize("level", [0, 128, 255])
def test_small_and_uniform_pictures_have_none(shape: tuple[int, int], level: int) -> None:
    assert find_text(np.full(shape, level, np.uint8)) == ""


def test_noise_is_no_text_and_ends() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (700, 700)).astype(np.uint8)
    salt = np.where(noise > 200, 255, 0).astype(np.uint8)
    assert find_text(salt) == ""
