"""A part of an image as the query, drawn or set by keys, and the overlay of what matched."""

import io
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.browser.conftest import OpenSearch, Watch
from tests.browser.search_page import PAGE_SIZE, SearchPage, expect
from tests.browser.service import SHAPES
from tests.browser.test_accessibility import serious
from tests.index.pictures import smooth_picture

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.browser

_HALF = {"x": 0.25, "y": 0.25, "width": 0.5, "height": 0.5}


def _open_first(search: SearchPage) -> str:
    """Open the first hit, and wait for its picture."""
    name = search.ids()[0]
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog.locator(".viewer-picture")).not_to_have_js_property("naturalWidth", 0)
    return name


def _draw(search: SearchPage, begin: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag over the picture, in fractions of it."""
    box = search.dialog.locator(".viewer-layer").bounding_box()
    assert box is not None
    mouse = search.page.mouse
    for number, (x, y) in enumerate((begin, end)):
        mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=4)
        (mouse.up if number else mouse.down)()


def _found(search: SearchPage, box: dict[str, float], name: str) -> list[str]:
    query = {"like": [{"id": name, "box": box}], "limit": PAGE_SIZE}
    page: dict[str, Any] = search.ask(f"v1/collections/{SHAPES}/search", query)
    return [hit["id"] for hit in page["hits"]]


def _shares(frame: "Locator") -> dict[str, float]:
    """The place of the drawn frame on the picture."""
    share = "(frame, side) => Number.parseFloat(frame.style[side]) / 100"
    sides = {"x": "left", "y": "top", "width": "width", "height": "height"}
    return {name: frame.evaluate(share, side) for name, side in sides.items()}


def test_a_drawn_part_of_a_hit_is_searched_by_and_shown_on_its_chip(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    name = _open_first(search)
    search.dialog.get_by_role("button", name="Search a part of this image").click()
    _draw(search, (0.25, 0.25), (0.75, 0.75))
    drawn = _shares(search.dialog.locator(".region-frame"))
    assert drawn == pytest.approx(_HALF, abs=0.02)
    search.dialog.get_by_role("button", name="Search this region").click()
    expect(search.dialog).not_to_be_visible()
    expect(search.liked).to_have_text(f"part of {name}")
    search.settle()
    kept = search.link()["box"][0]
    assert kept.endswith(f" {name}")
    assert [float(side) for side in kept.split()[0].split(",")] == pytest.approx([*drawn.values()], abs=1e-3)
    assert search.ids() == _found(search, drawn, name)
    search.page.reload()
    search.settle()
    expect(search.liked).to_have_text(f"part of {name}")
    search.liked.get_by_role("button", name="Remove the liked part of the image").click()
    expect(search.liked).to_have_count(0)
    search.expect_link("box")


@pytest.mark.slow
def test_a_part_is_marked_by_keys_and_given_up(open_search: OpenSearch) -> None:
    search = open_search("#q=circle", bypass_csp=True)
    search.settle()
    _open_first(search)
    keyboard = search.page.keyboard
    keyboard.press("b")
    panel = search.dialog.get_by_role("group", name="Part of the image")
    expect(panel.get_by_text("Set its edges")).to_be_focused()
    keyboard.press("Enter")
    keyboard.press("Tab")
    left = panel.get_by_role("slider", name="Left edge")
    expect(left).to_be_focused()
    keyboard.press("ArrowRight")
    assert left.get_attribute("aria-valuetext") == "36 %"
    keyboard.press("Home")
    assert serious(search) == []
    keyboard.press("Escape")
    expect(panel).not_to_be_visible()
    expect(search.dialog).to_be_visible()
    keyboard.press("b")
    panel.get_by_role("slider", name="Width").press("End")
    expect(panel.get_by_role("slider", name="Width")).to_have_attribute("aria-valuetext", "100 %")
    panel.get_by_role("slider", name="Left edge").press("Enter")
    expect(search.liked).to_have_count(1)
    assert search.link()["box"][0].startswith("0,0.35,1,0.3 ")


@pytest.mark.slow
def test_what_matched_lies_over_the_picture_with_a_legend(open_search: OpenSearch) -> None:
    search = open_search("#q=circle", bypass_csp=True)
    search.settle()
    name = _open_first(search)
    button = search.dialog.get_by_role("button", name="What matched")
    with search.page.expect_response(lambda answer: answer.url.endswith("/similarity-map")) as answered:
        search.page.keyboard.press("e")
    assert answered.value.url.endswith(f"{quote(name, safe='')}/similarity-map")
    assert json.loads(answered.value.request.post_data or "") == {
        "text": "circle",
        "keywords": "circle",
    }
    overlay = search.dialog.locator(".matched-picture")
    expect(overlay).not_to_have_js_property("naturalWidth", 0)
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(search.dialog.locator(".matched-legend")).to_contain_text("fits more")
    picture = search.dialog.locator(".viewer-picture")
    search.page.keyboard.press("+")
    assert overlay.bounding_box() == pytest.approx(picture.bounding_box(), abs=1)
    assert serious(search) == []
    with search.page.expect_response(lambda answer: answer.url.endswith("/similarity-map")):
        search.page.keyboard.press("0")
        search.page.keyboard.press("ArrowRight")
    expect(overlay).to_be_visible()
    button.click()
    expect(overlay).not_to_be_visible()


@pytest.mark.slow
def test_a_part_of_a_dropped_image_is_searched_by(open_search: OpenSearch) -> None:
    search = open_search("")
    search.settle()
    content = io.BytesIO()
    smooth_picture(1).save(content, "PNG")
    search.drop(content.getvalue())
    chip = search.page.locator(".field-chip")
    expect(chip).to_contain_text("query.png")
    chip.get_by_role("button", name="Search a part of this image").click()
    expect(search.dialog.get_by_role("heading", name="query.png")).to_be_visible()
    expect(search.dialog.locator(".viewer-picture")).not_to_have_js_property("naturalWidth", 0)
    _draw(search, (0.25, 0.25), (0.75, 0.75))
    search.dialog.get_by_role("button", name="Search this region").click()
    expect(chip).to_contain_text("part of query.png")
    search.settle()
    chip.get_by_role("button", name="Search a part of this image").click()
    search.dialog.get_by_role("button", name="Search the whole image").click()
    expect(chip).not_to_contain_text("part of")


def test_models_without_regions_offer_neither(open_search: OpenSearch, watch: Watch) -> None:
    def without_regions(page: Any) -> None:
        def answer(route: Any) -> None:
            response = route.fetch()
            route.fulfill(response=response, json={**response.json(), "regions": False})

        page.route(f"**/v1/collections/{SHAPES}", answer)

    search = open_search("#q=circle", before=without_regions)
    search.settle()
    _open_first(search)
    expect(search.dialog.locator(".details")).to_contain_text("pixels")
    expect(search.dialog.get_by_role("button", name="Search a part of this image")).not_to_be_visible()
    expect(search.dialog.get_by_role("button", name="What matched")).not_to_be_visible()
    search.page.keyboard.press("e")
    search.page.keyboard.press("b")
    expect(search.dialog.get_by_role("group", name="Part of the image")).not_to_be_visible()
    assert watch.problems == []
