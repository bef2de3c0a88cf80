"""Everything by keyboard, with the focus where a reader expects it."""

import pytest
from playwright.sync_api import Route

from tests.browser.conftest import OpenSearch
from tests.browser.search_page import expect

pytestmark = pytest.mark.browser


def test_from_the_field_through_the_grid_into_an_image_and_back(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    keyboard = search.page.keyboard
    ids = search.ids()
    keyboard.press("/")
    expect(search.field).to_be_focused()
    keyboard.press("ArrowDown")
    search.expect_focused(ids[0])
    keyboard.press("ArrowRight")
    keyboard.press("ArrowRight")
    search.expect_focused(ids[2])
    columns = search.tiles.evaluate_all(
        "tiles => tiles.filter((tile) => tile.offsetTop === tiles[0].offsetTop).length"
    )
    keyboard.press("ArrowDown")
    search.expect_focused(ids[2 + columns])
    keyboard.press("Enter")
    expect(search.dialog).to_be_visible()
    expect(search.dialog.locator(".details")).to_contain_text(ids[2 + columns])
    keyboard.press("ArrowRight")
    expect(search.dialog.locator(".details")).to_contain_text(ids[3 + columns])
    keyboard.press("Escape")
    expect(search.dialog).not_to_be_visible()
    search.expect_focused(ids[3 + columns])


def test_ends_of_the_grid(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    ids = search.ids()
    search.page.keyboard.press("/")
    search.page.keyboard.press("ArrowDown")
    search.page.keyboard.press("End")
    search.expect_focused(ids[-1])
    search.page.keyboard.press("ArrowDown")
    search.page.keyboard.press("ArrowRight")
    search.expect_focused(ids[-1])
    search.page.keyboard.press("Home")
    search.page.keyboard.press("ArrowLeft")
    search.expect_focused(ids[0])
    search.page.keyboard.press("ArrowUp")
    expect(search.field).to_be_focused()


@pytest.mark.parametrize(
    ("key", "kind"), [("m", "More like"), pytest.param("u", "Less like", marks=pytest.mark.slow)]
)
def test_m_and_u_make_examples_and_stay_in_the_grid(open_search: OpenSearch, key: str, kind: str) -> None:
    search = open_search("#q=circle")
    search.settle()
    search.field.focus()
    search.page.keyboard.press("ArrowDown")
    search.page.keyboard.press("ArrowRight")
    marked = search.focused_id()
    assert marked is not None
    search.page.keyboard.press(key)
    expect(search.page.get_by_role("group", name=kind).locator(".chip")).to_have_text(marked)
    search.settle()
    search.page.wait_for_function(
        "document.querySelector('image-search').shadowRoot.activeElement?.className === 'hit-open'"
    )
    search.expect_focused(search.ids()[0])


def test_one_tile_is_in_the_tab_order(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    reachable = search.page.locator(".grid button[tabindex='0']")
    expect(reachable).to_have_count(search.tiles.first.get_by_role("button").count())
    expect(search.page.locator(".hit-open").first).to_have_attribute("tabindex", "0")


def test_f_opens_and_escape_closes_the_filters(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    search.page.keyboard.press("f")
    expect(search.panel).to_be_visible()
    search.page.keyboard.press("Escape")
    expect(search.panel).not_to_be_visible()
    expect(search.page.get_by_role("button", name="Filters")).to_be_focused()


def test_letters_in_the_field_are_text(open_search: OpenSearch) -> None:
    search = open_search()
    search.field.press_sequentially("m/f?")
    expect(search.field).to_have_value("m/f?")
    expect(search.panel).not_to_be_visible()


def test_question_mark_shows_the_keys_from_the_first_on(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.page.set_viewport_size({"width": 900, "height": 500})
    search.settle()
    search.page.keyboard.press("?")
    expect(search.page.get_by_role("heading", name="Keyboard shortcuts")).to_be_in_viewport()
    search.page.keyboard.press("Escape")
    expect(search.page.get_by_role("dialog", name="Keyboard shortcuts")).not_to_be_visible()


def test_screen_reader_hears_what_was_found_and_each_tile_says_what_it_is(open_search: OpenSearch) -> None:
    search = open_search()
    search.search("a red circle")
    best = search.page.locator(".hit-score").first.inner_text().split()[0]
    told = f"24 images, more can be loaded. Best fused {best}."
    expect(search.page.get_by_role("status")).to_have_text(told)
    first = search.page.get_by_role("button", name="Number 1. fused")
    expect(first).to_have_count(1)


@pytest.mark.slow
def test_viewer_zooms_and_inverts(open_search: OpenSearch) -> None:
    search = open_search("#q=circle&image=shape-3")
    picture = search.dialog.locator(".viewer-picture")
    expect(picture).to_have_js_property("naturalWidth", 96)
    zoom = search.dialog.locator(".viewer-zoom")
    fitting = zoom.inner_text()
    search.page.keyboard.press("o")
    expect(zoom).to_have_text("1\u00d7")
    search.page.keyboard.press("+")
    expect(zoom).to_have_text("1.5\u00d7")
    search.page.keyboard.press("i")
    expect(picture).to_have_css("filter", "invert(1)")
    search.page.keyboard.press("0")
    expect(zoom).to_have_text(fitting)


@pytest.mark.slow
def test_zoom_stays_when_the_hits_come_after_the_image(open_search: OpenSearch) -> None:
    held: list[Route] = []
    search = open_search(
        "#q=circle&image=shape-1",
        before=lambda page: page.route("**/search", lambda route: held.append(route)),
    )
    expect(search.dialog.locator(".viewer-picture")).to_have_js_property("naturalWidth", 96)
    search.page.keyboard.press("o")
    search.page.keyboard.press("+")
    expect(search.dialog.locator(".viewer-zoom")).to_have_text("1.5\u00d7")
    held[0].continue_()
    expect(search.dialog.locator(".dialog-score")).to_be_visible()
    expect(search.dialog.locator(".viewer-zoom")).to_have_text("1.5\u00d7")
