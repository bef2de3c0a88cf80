"""More like this, less like this: liked and disliked images beside what is typed."""

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenSearch, Step, Watch
from tests.browser.search_page import expect

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = pytest.mark.browser

MORE = "More like this"
LESS = "Less like this"


def test_liked_and_disliked_images_join_the_text(open_search: OpenSearch, step: Step) -> None:
    search = open_search("#collection=shapes&q=circle")
    search.settle()
    step("one is liked, another disliked")
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
    search.page.reload()
    search.settle()
    assert search.ids() == shown
    search.page.go_back()
    expect(search.disliked).to_have_count(0)
    expect(search.liked).to_have_text([liked])
    search.settle()
    step("the text changes beside them, and a dropped image too")
    search.go("#q=circle&unlike=shape-2")
    search.search("a blue square")
    assert search.ids() == search.found(text="a blue square", unlike=["shape-2"])
    picture = search.picture(7)
    with search.answered():
        search.drop(picture)
    assert search.ids() == search.found_by_picture(picture, unlike=[{"id": "shape-2"}])
    expect(search.disliked).to_have_text(["shape-2"])
    step("another collection starts without examples")
    search.go("#q=circle&like=shape-0&unlike=shape-2")
    search.page.get_by_label("Collection").select_option("tiles")
    expect(search.answer).to_contain_text("9 images")
    expect(search.chips).to_have_count(0)
    expect(search.field).to_have_value("circle")


@pytest.mark.slow
def test_examples_are_taken_back_one_by_one_and_together(open_search: OpenSearch, step: Step) -> None:
    search = open_search("#q=circle&like=shape-0&like=shape-1&unlike=shape-2")
    search.settle()
    step("one by one, and together")
    assert search.ids() == search.found(text="circle", like=["shape-0", "shape-1"], unlike=["shape-2"])
    search.press("Remove the liked image shape-0")
    assert search.ids() == search.found(text="circle", like=["shape-1"], unlike=["shape-2"])
    search.press("Clear examples")
    assert search.ids() == search.found_by_text("circle")
    expect(search.chips).to_have_count(0)
    step("the focus stays among the chips, and then goes to the field")
    search.go("#q=circle&like=shape-0&unlike=shape-2")
    search.button("Remove the liked image shape-0").focus()
    search.page.keyboard.press("Enter")
    expect(search.button("Remove the disliked image shape-2")).to_be_focused()
    search.page.keyboard.press("Enter")
    expect(search.field).to_be_focused()
    step("the last example gone leads back to the beginning")
    search.go("#like=shape-3")
    assert search.ids() == search.found(like=["shape-3"])
    search.button("Remove the liked image shape-3").click()
    expect(search.page.locator(".landing")).to_be_visible()
    expect(search.answer).to_contain_text("24 of 60 images")


@pytest.mark.slow
def test_an_open_image_can_be_liked_moved_and_taken_back(open_search: OpenSearch, step: Step) -> None:
    search = open_search("#q=circle")
    search.settle()
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
    step("an open image is liked")
    opened = search.open_hit(3)
    search.dialog.get_by_role("button", name=MORE).click()
    expect(search.dialog).not_to_be_visible()
    expect(search.liked).to_have_text([opened])
    step("closing it, opened by its chip, leads back to the chip")
    chip = search.page.get_by_title(f"Open {opened}")
    chip.focus()
    search.page.keyboard.press("Enter")
    expect(search.dialog.locator(".details")).to_contain_text(opened)
    expect(search.dialog.get_by_role("button", name=MORE)).to_have_attribute("aria-pressed", "true")
    search.page.keyboard.press("Escape")
    expect(search.dialog).not_to_be_visible()
    expect(chip).to_be_focused()
    step("it is moved, and taken back")
    chip.click()
    expect(search.dialog.locator(".details")).to_contain_text(opened)
    search.page.keyboard.press("u")
    expect(search.disliked).to_have_text([opened])
    expect(search.liked).to_have_count(0)
    chip.click()
    search.dialog.get_by_role("button", name=LESS).click()
    expect(search.chips).to_have_count(0)


@pytest.mark.slow
def test_an_example_that_is_gone_and_too_many_are_told(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow("Failed to load resource")
    search = open_search("#collection=shapes&q=circle&like=nobody")
    expect(search.notice).to_contain_text("Collection 'shapes' has no image 'nobody'.")
    expect(search.liked).to_have_text(["nobody"])
    search.press("Remove the liked image nobody")
    assert search.ids() == search.found_by_text("circle")
    many = "&".join(f"like=shape-{number}" for number in range(20, 37))
    search = open_search(f"#collection=shapes&{many}")
    expect(search.notice).to_contain_text("17 are too many; send at most 16.")
    search.press("Remove the liked image shape-20")
    expect(search.notice).to_have_count(0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blade_cosine", "absolute_cosine"])
def test_models_that_search_by_one_thing_take_the_liked_image_alone(
    open_search: OpenSearch, kind: str
) -> None:
    search = open_search(before=lambda page: page.route("**/search", partial(_answer_as, kind)))
    search.search("circle")
    expect(search.page.locator(".hit-mark.unlike")).to_have_count(0)
    search.field.focus()
    search.page.keyboard.press("ArrowDown")
    search.page.keyboard.press("u")
    expect(search.chips).to_have_count(0)
    for _ in range(2):
        liked = search.mark(2, MORE)
        expect(search.field).to_have_value("")
        expect(search.liked).to_have_text([liked])
        assert search.ids() == search.found(like=[liked])
    search.open_hit()
    expect(search.dialog.get_by_role("button", name=MORE)).to_be_visible()
    expect(search.dialog.get_by_role("button", name=LESS)).to_have_count(0)


def _answer_as(kind: str, route: "Route") -> None:
    """Answer as a model of another kind of cosine does, which refuses more than one thing."""
    sent = json.loads(route.request.post_data or "{}")
    assert ("text" in sent) + len(sent.get("like", [])) + len(sent.get("unlike", [])) <= 1
    answered = route.fetch()
    page = answered.json()
    for hit in page["hits"]:
        hit["cosine_kind"] = kind
        hit["score_kind"] = hit["score_kind"] and kind
    route.fulfill(response=answered, json=page)
