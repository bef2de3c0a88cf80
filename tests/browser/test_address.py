"""The search of a tab: it can be gone back to, reloaded and shared, and no address or title tells of it."""

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.browser.conftest import OpenSearch, Sites
from tests.browser.search_page import expect

if TYPE_CHECKING:
    from playwright.sync_api import Dialog, Page

pytestmark = pytest.mark.browser

_SECRET = json.dumps({"not": {"field": "study", "eq": "secretive"}})


@pytest.mark.slow
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


@pytest.mark.slow
def test_typing_leaves_one_step_behind(open_search: OpenSearch) -> None:
    search = open_search("#q=red+circle")
    search.settle()
    for text in ("blue", "blue squ", "blue square"):
        search.field.fill(text)
        search.expect_link("q", text)
    search.page.go_back()
    expect(search.field).to_have_value("red circle")


def test_back_closes_an_open_image(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog).to_be_visible()
    assert search.link()["image"] == [search.ids()[0]]
    search.page.go_back()
    expect(search.dialog).not_to_be_visible()
    expect(search.field).to_have_value("circle")


@pytest.mark.slow
def test_closing_an_image_takes_its_step_back(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    search.tiles.first.locator(".hit-open").click()
    search.page.keyboard.press("Escape")
    search.expect_link("image")
    assert search.link()["q"] == ["circle"]
    expect(search.tiles).to_have_count(24)
    search.search("square")
    search.page.go_back()
    expect(search.field).to_have_value("circle")


def test_a_link_opens_an_image_by_itself(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&image=shape+%234%3F")
    expect(search.dialog).to_be_visible()
    expect(search.dialog.locator(".details")).to_contain_text("shape #4?")
    expect(search.dialog.locator(".dialog-score")).to_have_count(0)


def test_image_shows_report_labels_and_metadata(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&image=shape-0")
    expect(search.dialog.locator(".report")).to_have_text("The picture shows a circle. Its colour is red.")
    expect(search.dialog.locator(".tag")).to_have_text(["circle"])
    details = search.dialog.locator(".details")
    for part in ("96 \u00d7 80 pixels", "colour", "red", "round", "yes"):
        expect(details).to_contain_text(part)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_reload_keeps_the_search(open_search: OpenSearch) -> None:
    search = open_search()
    search.search("red circle")
    shown = search.ids()
    search.page.reload()
    search.settle()
    expect(search.field).to_have_value("red circle")
    assert search.ids() == shown


def test_no_address_title_or_request_tells_of_a_search(open_search: OpenSearch) -> None:
    told: list[str] = []

    def note(page: "Page") -> None:
        page.on("request", lambda request: told.append(f"{request.url} {request.headers.get('referer')}"))
        page.on("framenavigated", lambda frame: told.append(frame.url))

    search = open_search("#collection=shapes&q=secretive+circle&filter=" + quote(_SECRET), before=note)
    search.settle()
    told += [search.page.url, search.page.title()]
    assert search.page.url.endswith("/?collection=shapes")
    search.search("secretive square")
    search.page.get_by_role("button", name="Filters").click()
    search.group("study").get_by_label("Find a value of study").fill("secre")
    expect(search.group("study")).to_contain_text("No value has this in it.")
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog).to_be_visible()
    told += [search.page.url, search.page.title()]
    assert len(told) > 10
    # The browser went to the link itself, whose fragment it sends to nobody, and left it at once.
    opened = [one for one in told if "secre" in one]
    assert all("secre" not in one.partition("#")[0] for one in opened), opened
    assert len(opened) <= 2


@pytest.mark.slow
def test_a_link_is_copied_and_opens_the_same_search(open_search: OpenSearch, sites: Sites) -> None:
    window = {"permissions": ["clipboard-read", "clipboard-write"]}
    search = open_search("#collection=shapes&q=circle&like=shape-3&words=off", **window)
    search.settle()
    shown = search.ids()
    search.page.get_by_role("button", name="Copy link").click()
    expect(search.page.get_by_role("status").filter(has_text="Link copied")).to_be_visible()
    link = search.page.evaluate("navigator.clipboard.readText()")
    address, _, fragment = link.partition("#")
    assert address == f"{sites.service}/"
    assert fragment == "collection=shapes&q=circle&like=shape-3&words=off"
    other = open_search(link.removeprefix(f"{sites.service}/"))
    other.settle()
    assert other.ids() == shown
    assert "#" not in other.page.url
    # Pasted into the address bar of an open page, it is opened there.
    other.page.evaluate("location.hash = 'collection=shapes&q=square'")
    expect(other.field).to_have_value("square")
    expect(other.page).to_have_url(f"{sites.service}/?collection=shapes")
    other.page.go_back()
    expect(other.field).to_have_value("circle")


@pytest.mark.slow
def test_where_there_is_no_clipboard_the_link_is_shown(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search("#collection=shapes&q=circle", viewport={"width": 1280, "height": 900})
    search.settle()
    search.page.evaluate("delete Navigator.prototype.clipboard")
    shown: list[str] = []

    def answer(dialog: "Dialog") -> None:
        shown.append(dialog.default_value)
        dialog.dismiss()

    search.page.on("dialog", answer)
    search.page.get_by_role("button", name="Copy link").click()
    search.page.wait_for_timeout(100)
    assert shown == [f"{sites.service}/#collection=shapes&q=circle"]


@pytest.mark.slow
def test_an_address_of_older_versions_is_read_and_cleaned(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search("?collection=shapes&q=circle&like=shape-3")
    search.settle()
    expect(search.field).to_have_value("circle")
    expect(search.liked).to_have_text(["shape-3"])
    assert search.page.url == f"{sites.service}/?collection=shapes"
    search.page.reload()
    search.settle()
    expect(search.field).to_have_value("circle")


@pytest.mark.slow
def test_the_link_of_the_name_begins_anew(open_search: OpenSearch) -> None:
    search = open_search("#collection=shapes&q=circle")
    search.settle()
    search.page.get_by_label("recoquest").click()
    expect(search.page.locator(".landing")).to_be_visible()
    expect(search.field).to_have_value("")
    search.page.go_back()
    expect(search.field).to_have_value("circle")
