"""The viewer: images that no browser reads by itself, pixels of the screen, zoom."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from app.application import create_app
from app.engine import open_engine
from app.settings import Settings
from index.ingest import ingest_manifest
from tests.browser.conftest import OpenSearch, Watch
from tests.browser.search_page import SearchPage, expect
from tests.browser.service import running
from tests.index.pictures import smooth_picture
from tests.training.models.tiny import tiny_model, tiny_preprocessing
from training.data.manifest import Record, read_manifest, write_manifest
from training.models.bundle_writer import save_bundle
from training.models.encoder import load_encoder

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.browser

SIZE = (400, 300)
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


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with films of 12 bits, as TIFF and in 16-bit PNG, with a marker in a corner."""
    folder = tmp_path_factory.mktemp("films")
    grey = np.asarray(smooth_picture(3, SIZE).convert("L")).astype(np.uint16) * 12 + 300
    grey[:20, :20] = 65_535
    (folder / "data").mkdir()
    for name in ("film.tif", "film.png"):
        Image.fromarray(grey).save(folder / "data" / name)
    records = [Record(id=name, image=name, split="test", texts=(name,)) for name in ("film.tif", "film.png")]
    write_manifest(folder / "data", records)
    bundle = folder / "bundle"
    model, preprocessing = tiny_model(), tiny_preprocessing()
    save_bundle(bundle, name="tiny", model=model, preprocessing=preprocessing, metrics={}, recipe_yaml="")
    settings = Settings(home=folder / "home", threads=1, device="cpu")
    engine = open_engine(settings)
    ingest_manifest(engine, "films", load_encoder(bundle, "cpu"), read_manifest(folder / "data"))
    engine.close()
    with running(create_app(settings)) as service:
        yield service


@pytest.fixture
def open_film(open_search: OpenSearch, films: str, watch: Watch) -> "Iterator[Locator]":
    """The picture of the TIFF in the open dialog."""
    watch.allow(films)
    picture = open_search("?q=film&image=film.tif", site=films).dialog.locator(".viewer-picture")
    expect(picture).to_have_js_property("naturalWidth", SIZE[0])
    yield picture


def zoom_of(search: SearchPage) -> float:
    return float(search.dialog.locator(".viewer-zoom").inner_text().rstrip("\u00d7"))


@pytest.mark.parametrize("name", ["film.tif", "film.png"])
def test_films_are_seen_as_they_are_searched(
    open_search: OpenSearch, films: str, watch: Watch, name: str
) -> None:
    watch.allow(films)
    search = open_search(f"?q=film&image={name}", site=films)
    picture = search.dialog.locator(".viewer-picture")
    expect(picture).to_have_js_property("naturalWidth", SIZE[0])
    expect(search.dialog.get_by_text("This image cannot be shown.")).not_to_be_visible()
    assert picture.evaluate(_GREY_LEVELS) > 150
    original = search.dialog.get_by_role("link", name="Original")
    expect(original).to_have_attribute("href", f"{films}/v1/collections/films/images/{name}/content")


@pytest.mark.parametrize("ratio", [1, 2])
def test_one_is_a_pixel_of_the_image_for_one_of_the_screen(
    open_search: OpenSearch, films: str, watch: Watch, ratio: int
) -> None:
    watch.allow(films)
    search = open_search("?q=film&image=film.tif", site=films, device_scale_factor=ratio)
    picture = search.dialog.locator(".viewer-picture")
    expect(picture).to_have_js_property("naturalWidth", SIZE[0])
    search.dialog.get_by_role("button", name="Actual size").click()
    assert zoom_of(search) == 1
    assert picture.evaluate(_SHOWN_WIDTH) == pytest.approx(SIZE[0], abs=0.5)
    for _ in range(12):
        search.page.keyboard.press("+")
    assert zoom_of(search) == 16
    assert picture.evaluate(_SHOWN_WIDTH) == pytest.approx(16 * SIZE[0], abs=1)
    expect(picture).to_have_css("image-rendering", "pixelated")
    for _ in range(20):
        search.page.keyboard.press("-")
    fitting = search.dialog.locator(".viewer-stage").evaluate(
        f"stage => Math.min(stage.clientWidth / {SIZE[0]}, stage.clientHeight / {SIZE[1]}) * devicePixelRatio"
    )
    assert zoom_of(search) == pytest.approx(min(1, fitting), abs=0.05)
    search.page.keyboard.press("0")
    assert zoom_of(search) == pytest.approx(fitting, abs=0.05)


def test_the_whole_image_is_seen_first_and_again_in_another_window(
    open_search: OpenSearch, films: str, watch: Watch
) -> None:
    watch.allow(films)
    search = open_search("?q=film&image=film.tif", site=films, viewport={"width": 1280, "height": 900})
    expect(search.dialog.locator(".viewer-picture")).to_have_js_property("naturalWidth", SIZE[0])
    for width, height in ((1280, 900), (700, 600), (360, 740)):
        search.page.set_viewport_size({"width": width, "height": height})
        search.page.wait_for_function(_FITS)


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
    expect(open_film).to_have_js_property("naturalWidth", SIZE[0])


def test_a_damaged_image_is_said_to_be_one(open_search: OpenSearch, films: str, watch: Watch) -> None:
    watch.allow(films)
    watch.allow("500")
    search = open_search(
        "?q=film&image=film.tif",
        site=films,
        before=lambda page: page.route("**/rendition", lambda route: route.fulfill(status=500)),
    )
    expect(search.dialog.get_by_text("This image cannot be shown.")).to_be_visible()
