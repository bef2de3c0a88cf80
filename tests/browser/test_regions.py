"""A part of an image as the query, drawn or set by keys, and the overlay of what matched."""

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.browser.conftest import OpenSearch, Step
from tests.browser.search_page import PAGE_SIZE, SearchPage, expect, serious
from tests.browser.service import SHAPES

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.browser

_HALF = {"x": 0.25, "y": 0.25, "width": 0.5, "height": 0.5}


def _draw(search: SearchPage) -> None:
    """Drag over the half in the middle of the picture."""
    expect(search.dialog.locator(".viewer-picture")).not_to_have_js_property("naturalWidth", 0)
    box = search.dialog.locator(".viewer-layer").bounding_box()
    assert box is not None
    mouse = search.page.mouse
    for share, act in ((0.25, mouse.down), (0.75, mouse.up)):
        mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"], steps=4)
        act()


def _found(search: SearchPage, box: dict[str, float], name: str) -> list[str]:
    query = {"like": [{"id": name, "box": box}], "limit": PAGE_SIZE}
    page: dict[str, Any] = search.ask(f"v1/collections/{SHAPES}/search", query)
    return [hit["id"] for hit in page["hits"]]


def _shares(frame: "Locator") -> dict[str, float]:
    """The place of the drawn frame on the picture."""
    share = "(frame, side) => Number.parseFloat(frame.style[side]) / 100"
    sides = {"x": "left", "y": "top", "width": "width", "height": "height"}
    return {name: frame.evaluate(share, side) for name, side in sides.items()}


def test_a_part_is_drawn_searched_by_and_given_up(open_search: OpenSearch, step: Step) -> None:
    search = open_search("#q=circle")
    search.settle()
    step("a part of a hit is drawn and searched by")
    name = search.open_hit()
    search.dialog.get_by_role("button", name="Search a part of this image").click()
    _draw(search)
    drawn = _shares(search.dialog.locator(".region-frame"))
    assert drawn == pytest.approx(_HALF, abs=0.02)
    search.dialog.get_by_role("button", name="Search this region").click()
    expect(search.dialog).not_to_be_visible()
    expect(search.liked).to_have_text(f"part of {name}")
    search.settle()
    sides, _, kept = search.link()["box"][0].partition(" ")
    assert kept == name
    assert [float(side) for side in sides.split(",")] == pytest.approx([*drawn.values()], abs=1e-3)
    assert search.ids() == _found(search, drawn, name)
    step("it stays after a reload, until its chip is removed")
    search.page.reload()
    search.settle()
    expect(search.liked).to_have_text(f"part of {name}")
    search.liked.get_by_role("button", name="Remove the liked part of the image").click()
    expect(search.liked).to_have_count(0)
    search.expect_link("box")
    step("a part of a dropped image, and the whole of it again")
    search.go("#collection=shapes")
    search.drop(search.picture(7))
    chip = search.page.locator(".field-chip")
    expect(chip).to_contain_text("query.png")
    chip.get_by_role("button", name="Search a part of this image").click()
    expect(search.dialog.get_by_role("heading", name="query.png")).to_be_visible()
    _draw(search)
    search.dialog.get_by_role("button", name="Search this region").click()
    expect(chip).to_contain_text("part of query.png")
    search.settle()
    chip.get_by_role("button", name="Search a part of this image").click()
    search.dialog.get_by_role("button", name="Search the whole image").click()
    expect(chip).not_to_contain_text("part of")


@pytest.mark.slow
def test_a_part_is_marked_by_keys_and_what_matched_lies_over_the_picture(
    open_search: OpenSearch, step: Step
) -> None:
    search = open_search("#q=circle", bypass_csp=True)
    search.settle()
    name = search.open_hit()
    picture, overlay = search.dialog.locator(".viewer-picture"), search.dialog.locator(".matched-picture")
    expect(picture).not_to_have_js_property("naturalWidth", 0)
    keyboard = search.page.keyboard
    step("what matched, with a legend, at every zoom and of the next image")
    button = search.dialog.get_by_role("button", name="What matched")
    with search.page.expect_response("**/similarity-map") as answered:
        keyboard.press("e")
    assert answered.value.url.endswith(f"{quote(name, safe='')}/similarity-map")
    asked = {"text": "circle", "keywords": "circle"}
    assert json.loads(answered.value.request.post_data or "") == asked
    expect(overlay).not_to_have_js_property("naturalWidth", 0)
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(search.dialog.locator(".matched-legend")).to_contain_text("fits more")
    keyboard.press("+")
    assert overlay.bounding_box() == pytest.approx(picture.bounding_box(), abs=1)
    assert serious(search.page) == []
    with search.page.expect_response("**/similarity-map"):
        keyboard.press("0")
        keyboard.press("ArrowRight")
    expect(overlay).to_be_visible()
    button.click()
    expect(overlay).not_to_be_visible()
    step("a part is marked by keys, and given up")
    keyboard.press("b")
    panel = search.dialog.get_by_role("group", name="Part of the image")
    left, width = (panel.get_by_role("slider", name=side) for side in ("Left edge", "Width"))
    expect(panel.get_by_text("Set its edges")).to_be_focused()
    keyboard.press("Enter")
    keyboard.press("Tab")
    expect(left).to_be_focused()
    keyboard.press("ArrowRight")
    assert left.get_attribute("aria-valuetext") == "36 %"
    keyboard.press("Home")
    assert serious(search.page) == []
    keyboard.press("Escape")
    expect(panel).not_to_be_visible()
    expect(search.dialog).to_be_visible()
    step("it is marked again, and searched by")
    keyboard.press("b")
    width.press("End")
    expect(width).to_have_attribute("aria-valuetext", "100 %")
    left.press("Enter")
    expect(search.liked).to_have_count(1)
    assert search.link()["box"][0].startswith("0,0.35,1,0.3 ")


def test_models_without_regions_offer_neither(open_search: OpenSearch) -> None:
    def without_regions(route: Any) -> None:
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), "regions": False})

    search = open_search(
        "#q=circle", before=lambda page: page.route(f"**/v1/collections/{SHAPES}", without_regions)
    )
    search.settle()
    search.open_hit()
    for name in ("Search a part of this image", "What matched"):
        expect(search.dialog.get_by_role("button", name=name)).not_to_be_visible()
    search.page.keyboard.press("e")
    search.page.keyboard.press("b")
    expect(search.dialog.get_by_role("group", name="Part of the image")).not_to_be_visible()
