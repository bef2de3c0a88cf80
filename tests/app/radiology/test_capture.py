"""The page of similar cases as it is drawn."""

import numpy as np
import pytest
from PIL import Image

from app.radiology.capture import HEIGHT, NO_LETTERS, WIDTH, SheetFilm, draw_sheet

WHITE = Image.new("L", (40, 50), 255)


def _drawn(*cases: SheetFilm) -> np.ndarray:
    page = draw_sheet("Not for diagnosis", "about", SheetFilm(WHITE, "", []), cases)
    assert page.size == (WIDTH, HEIGHT)
    return np.asarray(page)


def _case(sentence: str = "", *facts: str, picture: Image.Image = WHITE) -> SheetFilm:
    return SheetFilm(picture, "", facts, sentence)


def test_films_keep_their_form_and_every_case_has_its_place() -> None:
    page = _drawn(*[_case()] * 6)
    # Columns and rows of white films, 40:50 in squares of 300.
    for row in (0, 1):
        for column in range(3):
            left, top = 628 + column * 322, 96 + row * 540 + 33
            position = page[top : top + 300, left : left + 300]
            assert (position[150] == 255).sum() == 240
            assert (position[:, 150] == 255).sum() == 300
    assert (page[129:689, 24:584] == 255).sum() == 560 * 448


@pytest.mark.parametrize("sentence", ["右側に少量の胸水", "انصباب جنبي", "𝔉\u0001"])
def test_a_sentence_that_cannot_be_drawn_is_named_so(sentence: str) -> None:
    np.testing.assert_array_equal(_drawn(_case(sentence)), _drawn(_case(NO_LETTERS)))
    np.testing.assert_array_equal(_drawn(_case("", sentence, "DX")), _drawn(_case("", "DX")))


@pytest.mark.parametrize("sentence", ["Größer als zuvor.", "Выпот слева", "Ούτε πνευμοθώρακας"])
def test_letters_of_europe_are_drawn(sentence: str) -> None:
    page = _drawn(_case(sentence))
    assert (page != _drawn(_case())).any()
    assert (page != _drawn(_case(NO_LETTERS))).any()


@pytest.mark.parametrize("sentence", ["word " * 300, "x" * 4000])
def test_a_long_sentence_stays_in_its_cell(sentence: str) -> None:
    page, other = _drawn(_case(sentence)), _drawn(_case())
    rows, columns = np.nonzero(page != other)
    assert rows.min() > 96 + 330
    assert rows.max() < 96 + 540
    assert (columns.min(), columns.max() < 628 + 322) == (pytest.approx(630, abs=3), True)


def test_a_page_has_colours_where_a_film_has_them() -> None:
    red = Image.new("RGB", (40, 40), "red")
    page = _drawn(_case(picture=red))
    assert page.shape == (HEIGHT, WIDTH, 3)
    assert (page[96 + 33 + 150, 628 + 150] == (255, 0, 0)).all()
    assert _drawn(_case()).shape == (HEIGHT, WIDTH)
