"""The viewer: images that no browser reads by itself, pixels of the screen, zoom, and windows of grey."""

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route

from tests.browser.conftest import DESK, OpenSearch, Watch, step
from tests.browser.search_page import SearchPage, box_of, expect, held
from tests.browser.service import FILM_SIZE

pytestmark = pytest.mark.browser

_GREY_LEVELS = """picture => {
  if (!picture.naturalWidth) return 0;
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


class Film(SearchPage):
    """The dialog with an open film."""

    def __init__(self, search: SearchPage) -> None:
        super().__init__(search.page, search.service, search.site)
        self.shown = self.dialog.locator(".viewer-picture")
        self.zoom = self.dialog.locator(".viewer-zoom")
        self.levels = self.dialog.get_by_role("button", name="Grey levels")
        self.automatic = self.dialog.get_by_role("button", name="Automatic")

    def zoomed(self) -> float:
        return float(self.zoom.inner_text().rstrip("\u00d7"))

    def slider(self, name: str) -> Locator:
        return self.dialog.get_by_role("slider", name=name)


def _open(open_search: OpenSearch, films: str, **window: Any) -> Film:
    film = Film(open_search("#q=film&image=film.tif", site=films, **window))
    expect(film.shown).to_have_js_property("naturalWidth", FILM_SIZE[0])
    return film


@pytest.mark.parametrize("ratio", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_films_are_seen_as_they_are_searched_and_pixel_by_pixel(
    open_search: OpenSearch, films: str, ratio: int
) -> None:
    waiting: list[list[Route]] = []

    def hold(page: Page) -> None:
        waiting.append(held(page, "**/search", times=1))

    film = _open(open_search, films, device_scale_factor=ratio, before=hold, **DESK)
    step("the zoom stays when the hits come after the image, and the picture is inverted")
    film.keys("o", "+", "i")
    expect(film.zoom).to_have_text("1.5\u00d7")
    waiting[0][0].continue_()
    expect(film.dialog.locator(".dialog-score")).to_be_visible()
    expect(film.zoom).to_have_text("1.5\u00d7")
    expect(film.shown).to_have_css("filter", "invert(1)")
    for name in ("film.png", "film.tif"):
        step(f"the grey levels of {name}")
        film.page.goto(f"{films}/#q=film&image={name}")
        expect(film.shown).to_have_js_property("naturalWidth", FILM_SIZE[0])
        expect(film.dialog.get_by_text("This image cannot be shown.")).not_to_be_visible()
        assert film.shown.evaluate(_GREY_LEVELS) > 150
        original = film.dialog.get_by_role("link", name="Original")
        expect(original).to_have_attribute("href", f"{films}/v1/collections/films/images/{name}/content")
    step("one is a pixel of the image for one of the screen")
    film.dialog.get_by_role("button", name="Actual size").click()
    assert film.zoomed() == 1
    assert film.shown.evaluate(_SHOWN_WIDTH) == pytest.approx(FILM_SIZE[0], abs=0.5)
    film.keys(*12 * "+")
    assert film.zoomed() == 16
    assert film.shown.evaluate(_SHOWN_WIDTH) == pytest.approx(16 * FILM_SIZE[0], abs=1)
    expect(film.shown).to_have_css("image-rendering", "pixelated")
    step("arrows move a large picture")
    before = box_of(film.shown)
    film.keys("ArrowRight")
    assert box_of(film.shown)["x"] == pytest.approx(before["x"] - 60)
    film.keys(*20 * "-")
    fitting = film.dialog.locator(".viewer-stage").evaluate(
        f"stage => Math.min(stage.clientWidth / {FILM_SIZE[0]}, stage.clientHeight / {FILM_SIZE[1]})"
        " * devicePixelRatio"
    )
    assert film.zoomed() == pytest.approx(min(1, fitting), abs=0.05)
    film.keys("0")
    assert film.zoomed() == pytest.approx(fitting, abs=0.05)
    film.keys("ArrowLeft", "ArrowRight")
    expect(film.shown).to_have_js_property("naturalWidth", FILM_SIZE[0])
    step("the whole image is seen in windows of other sizes")
    for width, height in ((1280, 900), (700, 600), (360, 740)):
        film.page.set_viewport_size({"width": width, "height": height})
        film.page.wait_for_function(_FITS)


def test_what_is_damaged_cannot_be_shown_and_what_has_8_bits_has_no_window(
    open_search: OpenSearch, films: str, watch: Watch
) -> None:
    watch.allow(films)
    watch.allow("500")
    search = open_search().settle()
    with search.page.expect_response("**/levels") as answered:
        search.open_hit()
    assert answered.value.json()["deep"] is False
    search.keys("g")
    expect(search.dialog.get_by_role("button", name="Grey levels")).not_to_be_visible()
    expect(search.dialog.get_by_role("group", name="Grey levels")).not_to_be_visible()
    search.page.route("**/rendition", lambda route: route.fulfill(status=500))
    search.page.goto(f"{films}/#q=film&image=film.tif")
    expect(search.dialog.get_by_text("This image cannot be shown.")).to_be_visible()


@pytest.mark.slow
def test_a_film_is_seen_through_other_windows(open_search: OpenSearch, films: str) -> None:
    film = _open(open_search, films)
    page, rendition = film.page, f"{films}/v1/collections/films/images/film.tif/rendition"
    body = page.request.get(f"{films}/v1/collections/films/images/film.tif/levels").json()
    step("all values, at the same zoom")
    film.keys("o")
    film.levels.click()
    expect(film.automatic).to_be_focused()
    expect(film.automatic).to_have_attribute("aria-pressed", "true")
    film.dialog.get_by_role("button", name="All values").click()
    low, high = body["smallest"], body["largest"]
    window = f"{(low + high) / 2:g},{high - low:g}"
    expect(film.shown).to_have_attribute("src", f"{rendition}?window={window}")
    page.wait_for_function(f"picture => ({_GREY_LEVELS})(picture) < 30", arg=film.shown.element_handle())
    expect(film.zoom).to_have_text("1\u00d7")
    expect(film.automatic).to_have_attribute("aria-pressed", "false")
    film.automatic.click()
    expect(film.shown).to_have_attribute("src", rendition)
    page.wait_for_function(f"picture => ({_GREY_LEVELS})(picture) > 150", arg=film.shown.element_handle())
    step("a window is moved by keyboard, and its keys are not those of the viewer")
    film.keys("g", "g")
    centre, width = film.slider("Centre"), film.slider("Width")
    automatic = body["automatic"]
    expect(centre).to_have_attribute("aria-valuetext", f"{round(automatic['centre']):,}")
    expect(width).to_have_attribute("aria-valuetext", f"{round(automatic['width']):,}")
    film.keys("Tab", "Tab")
    expect(centre).to_be_focused()
    film.keys(*5 * ["ArrowRight"], "Tab", "ArrowLeft", "o", "+")
    expect(film.zoom).to_have_text("1\u00d7")
    texts = (slider.get_attribute("aria-valuetext") or "" for slider in (centre, width))
    numbers = [int(text.replace(",", "")) for text in texts]
    assert numbers[0] > automatic["centre"]
    assert automatic["width"] * 0.9 < numbers[1] < automatic["width"]
    expect(film.shown).to_have_attribute("src", re.compile(rf"\?window={numbers[0]},{numbers[1]}$"))
    step("the next film has its own window")
    film.go("?collection=films&image=film.tif")
    expect(film.shown).to_have_js_property("naturalWidth", FILM_SIZE[0])
    film.levels.click()
    film.dialog.get_by_role("button", name="All values").click()
    expect(film.shown).to_have_attribute("src", re.compile("window"))
    film.dialog.get_by_role("button", name="Next image").click()
    expect(film.shown).to_have_attribute("src", rendition.replace("film.tif", "film.png"))
    expect(film.dialog.get_by_role("group", name="Grey levels")).not_to_be_visible()
    film.levels.click()
    expect(film.automatic).to_have_attribute("aria-pressed", "true")


@pytest.mark.slow
@pytest.mark.parametrize(
    "window",
    [
        {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
        # 1280 x 860 at 200 %.
        pytest.param({"viewport": {"width": 640, "height": 430}}, marks=pytest.mark.slow),
    ],
)
def test_film_and_controls_fit_small_windows(
    open_search: OpenSearch, films: str, window: dict[str, Any]
) -> None:
    film = _open(open_search, films, **window)
    film.levels.click()
    stage = box_of(film.dialog.locator(".viewer-stage"))
    assert min(stage["width"], stage["height"]) >= 300
    for part in (".viewer-tools", ".window-panel"):
        box = box_of(film.dialog.locator(part))
        assert stage["x"] <= box["x"]
        assert box["x"] + box["width"] <= stage["x"] + stage["width"]
        assert stage["y"] <= box["y"]
        assert box["y"] + box["height"] <= stage["y"] + stage["height"]
