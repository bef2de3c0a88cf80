"""The viewer: images that no browser reads by itself, pixels of the screen, zoom."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from tests.browser.conftest import OpenSearch, Watch
from tests.browser.search_page import SearchPage, expect
from tests.browser.service import FILM_SIZE

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.browser

_GREY_LEVELS = """picture => {
  const canvas = new OffscreenCanvas(picture.naturalWidth, picture.naturalHeight).getContext('2d');
  canvas.drawImage(picture, 0, 0);
  const { data } = canvas.getImageData(0, 0, picture.naturalWidth, picture.naturalHeight);
  return new Set(data.filter((_, place) => place % 4 === 0)).size;
}"""
_SHOWN_WIDTH = "picture => picture.getBoundingClientRect().width * devicePixelRatio"

_FITS = """() => {
  const viewer = document.querySelector('image-search').shadowRoot.querySelector('.viewer');
  const box = (name) => viewer.querySelector(name).getBoundingClientRect();
  const left = ['width', 'height'].map((side) => box('.viewer-stage')[side] - box('.viewer-picture')[side]);
  return Math.min(...left) > -1 && Math.min(...left) < 1;
}"""


@pytest.fixture
def open_film(open_search: OpenSearch, films: str, watch: Watch) -> "Iterator[Locator]":
    """The picture of the TIFF in the open dialog."""
    watch.allow(films)
    picture = open_search("#q=film&image=film.tif", site=films).dialog.locator(".viewer-picture")
    expect(picture).to_have_js_property("naturalWidth", FILM_SIZE[0])
    yield picture


def zoom_of(search: SearchPage) -> float:
    return float(search.dialog.locator(".viewer-zoom").inner_text().rstrip("\u00d7"))


@pytest.mark.parametrize("name", ["film.tif", pytest.param("film.png", marks=pytest.mark.slow)])
def test_films_are_seen_as_they_are_searched(
    open_search: OpenSearch, films: str, watch: Watch, name: str
) -> None:
    watch.allow(films)
    search = open_search(f"#q=film&image={name}", site=films)
    picture = search.dialog.locator(".viewer-picture")
    expect(picture).to_have_js_property("naturalWidth", FILM_SIZE[0])
    expect(search.dialog.get_by_text("This image cannot be shown.")).not_to_be_visible()
    assert picture.evaluate(_GREY_LEVELS) > 150
    original = search.dialog.get_by_role("link", name="Original")
    expect(original).to_have_attribute("href", f"{films}/v1/collections/films/images/{name}/content")


@pytest.mark.parametrize("ratio", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_is_a_pixel_of_the_image_for_one_of_the_screen(
    open_search: OpenSearch, films: str, watch: Watch, ratio: int
) -> None:
    watch.allow(films)
    search = open_search("#q=film&image=film.tif", site=films, device_scale_factor=ratio)
    picture = search.dialog.locator(".viewer-picture")
    expect(picture).to_have_js_property("naturalWidth", FILM_SIZE[0])
    search.dialog.get_by_role("button", name="Actual size").click()
    assert zoom_of(search) == 1
    assert picture.evaluate(_SHOWN_WIDTH) == pytest.approx(FILM_SIZE[0], abs=0.5)
    for _ in range(12):
        search.page.keyboard.press("+")
    assert zoom_of(search) == 16
    assert picture.evaluate(_SHOWN_WIDTH) == pytest.approx(16 * FILM_SIZE[0], abs=1)
    expect(picture).to_have_css("image-rendering", "pixelated")
    for _ in range(20):
        search.page.keyboard.press("-")
    fitting = search.dialog.locator(".viewer-stage").evaluate(
        f"stage => Math.min(stage.clientWidth / {FILM_SIZE[0]}, stage.clientHeight / {FILM_SIZE[1]})"
        " * devicePixelRatio"
    )
    assert zoom_of(search) == pytest.approx(min(1, fitting), abs=0.05)
    search.page.keyboard.press("0")
    assert zoom_of(search) == pytest.approx(fitting, abs=0.05)


@pytest.mark.slow
def test_the_whole_image_is_seen_first_and_again_in_another_window(
    open_search: OpenSearch, films: str, watch: Watch
) -> None:
    watch.allow(films)
    search = open_search("#q=film&image=film.tif", site=films, viewport={"width": 1280, "height": 900})
    expect(search.dialog.locator(".viewer-picture")).to_have_js_property("naturalWidth", FILM_SIZE[0])
    for width, height in ((1280, 900), (700, 600), (360, 740)):
        search.page.set_viewport_size({"width": width, "height": height})
        search.page.wait_for_function(_FITS)


@pytest.mark.slow
def test_arrows_move_a_large_picture_and_else_step(open_film: "Locator") -> None:
    page = open_film.page
    for _ in range(9):
        page.keyboard.press("+")
    before = open_film.bounding_box()
    page.keyboard.press("ArrowRight")
    after = open_film.bounding_box()
    assert before is not None
    assert after is not None
    assert after["x"] == pytest.approx(before["x"] - 60)
    page.keyboard.press("0")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    expect(open_film).to_have_js_property("naturalWidth", FILM_SIZE[0])


def test_a_damaged_image_is_said_to_be_one(open_search: OpenSearch, films: str, watch: Watch) -> None:
    watch.allow(films)
    watch.allow("500")
    search = open_search(
        "#q=film&image=film.tif",
        site=films,
        before=lambda page: page.route("**/rendition", lambda route: route.fulfill(status=500)),
    )
    expect(search.dialog.get_by_text("This image cannot be shown.")).to_be_visible()


def levels_of(films: str, name: str) -> dict[str, Any]:
    with urlopen(f"{films}/v1/collections/films/images/{name}/levels", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.mark.slow
def test_a_film_is_seen_through_another_window_and_the_automatic_one_again(
    open_film: "Locator", films: str
) -> None:
    page = open_film.page
    page.keyboard.press("o")
    page.get_by_role("button", name="Grey levels").click()
    automatic = page.get_by_role("button", name="Automatic")
    expect(automatic).to_be_focused()
    expect(automatic).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="All values").click()
    expect(open_film).to_have_attribute("src", re.compile(r"rendition\?window="))
    levels = levels_of(films, "film.tif")
    low, high = levels["smallest"], levels["largest"]
    window = f"{(low + high) / 2:g},{high - low:g}"
    expect(open_film).to_have_attribute(
        "src", f"{films}/v1/collections/films/images/film.tif/rendition?window={window}"
    )
    page.wait_for_function(f"picture => ({_GREY_LEVELS})(picture) < 30", arg=open_film.element_handle())
    expect(page.locator(".viewer-zoom")).to_have_text("1\u00d7")
    expect(automatic).to_have_attribute("aria-pressed", "false")
    automatic.click()
    expect(open_film).to_have_attribute("src", re.compile("rendition$"))
    page.wait_for_function(f"picture => ({_GREY_LEVELS})(picture) > 150", arg=open_film.element_handle())


@pytest.mark.slow
def test_the_window_is_moved_by_keyboard_and_its_keys_are_not_those_of_the_viewer(
    open_film: "Locator", films: str
) -> None:
    page = open_film.page
    expect(page.get_by_role("button", name="Grey levels")).to_be_visible()
    page.keyboard.press("g")
    centre, width = (page.get_by_role("slider", name=name) for name in ("Centre", "Width"))
    found = levels_of(films, "film.tif")["automatic"]
    expect(centre).to_have_attribute("aria-valuetext", f"{round(found['centre']):,}")
    expect(width).to_have_attribute("aria-valuetext", f"{round(found['width']):,}")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(centre).to_be_focused()
    before = page.locator(".viewer-zoom").inner_text()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("o")
    expect(page.locator(".viewer-zoom")).to_have_text(before)
    moved, narrower = (slider.get_attribute("aria-valuetext") or "" for slider in (centre, width))
    numbers = [int(text.replace(",", "")) for text in (moved, narrower)]
    assert numbers[0] > found["centre"]
    assert found["width"] * 0.9 < numbers[1] < found["width"]
    expect(open_film).to_have_attribute("src", re.compile(rf"\?window={numbers[0]},{numbers[1]}$"))


@pytest.mark.slow
def test_the_next_film_has_its_own_window(open_search: OpenSearch, films: str, watch: Watch) -> None:
    watch.allow(films)
    search = open_search("#collection=films&image=film.tif", site=films)
    picture = search.dialog.locator(".viewer-picture")
    search.dialog.get_by_role("button", name="Grey levels").click()
    search.dialog.get_by_role("button", name="All values").click()
    expect(picture).to_have_attribute("src", re.compile("window"))
    search.dialog.get_by_role("button", name="Next image").click()
    expect(picture).to_have_attribute("src", f"{films}/v1/collections/films/images/film.png/rendition")
    expect(search.dialog.get_by_role("group", name="Grey levels")).not_to_be_visible()
    search.dialog.get_by_role("button", name="Grey levels").click()
    expect(search.dialog.get_by_role("button", name="Automatic")).to_have_attribute("aria-pressed", "true")


def test_an_image_of_8_bits_has_no_window(open_search: OpenSearch) -> None:
    search = open_search("?collection=shapes")
    search.settle()
    with search.page.expect_response("**/levels") as answered:
        search.tiles.first.locator(".hit-open").click()
    assert answered.value.json()["deep"] is False
    search.page.keyboard.press("g")
    expect(search.dialog.get_by_role("button", name="Grey levels")).not_to_be_visible()
    expect(search.dialog.get_by_role("group", name="Grey levels")).not_to_be_visible()


@pytest.mark.parametrize(
    "window",
    [
        {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
        # 1280 x 860 at 200 %.
        pytest.param({"viewport": {"width": 640, "height": 430}}, marks=pytest.mark.slow),
    ],
)
def test_film_and_controls_fit_small_windows(
    open_search: OpenSearch, films: str, watch: Watch, window: dict[str, Any]
) -> None:
    watch.allow(films)
    search = open_search("#q=film&image=film.tif", site=films, **window)
    search.dialog.get_by_role("button", name="Grey levels").click()
    stage = search.dialog.locator(".viewer-stage").bounding_box()
    assert stage is not None
    assert min(stage["width"], stage["height"]) >= 300
    for part in (".viewer-tools", ".window-panel"):
        box = search.dialog.locator(part).bounding_box()
        assert box is not None
        assert stage["x"] <= box["x"]
        assert box["x"] + box["width"] <= stage["x"] + stage["width"]
        assert stage["y"] <= box["y"]
        assert box["y"] + box["height"] <= stage["y"] + stage["height"]
