"""The address holds the search: it can be shared, reloaded and gone back to."""

import re

import pytest

from tests.browser.conftest import OpenSearch, Sites
from tests.browser.search_page import expect

pytestmark = pytest.mark.browser


def test_back_and_forward_walk_through_the_searches(open_search: OpenSearch) -> None:
    search = open_search()
    search.search("red circle")
    first = search.ids()
    search.search("blue square")
    second = search.ids()
    search.page.go_back()
    expect(search.field).to_have_value("red circle")
    expect(search.tiles.first).to_have_attribute("data-id", first[0])
    search.settle()
    assert search.ids() == first
    search.page.go_back()
    expect(search.page.locator(".landing")).to_be_visible()
    search.page.go_forward()
    search.page.go_forward()
    expect(search.field).to_have_value("blue square")
    search.settle()
    assert search.ids() == second


def test_typing_leaves_one_step_behind(open_search: OpenSearch) -> None:
    search = open_search("?q=red+circle")
    search.settle()
    for text in ("blue", "blue squ", "blue square"):
        search.field.fill(text)
        expect(search.page).to_have_url(re.compile(f"q={re.escape(text.replace(' ', '+'))}$"))
    search.page.go_back()
    expect(search.field).to_have_value("red circle")


def test_back_closes_an_open_image(open_search: OpenSearch) -> None:
    search = open_search("?q=circle")
    search.settle()
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog).to_be_visible()
    assert "image=" in search.page.url
    search.page.go_back()
    expect(search.dialog).not_to_be_visible()
    expect(search.field).to_have_value("circle")


def test_closing_an_image_takes_its_step_back(open_search: OpenSearch) -> None:
    search = open_search("?q=circle")
    search.settle()
    search.tiles.first.locator(".hit-open").click()
    search.page.keyboard.press("Escape")
    expect(search.page).to_have_url(re.compile("q=circle$"))
    expect(search.tiles).to_have_count(24)
    search.search("square")
    search.page.go_back()
    expect(search.field).to_have_value("circle")


def test_address_opens_an_image_by_itself(open_search: OpenSearch) -> None:
    search = open_search("?collection=shapes&image=shape+%234%3F")
    expect(search.dialog).to_be_visible()
    expect(search.dialog.locator(".details")).to_contain_text("shape #4?")
    expect(search.dialog.locator(".dialog-score")).to_have_count(0)


def test_image_shows_report_labels_and_metadata(open_search: OpenSearch) -> None:
    search = open_search("?collection=shapes&image=shape-0")
    expect(search.dialog.locator(".report")).to_have_text("The picture shows a circle. Its colour is red.")
    expect(search.dialog.locator(".tag")).to_have_text(["circle"])
    details = search.dialog.locator(".details")
    for part in ("96 \u00d7 80 pixels", "colour", "red", "round", "yes"):
        expect(details).to_contain_text(part)


def test_searched_image_comes_back_with_the_back_button(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search()
    picture = (sites.host_folder.parent / "data" / "shapes" / "images" / "9.png").read_bytes()
    search.drop(picture)
    search.settle()
    search.search("red circle")
    search.page.go_back()
    expect(search.page.locator(".field-chip")).to_contain_text("query.png")
    expect(search.tiles.first).to_have_attribute("data-id", "shape-9")
    search.page.reload()
    expect(search.notice).to_contain_text("The image of this search is no longer here")
