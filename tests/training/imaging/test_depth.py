"""Grey levels of deep images: films look the same with and without artefacts, pictures keep their range."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tests.film_artefacts import LARGEST, SHAPES, TISSUES, Marked, collimate, draw_tissue, mark
from tests.films import SIDE, Film, drawn_film, film
from tests.image_files import png, tiff
from tests.image_quadrants import with_opacity
from training.imaging.artefacts import dilated, find_picture, label
from training.imaging.images import decode_image, decode_whole
from training.imaging.window import Window, find_range, seen_with_data

SMOOTH = ("faint", "12 bits", "wide", "chest", "wide chest")
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


def grey_png(image: Film) -> bytes:
    return FORMS["png grey"](image)


def assert_alike(made: Marked, most: int) -> None:
    before, after = (grey_of(grey_png(image))[made.outside] for image in (made.plain, made.marked))
    assert np.corrcoef(before, after)[0, 1] >= 0.99
    assert after.std() > 40
    assert np.abs(before - after).max() <= most


@pytest.mark.parametrize("form", FORMS)
def test_a_marker_and_a_border_take_no_grey_levels_in_any_form_of_file(form: str) -> None:
    plain = film()
    expected = grey_of(grey_png(plain))
    marked = plain.copy()
    marked[4:20, 4:40] = 65_535
    same = marked == plain
    seen = grey_of(FORMS[form](marked))
    assert np.abs(seen - expected)[same].max() <= 6
    for border in (0, 65_535, 50):
        framed = np.full((300, 300), border, np.uint16)
        framed[40:240, 60:260] = plain
        # One cell beyond the border.
        framed[0, 0] = 0
        assert np.abs(grey_of(FORMS[form](framed))[40:240, 60:260] - expected).max() <= 2


def _plate(image: Film) -> None:
    image[4:24, 4:44] = 30_000
    image[10:18, 10:30] = 65_535


def _lines(image: Film) -> None:
    image[:, 60] = 0
    image[17, :] = 65_535


def _noisy(value: int, deviation: int) -> Callable[[Film], None]:
    def mark(image: Film) -> None:
        noise = np.random.default_rng(2).normal(value, deviation, (20, 40))
        image[4:24, 4:44] = noise.clip(0, 65_535).astype(np.uint16)

    return mark


@pytest.mark.parametrize("change", [_plate, _lines, _noisy(60_000, 400), _noisy(3_900, 20)])
def test_markers_of_other_forms_take_no_grey_levels(change: Callable[[Film], None]) -> None:
    plain = film()
    marked = plain.copy()
    change(marked)
    assert_alike(Marked(plain, marked, marked == plain), 6)


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
    made = mark(plain, shape, share=share, blur=blur, value=LARGEST, noise=noise, seed=seed)
    # Where a film's own values reach 55,000, no artefact is far above them, and it may stay in the range.
    assert_alike(made, 56 if tissue.startswith("wide") else 20)


@pytest.mark.parametrize(("shape", "blur"), [*product(("text", "block", "wedge"), (0, 3)), ("cells", 0)])
def test_dark_artefacts_take_no_grey_levels(shape: str, blur: float) -> None:
    assert_alike(mark(draw_tissue("bright", 3), shape, share=0.02, blur=blur, value=0, seed=4), 10)


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
    made = mark(plain, "text", share=share, blur=blur, value=60_000, seed=seed)
    # On tissue that is nearly as bright, a letter is hardly higher than the film's own slopes.
    assert_alike(made, 26 if np.quantile(plain[~made.outside], 0.9) > 38_000 else 10)


@pytest.mark.parametrize("tissue", ["faint", "12 bits", pytest.param("chest", marks=pytest.mark.slow)])
@pytest.mark.parametrize("sides", ["l", "tb", "tbl", "tblr"])
@pytest.mark.parametrize(("value", "blur"), [(0, 0), (0, 3), (LARGEST, 0), (LARGEST, 3)])
def test_borders_take_no_grey_levels(tissue: str, sides: str, value: int, blur: float) -> None:
    made = collimate(draw_tissue(tissue, 7), sides, blur=blur, value=value, noise=10, seed=8)
    rows, columns = (np.flatnonzero(made.outside.any(axis=axis)) for axis in (1, 0))
    inside = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    alone, framed = grey_of(grey_png(made.plain[inside])), grey_of(grey_png(made.marked))[inside]
    shown = made.outside[inside]
    assert np.corrcoef(alone[shown], framed[shown])[0, 1] >= 0.99
    assert np.abs(alone - framed)[shown].max() <= 25


def _pictures() -> dict[str, Film]:
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
    pictures = {name: values.clip(0, LARGEST).astype(np.uint16) for name, values in made.items()}
    pictures |= {f"{tissue} {seed}": draw_tissue(tissue, seed) for tissue in TISSUES for seed in range(2)}
    return pictures | {f"film {seed}": drawn_film(seed) for seed in range(12)}


@pytest.mark.parametrize("name", _pictures())
def test_pictures_without_artefacts_keep_their_range(name: str) -> None:
    picture = _pictures()[name]
    levels = decode_whole(grey_png(picture)).levels
    low, high = np.quantile(picture, (0.005, 0.995))
    assert levels is not None
    assert (levels.low, levels.high) == pytest.approx((low, high), abs=3 / 255 * (high - low))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_film_has_one_range_upright_and_turned(shape: str) -> None:
    made = mark(draw_tissue("chest", 9), shape, share=0.02, blur=0, value=LARGEST, seed=9).marked
    upright, turned = (decode_whole(grey_png(values)).levels for values in (made, made[::-1].T))
    assert upright is not None and turned is not None
    assert turned.high == pytest.approx(upright.high, rel=0.02)


def test_pixels_that_cannot_be_seen_do_not_count_and_few_that_can_do() -> None:
    line = np.zeros((600, 600, 2), np.uint16)
    line[1, :, 0], line[1, :, 1] = np.linspace(20_000, 40_000, 600), 65_535
    shown = grey_of(png(line[..., [0, 0, 0, 1]], 16))[1]
    assert shown[0] <= 2 and shown[-1] >= 253
    values = draw_tissue("12 bits", 1)[::2, ::2].astype(np.float64)
    seen = np.ones(values.shape, bool)
    seen[:40] = False
    kept = find_picture(values, seen)
    assert not kept[:40].any()
    values[:40] = 60_000
    assert np.array_equal(find_picture(values, seen), kept)


def test_colours_of_deep_images_share_a_window() -> None:
    red = np.linspace(0, 4_000, SIDE * SIDE).reshape(SIDE, SIDE)
    content = png(np.dstack([red, red / 2, red / 4]).astype(np.uint16), 16)
    # Half of the way, so no channel is clipped.
    middle = np.asarray(decode_image(content)).astype(float)[SIDE // 2, SIDE // 2]
    assert middle[1:] / middle[0] == pytest.approx([0.5, 0.25], abs=0.03)


def test_a_scaled_photograph_of_8_bits_is_itself() -> None:
    values = np.random.default_rng(0).integers(40, 90, (SIDE, SIDE, 3)).astype(np.uint16)
    for factor in (257, 256):
        for content in (png(values * np.uint16(factor), 16), tiff(values * np.uint16(factor))):
            assert np.array_equal(np.asarray(decode_image(content)), values)


def test_labels_and_small_bright_objects_on_a_dark_ground_are_no_markers() -> None:
    mask = np.zeros((SIDE, SIDE), np.uint16)
    for value in range(1, 21):
        mask[8 * value : 8 * value + 2, : 3 * value] = value
    assert len(np.unique(grey_of(grey_png(mask)))) == 21
    ground = np.random.default_rng(2).normal(1_000, 30, (SIDE, SIDE)).astype(np.uint16)
    y, x = np.mgrid[0:40, 0:40]
    ground[80:120, 80:120] = (60_000 - 40 * ((x - 20) ** 2 + (y - 20) ** 2)).clip(1_000).astype(np.uint16)
    assert len(np.unique(grey_of(grey_png(ground))[80:120, 80:120])) > 80


def test_a_range_that_the_file_states_is_a_window_only_where_it_clips() -> None:
    image = film()[..., None]
    low, high = int(image.min()), int(image.max())
    found = grey_of(tiff(image))
    for stated in ((0, 65_535), (0, 4_095), (low, high), (high, low), (low, low)):
        assert np.array_equal(grey_of(tiff(image, tags={340: stated[0], 341: stated[1]})), found)
    narrow = grey_of(tiff(image, tags={340: 1_900, 341: 2_100}))
    expected = ((image[..., 0] - 1_900.0) * 255 / 200).clip(0, 255)
    assert np.abs(narrow - expected).max() <= 1


@given(st.lists(st.integers(0, 65_535), min_size=1, max_size=300), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
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
    low, high = find_range(np.array(values))
    assert min(values) <= low <= high <= max(values)


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


@pytest.mark.parametrize("density", [0, 0.1, 0.41, 0.9, 1])
@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (30, 1), (40, 30)])
def test_components_are_those_that_a_flood_finds(density: float, shape: tuple[int, int]) -> None:
    mask = np.random.default_rng(round(100 * density)).random(shape) < density
    labels, number = label(mask)
    assert np.array_equal(labels > 0, mask)
    left, found = {(int(y), int(x)) for y, x in np.argwhere(mask)}, set[int]()
    while left:
        component, border = set(), [left.pop()]
        while border:
            y, x = border.pop()
            component.add(int(labels[y, x]))
            near = {(y + down, x + right) for down in (-1, 0, 1) for right in (-1, 0, 1)} & left
            left -= near
            border.extend(near)
        assert len(component) == 1 and not component & found
        found |= component
    assert number == len(found)


@pytest.mark.parametrize("pixels", [0, 1, 2, 3, 4, 8])
def test_dilation_reaches_so_many_pixels(pixels: int) -> None:
    mask = np.random.default_rng(2).random((40, 30)) < 0.02
    padded = np.pad(mask, pixels)
    side = range(2 * pixels + 1)
    reached = np.any([padded[y : y + 40, x : x + 30] for y in side for x in side], axis=0)
    assert np.array_equal(dilated(mask, pixels), reached)
    numbers = mask * np.arange(1, 1_201).reshape(40, 30)
    assert dilated(numbers, pixels).max() == numbers.max()
