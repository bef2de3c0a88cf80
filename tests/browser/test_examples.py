"""More like this, less like this: liked and disliked images beside what is typed."""

import json
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from tests.browser.conftest import OpenSearch, Sites, Watch
from tests.browser.search_page import PAGE_SIZE, SearchPage, expect

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload, Route

pytestmark = pytest.mark.browser

MORE = "More like this"
LESS = "Less like this"


def test_liked_and_disliked_images_join_the_text(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    liked = search.mark(2, MORE)
    assert search.ids() == search.found(text="circle", like=[liked])
    disliked = search.mark(1, LESS)
    assert search.ids() == search.found(text="circle", like=[liked], unlike=[disliked])
    assert not {liked, disliked} & set(search.ids())
    expect(search.field).to_have_value("circle")
    expect(search.liked).to_have_text([liked])
    expect(search.disliked).to_have_text([disliked])
    for chip in (search.liked, search.disliked):
        assert chip.locator("img").evaluate("async (image) => (await image.decode(), image.naturalWidth)") > 0


@pytest.mark.slow
def test_examples_are_taken_back_one_by_one_and_together(open_search: OpenSearch) -> None:
    search = open_search("#q=circle&like=shape-0&like=shape-1&unlike=shape-2")
    search.settle()
    assert search.ids() == search.found(text="circle", like=["shape-0", "shape-1"], unlike=["shape-2"])
    _press(search, "Remove the liked image shape-0")
    assert search.ids() == search.found(text="circle", like=["shape-1"], unlike=["shape-2"])
    _press(search, "Clear examples")
    assert search.ids() == search.found_by_text("circle")
    expect(search.chips).to_have_count(0)


@pytest.mark.slow
def test_the_last_example_gone_leads_back_to_the_beginning(open_search: OpenSearch) -> None:
    search = open_search("#like=shape-3")
    search.settle()
    assert search.ids() == search.found(like=["shape-3"])
    search.page.get_by_role("button", name="Remove the liked image shape-3").click()
    expect(search.page.locator(".landing")).to_be_visible()
    expect(search.answer).to_contain_text("24 of 60 images")


@pytest.mark.slow
def test_address_and_history_hold_the_examples(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&q=circle")
    search.settle()
    liked = search.mark(0, MORE)
    disliked = search.mark(0, LESS)
    shown = search.ids()
    address = search.link()
    assert (address["like"], address["unlike"]) == ([liked], [disliked])
    search.page.reload()
    search.settle()
    assert search.ids() == shown
    search.page.go_back()
    expect(search.disliked).to_have_count(0)
    expect(search.liked).to_have_text([liked])


@pytest.mark.slow
def test_a_text_that_was_typed_but_not_yet_searched_for_is_taken_along(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
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


@pytest.mark.slow
def test_the_text_changes_beside_the_examples_and_a_dropped_image_too(
    open_search: OpenSearch, sites: Sites
) -> None:
    search = open_search("#q=circle&unlike=shape-2")
    search.settle()
    search.search("a blue square")
    assert search.ids() == search.found(text="a blue square", unlike=["shape-2"])
    picture = (sites.host_folder.parent / "data" / "shapes" / "images" / "7.png").read_bytes()
    with search.page.expect_response("**/search"):
        search.drop(picture)
    search.settle()
    query = json.dumps({"unlike": [{"id": "shape-2"}], "limit": PAGE_SIZE})
    file: FilePayload = {"name": "7.png", "mimeType": "image/png", "buffer": picture}
    address = f"{search.service}/v1/collections/shapes/search"
    answer = search.page.request.post(address, multipart={"query": query, "image": file})
    assert search.ids() == [hit["id"] for hit in answer.json()["hits"]]
    expect(search.disliked).to_have_text(["shape-2"])


@pytest.mark.slow
def test_an_open_image_can_be_liked_moved_and_taken_back(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    opened = search.ids()[3]
    search.tiles.nth(3).locator(".hit-open").click()
    search.dialog.get_by_role("button", name=MORE).click()
    expect(search.dialog).not_to_be_visible()
    expect(search.liked).to_have_text([opened])
    search.page.get_by_title(f"Open {opened}").click()
    expect(search.dialog.locator(".details")).to_contain_text(opened)
    expect(search.dialog.get_by_role("button", name=MORE)).to_have_attribute("aria-pressed", "true")
    search.page.keyboard.press("u")
    expect(search.disliked).to_have_text([opened])
    expect(search.liked).to_have_count(0)
    search.page.get_by_title(f"Open {opened}").click()
    search.dialog.get_by_role("button", name=LESS).click()
    expect(search.chips).to_have_count(0)


@pytest.mark.slow
def test_closing_an_opened_example_leads_back_to_its_chip(open_search: OpenSearch) -> None:
    search = open_search("#q=circle&like=shape-3")
    search.settle()
    search.page.get_by_title("Open shape-3").focus()
    search.page.keyboard.press("Enter")
    expect(search.dialog).to_be_visible()
    search.page.keyboard.press("Escape")
    expect(search.dialog).not_to_be_visible()
    expect(search.page.get_by_title("Open shape-3")).to_be_focused()


@pytest.mark.slow
def test_focus_stays_among_the_chips_and_then_goes_to_the_field(open_search: OpenSearch) -> None:
    search = open_search("#q=circle&like=shape-0&unlike=shape-2")
    search.settle()
    search.page.get_by_role("button", name="Remove the liked image shape-0").focus()
    search.page.keyboard.press("Enter")
    expect(search.page.get_by_role("button", name="Remove the disliked image shape-2")).to_be_focused()
    search.page.keyboard.press("Enter")
    expect(search.field).to_be_focused()


@pytest.mark.slow
def test_another_collection_starts_without_examples(open_search: OpenSearch) -> None:
    search = open_search("#q=circle&like=shape-0&unlike=shape-2")
    search.settle()
    search.page.get_by_label("Collection").select_option("tiles")
    expect(search.answer).to_contain_text("9 images")
    expect(search.chips).to_have_count(0)
    expect(search.field).to_have_value("circle")


@pytest.mark.slow
def test_an_example_that_is_gone_and_too_many_are_told(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow("Failed to load resource")
    search = open_search("#collection=shapes&q=circle&like=nobody")
    expect(search.notice).to_contain_text("Collection 'shapes' has no image 'nobody'.")
    expect(search.liked).to_have_text(["nobody"])
    _press(search, "Remove the liked image nobody")
    assert search.ids() == search.found_by_text("circle")
    many = "&".join(f"like=shape-{number}" for number in range(20, 37))
    search = open_search(f"#collection=shapes&{many}")
    expect(search.notice).to_contain_text("17 are too many; send at most 16.")
    _press(search, "Remove the liked image shape-20")
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
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog.get_by_role("button", name=MORE)).to_be_visible()
    expect(search.dialog.get_by_role("button", name=LESS)).to_have_count(0)


@pytest.mark.slow
def test_examples_fit_a_phone(open_search: OpenSearch) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    search = open_search("#collection=shapes&q=circle", **phone)
    search.settle()
    with search.page.expect_response("**/search"):
        search.tiles.first.get_by_role("button", name="Less like number 1").tap()
    search.settle()
    expect(search.disliked).to_have_count(1)
    further = "&".join(f"like=shape-{number}" for number in range(20, 30))
    search.page.evaluate(
        "link => { location.hash = link }", f"{urlencode(search.link(), doseq=True)}&{further}"
    )
    search.settle()
    expect(search.liked).to_have_count(10)
    assert not search.scrolls_sideways()
    expect(search.page.get_by_role("button", name="Open shape-20")).to_be_visible()
    for drop in search.page.locator(".chip-drop").all():
        box = drop.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 360


def _press(search: SearchPage, name: str) -> None:
    with search.page.expect_response("**/search"):
        search.page.get_by_role("button", name=name).click()
    search.settle()


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
