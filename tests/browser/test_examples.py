"""Searches for more or less of an image, or of a part of it, also with a text; and the parts that matched."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator

from tests.browser.conftest import OpenSearch, Watch, step
from tests.browser.search_page import PAGE_SIZE, SearchPage, altered, box_of, expect, held, serious
from tests.browser.service import SHAPES

pytestmark = pytest.mark.browser

MORE = "More like this"
LESS = "Less like this"


def _draw(search: SearchPage) -> None:
    """Drag over the half in the middle of the picture."""
    expect(search.dialog.locator(".viewer-picture")).not_to_have_js_property("naturalWidth", 0)
    box = box_of(search.dialog.locator(".viewer-layer"))
    mouse = search.page.mouse
    for share, act in ((0.25, mouse.down), (0.75, mouse.up)):
        mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"], steps=4)
        act()


def _shares(frame: Locator) -> dict[str, float]:
    """The place of the drawn frame on the picture."""
    share = "(frame, side) => Number.parseFloat(frame.style[side]) / 100"
    sides = {"x": "left", "y": "top", "width": "width", "height": "height"}
    return {name: frame.evaluate(share, side) for name, side in sides.items()}


@pytest.mark.slow
def test_liked_and_disliked_images_join_the_text(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&q=circle").settle()
    liked = search.mark(2, MORE)
    assert search.ids() == search.found(text="circle", like=[liked])
    disliked = search.mark(1, LESS)
    shown = search.ids()
    assert shown == search.found(text="circle", like=[liked], unlike=[disliked])
    assert not {liked, disliked} & set(shown)
    expect(search.field).to_have_value("circle")
    expect(search.liked).to_have_text([liked])
    expect(search.disliked).to_have_text([disliked])
    for chip in (search.liked, search.disliked):
        assert chip.locator("img").evaluate("async (image) => (await image.decode(), image.naturalWidth)") > 0
    step("the link and the history hold them")
    link = search.link()
    assert (link["like"], link["unlike"]) == ([liked], [disliked])
    search.reload()
    assert search.ids() == shown
    search.page.go_back()
    expect(search.disliked).to_have_count(0)
    expect(search.liked).to_have_text([liked])
    search.settle()
    step("the text changes with them, and also a dropped image")
    search.go("#q=circle&unlike=shape-2")
    search.search("a blue square")
    assert search.ids() == search.found(text="a blue square", unlike=["shape-2"])
    picture = search.picture(7)
    with search.answered():
        search.drop(picture)
    assert search.ids() == search.found_by_picture(picture, unlike=[{"id": "shape-2"}])
    expect(search.disliked).to_have_text(["shape-2"])
    step("another collection starts with the text, and without examples and filters")
    search.go('#q=circle&like=shape-0&unlike=shape-2&filter={"field":"labels","eq":"circle"}')
    expect(search.chips).to_have_count(3)
    search.page.get_by_label("Collection").select_option("tiles")
    expect(search.answer).to_contain_text("9 images")
    expect(search.chips).to_have_count(0)
    expect(search.field).to_have_value("circle")
    assert "collection=tiles" in search.page.url


@pytest.mark.slow
def test_examples_are_taken_back_moved_and_opened(open_search: OpenSearch, watch: Watch) -> None:
    search = open_search("#q=circle&like=shape-0&like=shape-1&unlike=shape-2").settle()
    assert search.ids() == search.found(text="circle", like=["shape-0", "shape-1"], unlike=["shape-2"])
    search.press("Remove the liked image shape-0")
    assert search.ids() == search.found(text="circle", like=["shape-1"], unlike=["shape-2"])
    search.press("Clear examples")
    assert search.ids() == search.found(text="circle")
    expect(search.chips).to_have_count(0)
    step("the focus stays among the chips, and then goes to the field")
    search.go("#q=circle&like=shape-0&unlike=shape-2")
    search.button("Remove the liked image shape-0").focus()
    search.keys("Enter")
    expect(search.button("Remove the disliked image shape-2")).to_be_focused()
    search.keys("Enter")
    expect(search.field).to_be_focused()
    step("the last example gone leads back to the beginning")
    search.go("#like=shape-3")
    assert search.ids() == search.found(like=["shape-3"])
    search.button("Remove the liked image shape-3").click()
    expect(search.page.locator(".landing")).to_be_visible()
    expect(search.answer).to_contain_text("24 of 60 images")
    search.go("#q=circle")
    step("a text that was typed but not yet searched for is taken along")
    liked = search.ids()[4]
    more = search.tiles.nth(4).get_by_text(MORE)
    # At once: after a pause in typing the text would be searched for by itself.
    typed = """([field, more]) => {
        field.value = 'a blue square'; field.dispatchEvent(new Event('input')); more.click();
    }"""
    with search.page.expect_response(lambda answer: liked in (answer.request.post_data or "")):
        search.page.evaluate(typed, [search.field.element_handle(), more.element_handle()])
    search.settle()
    expect(search.field).to_have_value("a blue square")
    assert search.ids() == search.found(text="a blue square", like=[liked])
    search.press(f"Remove the liked image {liked}")
    opened = search.open_hit(3)
    answers = held(search.page, "**/search", times=1)
    search.dialog.get_by_role("button", name=MORE).click()
    expect(search.dialog).not_to_be_visible()
    expect(search.liked).to_have_text([opened])
    step("closing it, opened by its chip, leads back to the chip, also while it is still one of the hits")
    chip = search.page.get_by_title(f"Open {opened}")
    chip.focus()
    search.keys("Enter")
    expect(search.dialog.locator(".details")).to_contain_text(opened)
    expect(search.dialog.get_by_role("button", name=MORE)).to_have_attribute("aria-pressed", "true")
    search.keys("Escape")
    expect(search.dialog).not_to_be_visible()
    expect(chip).to_be_focused()
    answers[0].continue_()
    search.settle()
    expect(chip).to_be_focused()
    step("it is moved, and taken back")
    chip.click()
    expect(search.dialog.locator(".details")).to_contain_text(opened)
    search.keys("u")
    expect(search.disliked).to_have_text([opened])
    expect(search.liked).to_have_count(0)
    chip.click()
    search.dialog.get_by_role("button", name=LESS).click()
    expect(search.chips).to_have_count(0)
    step("a removed example, and too many, are reported")
    watch.allow("Failed to load resource")
    search.page.goto(f"{search.service}/#collection=shapes&q=circle&like=nobody")
    expect(search.notice).to_contain_text("Collection 'shapes' has no image 'nobody'.")
    expect(search.liked).to_have_text(["nobody"])
    search.press("Remove the liked image nobody")
    assert search.ids() == search.found(text="circle")
    many = "&".join(f"like=shape-{number}" for number in range(20, 37))
    search.page.goto(f"{search.service}/#collection=shapes&{many}")
    expect(search.notice).to_contain_text("17 are too many; send at most 16.")
    search.press("Remove the liked image shape-20")
    expect(search.notice).to_have_count(0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blade_cosine", "absolute_cosine"])
def test_models_that_search_by_one_thing_take_the_liked_image_alone(
    open_search: OpenSearch, kind: str
) -> None:
    def of_kind(page: Any) -> Any:
        kinds = [{"cosine_kind": kind, "score_kind": hit["score_kind"] and kind} for hit in page["hits"]]
        return {"hits": [hit | one for hit, one in zip(page["hits"], kinds, strict=True)]}

    search = open_search(before=lambda page: altered(page, "**/search", of_kind))
    search.search("circle")
    expect(search.page.locator(".hit-mark.unlike")).to_have_count(0)
    search.field.focus()
    search.keys("ArrowDown", "u")
    expect(search.chips).to_have_count(0)
    for _ in range(2):
        liked = search.mark(2, MORE)
        expect(search.field).to_have_value("")
        expect(search.liked).to_have_text([liked])
        assert search.ids() == search.found(like=[liked])
    search.open_hit()
    expect(search.dialog.get_by_role("button", name=MORE)).to_be_visible()
    expect(search.dialog.get_by_role("button", name=LESS)).to_have_count(0)


@pytest.mark.slow
def test_a_part_is_drawn_searched_by_and_given_up(open_search: OpenSearch) -> None:
    search = open_search("#q=circle").settle()
    name = search.open_hit()
    search.dialog.get_by_role("button", name="Search a part of this image").click()
    _draw(search)
    drawn = _shares(search.dialog.locator(".region-frame"))
    assert drawn == pytest.approx({"x": 0.25, "y": 0.25, "width": 0.5, "height": 0.5}, abs=0.02)
    search.dialog.get_by_role("button", name="Search this region").click()
    expect(search.dialog).not_to_be_visible()
    expect(search.liked).to_have_text(f"part of {name}")
    search.settle()
    sides, _, kept = search.link()["box"][0].partition(" ")
    assert kept == name
    assert [float(side) for side in sides.split(",")] == pytest.approx([*drawn.values()], abs=1e-3)
    query = {"like": [{"id": name, "box": drawn}], "limit": PAGE_SIZE}
    answer = search.ask(f"v1/collections/{SHAPES}/search", query)
    assert search.ids() == [hit["id"] for hit in answer["hits"]]
    step("it stays after a reload, until its chip is removed")
    search.reload()
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
    step("models without regions offer neither these nor what matched")
    altered(search.page, f"**/v1/collections/{SHAPES}", lambda _: {"regions": False})
    search.go("?collection=shapes&q=circle")
    search.open_hit()
    for name in ("Search a part of this image", "What matched"):
        expect(search.dialog.get_by_role("button", name=name)).not_to_be_visible()
    search.keys("e", "b")
    expect(search.dialog.get_by_role("group", name="Part of the image")).not_to_be_visible()


@pytest.mark.slow
def test_a_part_is_marked_by_keys_and_what_matched_lies_over_the_picture(open_search: OpenSearch) -> None:
    search = open_search("#q=circle", bypass_csp=True).settle()
    name = search.open_hit()
    picture, overlay = search.dialog.locator(".viewer-picture"), search.dialog.locator(".matched-picture")
    expect(picture).not_to_have_js_property("naturalWidth", 0)
    step("what matched, with a legend, at every zoom and of the next image")
    button = search.dialog.get_by_role("button", name="What matched")
    with search.page.expect_response("**/similarity-map") as answered:
        search.keys("e")
    assert answered.value.url.endswith(f"{quote(name, safe='')}/similarity-map")
    requests = {"text": "circle", "keywords": "circle"}
    assert json.loads(answered.value.request.post_data or "") == requests
    expect(overlay).not_to_have_js_property("naturalWidth", 0)
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(search.dialog.locator(".matched-legend")).to_contain_text("fits more")
    search.keys("+")
    assert overlay.bounding_box() == pytest.approx(picture.bounding_box(), abs=1)
    assert serious(search.page) == []
    with search.page.expect_response("**/similarity-map"):
        search.keys("0", "ArrowRight")
    expect(overlay).to_be_visible()
    button.click()
    expect(overlay).not_to_be_visible()
    step("a part is marked by keys, and given up")
    search.keys("b")
    panel = search.dialog.get_by_role("group", name="Part of the image")
    left, width = (panel.get_by_role("slider", name=side) for side in ("Left edge", "Width"))
    expect(panel.get_by_text("Set its edges")).to_be_focused()
    search.keys("Enter", "Tab")
    expect(left).to_be_focused()
    search.keys("ArrowRight")
    assert left.get_attribute("aria-valuetext") == "36 %"
    search.keys("Home")
    assert serious(search.page) == []
    search.keys("Escape")
    expect(panel).not_to_be_visible()
    expect(search.dialog).to_be_visible()
    step("it is marked again, and searched by")
    search.keys("b")
    width.press("End")
    expect(width).to_have_attribute("aria-valuetext", "100 %")
    left.press("Enter")
    expect(search.liked).to_have_count(1)
    assert search.link()["box"][0].startswith("0,0.35,1,0.3 ")
