"""Grey levels of films: neither markers nor borders nor dead cells take them from the tissue."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from tests.films import SIDE, Film, drawn_film, film
from tests.image_files import png, tiff
from tests.image_quadrants import with_opacity
from training.imaging.images import decode_image
from training.imaging.window import Window, find_range, seen_with_data


def grain(shape: tuple[int, int], centre: float, deviation: float) -> Film:
    return np.random.default_rng(2).normal(centre, deviation, shape).clip(0, 65_535).astype(np.uint16)


def _marked(value: int, rows: slice, columns: slice) -> Callable[[Film], None]:
    def mark(image: Film) -> None:
        image[rows, columns] = value

    return mark


def _noisy(image: Film) -> None:
    image[4:24, 4:44] = grain((20, 40), 60_000, 400)


def _noisy_of_12_bits(image: Film) -> None:
    image[4:24, 4:44] = grain((20, 40), 3_900, 20)


def _soft(image: Film) -> None:
    image[4:24, 4:44] = 65_535
    for edge in (3, 24):
        image[edge, 4:44] = np.linspace(3_000, 64_000, 40)


def _blurred(value: int) -> Callable[[Film], None]:
    """A letter whose edges fade into the film."""

    def mark(image: Film) -> None:
        opacity = np.zeros((SIDE, SIDE), np.uint8)
        opacity[5:30, 5:32] = 255
        soft = np.asarray(Image.fromarray(opacity).filter(ImageFilter.GaussianBlur(2))) / 255
        image[:] = (image * (1 - soft) + value * soft).astype(np.uint16)

    return mark


def _letters_on_a_plate(image: Film) -> None:
    image[4:24, 4:44] = 30_000
    image[10:18, 10:30] = 65_535


def _dead_lines(image: Film) -> None:
    image[:, 60] = 0
    image[17, :] = 65_535


def _dead_cells(image: Film) -> None:
    image[::50, ::50] = 65_535
    image[7::50, 9::50] = 0


MARKS: dict[str, Callable[[Film], None]] = {
    "letter": _marked(65_535, slice(4, 20), slice(4, 40)),
    "small letter": _marked(65_535, slice(4, 9), slice(4, 9)),
    "large letter": _marked(65_535, slice(4, 40), slice(4, 50)),
    "one pixel": _marked(65_535, slice(0, 1), slice(0, 1)),
    "black letter": _marked(0, slice(4, 20), slice(4, 40)),
    "letter of 12 bits": _marked(4_095, slice(4, 20), slice(4, 40)),
    "letter with noise": _noisy,
    "letter of 12 bits with noise": _noisy_of_12_bits,
    "letter with soft edges": _soft,
    "blurred letter": _blurred(65_535),
    "blurred letter of 12 bits": _blurred(4_095),
    "letters on a plate": _letters_on_a_plate,
    "dead lines": _dead_lines,
    "dead cells": _dead_cells,
}
FORMS: dict[str, Callable[[Film], bytes]] = {
    "png grey": lambda image: png(image[..., None], 16),
    "png grey alpha": lambda image: png(with_opacity(image[..., None], 65_535), 16),
    "png rgb": lambda image: png(np.dstack([image] * 3), 16),
    "png rgba": lambda image: png(with_opacity(np.dstack([image] * 3), 65_535), 16),
    "tiff grey": lambda image: tiff(image[..., None]),
    "tiff grey alpha": lambda image: tiff(with_opacity(image[..., None], 65_535), extra=2),
    "tiff rgb": lambda image: tiff(np.dstack([image] * 3)),
    "tiff rgba": lambda image: tiff(with_opacity(np.dstack([image] * 3), 65_535), extra=2),
    "tiff white is zero": lambda image: tiff((65_535 - image)[..., None], photometric=0),
    "tiff signed": lambda image: tiff((image.astype(np.int32) - 32_768).astype(np.int16)[..., None]),
    "tiff float": lambda image: tiff((image / np.float32(65_535))[..., None].astype(np.float32)),
    "tiff float rgb": lambda image: tiff(np.dstack([image / np.float32(65_535)] * 3).astype(np.float32)),
    "tiff of 32 bits": lambda image: tiff((image.astype(np.uint32) << 8)[..., None]),
}


def grey_of(content: bytes) -> NDArray[np.float64]:
    return np.asarray(decode_image(content))[..., 0].astype(float)


@pytest.mark.parametrize(
    ("mark", "form"),
    # Every mark in one form, and one mark in every form.
    [
        pytest.param(mark, form, marks=() if mark == "letter" or form == "png grey" else pytest.mark.slow)
        for mark in MARKS
        for form in FORMS
    ],
)
def test_a_film_looks_the_same_with_a_marker(form: str, mark: str) -> None:
    plain = film()
    marked = plain.copy()
    MARKS[mark](marked)
    same = plain == marked
    before, after = grey_of(FORMS["png grey"](plain)), grey_of(FORMS[form](marked))
    assert after[same].std() > 40
    assert np.corrcoef(before[same], after[same])[0, 1] > 0.995
    # Edges as dark as tissue cannot be told from it.
    assert np.abs(before - after)[same].max() <= (8 if mark == "blurred letter of 12 bits" else 6)


@pytest.mark.parametrize("noise", [0, 300, 600])
@pytest.mark.parametrize("blur", [0, 1, 2])
@pytest.mark.parametrize("inverted", [False, True])
def test_a_marker_over_a_fourteenth_of_a_film_costs_no_grey_levels(
    noise: int, blur: int, inverted: bool
) -> None:
    plain = film()
    opacity = np.zeros((SIDE, SIDE), np.uint8)
    opacity[8:61, 8:61] = 255
    soft = np.asarray(Image.fromarray(opacity).filter(ImageFilter.GaussianBlur(blur))) / 255
    marked = (plain * (1 - soft) + grain((SIDE, SIDE), 60_000, noise) * soft).astype(np.uint16)
    if inverted:
        plain, marked = 65_535 - plain, 65_535 - marked
    outside = soft == 0
    before, after = grey_of(png(plain[..., None], 16)), grey_of(png(marked[..., None], 16))
    assert np.abs(before - after)[outside].max() <= 7
    assert after[outside].std() > 40


@pytest.mark.parametrize("seed", range(48))
def test_a_film_without_artefacts_has_its_percentiles_as_window(seed: int) -> None:
    drawn = drawn_film(seed)
    low, high = np.quantile(drawn, (0.005, 0.995))
    assert find_range(drawn.ravel()) == pytest.approx((low, high), abs=3 / 255 * (high - low))


@pytest.mark.parametrize("border", [0, 65_535, 50])
@pytest.mark.parametrize("form", FORMS)
def test_a_border_takes_no_grey_levels(form: str, border: int) -> None:
    plain = film()
    framed = np.full((300, 300), border, np.uint16)
    framed[40:240, 60:260] = plain
    # One cell beyond the border.
    framed[0, 0] = 0
    inside = grey_of(FORMS[form](framed))[40:240, 60:260]
    assert np.abs(inside - grey_of(FORMS["png grey"](plain))).max() <= 2


@pytest.mark.parametrize("values", [range(12), (0, 5), range(65_524, 65_536)])
@pytest.mark.parametrize("marked", [False, True])
def test_a_border_with_noise_takes_no_grey_levels(values: Sequence[int], marked: bool) -> None:
    plain = film()
    framed = np.random.default_rng(3).choice(np.array(values, np.uint16), (300, 300))
    framed[40:240, 60:260] = plain
    if marked:
        framed[60:70, 80:100] = 40_000
    inside = grey_of(png(framed[..., None], 16))[40:240, 60:260]
    difference = np.abs(inside - grey_of(png(plain[..., None], 16)))
    difference[20:30, 20:40] = 0
    assert difference.max() <= 4


def test_transparent_pixels_are_no_part_of_the_picture() -> None:
    plain = film()
    values = np.dstack([plain] * 3 + [np.full_like(plain, 65_535)])
    values[:100, :, :3], values[:100, :, 3] = grain((100, SIDE), 40_000, 9_000)[..., None], 0
    alone = grey_of(png(plain[100:, :, None], 16))
    assert np.abs(grey_of(png(values, 16))[100:] - alone).max() <= 2


def test_colours_of_deep_images_share_a_window() -> None:
    red = np.linspace(0, 4_000, SIDE * SIDE).reshape(SIDE, SIDE)
    content = png(np.dstack([red, red / 2, red / 4]).astype(np.uint16), 16)
    image = np.asarray(decode_image(content)).astype(float)
    # Half of the way, so no channel is clipped.
    middle = image[SIDE // 2, SIDE // 2]
    assert middle[1] / middle[0] == pytest.approx(0.5, abs=0.03)
    assert middle[2] / middle[0] == pytest.approx(0.25, abs=0.03)


def test_a_scaled_photograph_of_8_bits_is_itself() -> None:
    values = np.random.default_rng(0).integers(40, 90, (SIDE, SIDE, 3)).astype(np.uint16)
    for factor in (257, 256):
        for content in (png(values * np.uint16(factor), 16), tiff(values * np.uint16(factor))):
            assert np.array_equal(np.asarray(decode_image(content)), values)


def test_label_masks_keep_all_values_apart() -> None:
    mask = np.zeros((SIDE, SIDE), np.uint16)
    for label in range(1, 21):
        mask[8 * label : 8 * label + 2, : 3 * label] = label
    assert len(np.unique(grey_of(png(mask[..., None], 16)))) == 21


def test_small_bright_objects_on_a_dark_ground_are_no_markers() -> None:
    ground = grain((SIDE, SIDE), 1_000, 30)
    y, x = np.mgrid[0:40, 0:40]
    ground[80:120, 80:120] = (60_000 - 40 * ((x - 20) ** 2 + (y - 20) ** 2)).clip(1_000).astype(np.uint16)
    shown = grey_of(png(ground[..., None], 16))[80:120, 80:120]
    assert len(np.unique(shown)) > 80


def test_a_range_that_the_file_states_is_a_window_only_where_it_clips() -> None:
    image = film()[..., None]
    low, high = int(image.min()), int(image.max())
    found = grey_of(tiff(image))
    for stated in ((0, 65_535), (0, 4_095), (low, high), (high, low), (low, low)):
        assert np.array_equal(grey_of(tiff(image, tags={340: stated[0], 341: stated[1]})), found)
    narrow = grey_of(tiff(image, tags={340: 1_900, 341: 2_100}))
    expected = ((image[..., 0] - 1_900.0) * 255 / 200).clip(0, 255)
    assert np.abs(narrow - expected).max() <= 1


@given(
    st.lists(st.integers(0, 65_535), min_size=1, max_size=300),
    st.floats(1e-3, 1e3),
    st.floats(-1e3, 1e3),
)
def test_the_range_lies_within_the_values_and_follows_their_scale(
    values: list[int], factor: float, offset: float
) -> None:
    sample = np.array(values, np.float64)
    low, high = find_range(sample)
    assert sample.min() <= low <= high <= sample.max()
    assert (low == high) == (sample.min() == sample.max())
    scaled = find_range(sample * factor + offset)
    assert scaled == pytest.approx((low * factor + offset, high * factor + offset), rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=200))
def test_floats_of_any_size_have_a_range(values: list[float]) -> None:
    sample = np.array(values)
    low, high = find_range(sample)
    assert sample.min() <= low <= high <= sample.max()


@pytest.mark.parametrize(("centre", "width"), [(0, 0), (0, -1), (float("nan"), 1), (0, float("inf"))])
def test_windows_of_no_width_are_refused(centre: float, width: float) -> None:
    with pytest.raises(ValueError, match="positive finite width"):
        Window(centre, width)


@pytest.mark.parametrize(
    ("kind", "value"), [("f4", -9999), ("f8", -1.7e308), ("f4", 3.4e38), ("i4", -(2**31))]
)
@pytest.mark.parametrize("rows", [1, 90])
def test_a_value_for_no_data_takes_no_grey_levels(kind: str, value: float, rows: int) -> None:
    plain = (film() / (100 if kind[0] == "f" else 1)).astype(kind)
    missing = plain.copy()
    missing[:rows] = value
    expected, shown = (np.asarray(decode_image(tiff(image[..., None])), int) for image in (plain, missing))
    assert np.abs(expected - shown)[rows:].max() <= 12
    assert set(shown[:rows].ravel()) == {255 if value > 0 else 0}


@pytest.mark.parametrize("values", [(0, 1, 255), (0, 1, 60_000), (-1, 0, 1), (5, 5, 5), (0, 0, 1e30)])
def test_labels_are_no_values_for_no_data(values: tuple[float, float, float]) -> None:
    sample = np.resize(np.array(values), (6, 7, 1))
    assert seen_with_data(sample, np.ones((6, 7), bool)).all()
