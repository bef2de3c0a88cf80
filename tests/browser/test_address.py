"""The search of a tab: it can be gone back to, reloaded and shared, and no address or title tells of it."""

import json
from urllib.parse import quote

import pytest
from playwright.sync_api import Dialog, Page

from tests.browser.conftest import OpenSearch, Sites, step
from tests.browser.search_page import expect

pytestmark = pytest.mark.browser

_SECRET = json.dumps({"not": {"field": "study", "eq": "secretive"}})


@pytest.mark.slow
def test_links_open_searches_and_images_and_no_address_title_or_request_tells_of_them(
    open_search: OpenSearch, sites: Sites
) -> None:
    step("no address, title or request tells of a search")
    reports: list[str] = []

    def note(page: Page) -> None:
        page.on("request", lambda request: reports.append(f"{request.url} {request.headers.get('referer')}"))
        page.on("framenavigated", lambda frame: reports.append(frame.url))

    search = open_search(
        "#collection=shapes&q=secretive+circle&filter=" + quote(_SECRET), before=note
    ).settle()
    reports += [search.page.url, search.page.title()]
    assert search.page.url.endswith("/?collection=shapes")
    search.search("secretive square")
    search.open_filters()
    search.group("study").get_by_label("Find a value of study").fill("secre")
    expect(search.group("study")).to_contain_text("No value contains this.")
    search.open_hit()
    reports += [search.page.url, search.page.title()]
    assert len(reports) > 10
    # The browser went to the link itself, whose fragment it sends to nobody, and left it at once.
    opened = [one for one in reports if "secre" in one]
    assert all("secre" not in one.partition("#")[0] for one in opened), opened
    assert len(opened) <= 2
    step("a link opens an image by itself, with all that is known of it")
    search.page.goto(f"{sites.service}/#collection=shapes&image=shape+%234%3F")
    details = search.dialog.locator(".details")
    expect(details).to_contain_text("shape #4?")
    expect(search.dialog.locator(".dialog-score")).to_have_count(0)
    search.page.goto(f"{sites.service}/#collection=shapes&image=shape-0")
    expect(search.dialog.locator(".report")).to_have_text("The picture shows a circle. Its colour is red.")
    expect(search.dialog.locator(".tag")).to_have_text(["circle"])
    for part in ("96 \u00d7 80 pixels", "colour", "red", "round", "yes"):
        expect(details).to_contain_text(part)
    step("an address of older versions is read and cleaned")
    search.go("?collection=shapes&q=circle&like=shape-3")
    expect(search.field).to_have_value("circle")
    expect(search.liked).to_have_text(["shape-3"])
    assert search.page.url == f"{sites.service}/?collection=shapes"
    search.reload()
    expect(search.field).to_have_value("circle")
    step("the back button closes an open image")
    assert search.link().get("image") is None
    shown = search.open_hit()
    assert search.link()["image"] == [shown]
    search.page.go_back()
    expect(search.dialog).not_to_be_visible()
    expect(search.field).to_have_value("circle")
    step("closing an image takes its step back")
    search.open_hit()
    search.page.keyboard.press("Escape")
    search.expect_link("image")
    assert search.link()["q"] == ["circle"]
    expect(search.tiles).to_have_count(24)
    search.search("square")
    search.page.go_back()
    expect(search.field).to_have_value("circle")


@pytest.mark.slow
def test_a_tab_walks_through_its_searches_and_copies_its_link(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search(permissions=["clipboard-read", "clipboard-write"])
    step("two searches, back to the beginning, and forward again")
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
    search.reload()
    expect(search.field).to_have_value("blue square")
    assert search.ids() == second
    step("typing leaves one step behind")
    for text in ("red", "red tri", "red triangle"):
        search.field.fill(text)
        search.expect_link("q", text)
    search.page.go_back()
    expect(search.field).to_have_value("blue square")
    step("a searched image comes back with the back button, but not after a reload")
    search.settle()
    with search.answered():
        search.drop(search.picture(9))
    search.search("red circle")
    search.page.go_back()
    expect(search.page.locator(".field-chip")).to_contain_text("query.png")
    expect(search.tiles.first).to_have_attribute("data-id", "shape-9")
    search.page.reload()
    expect(search.notice).to_contain_text("The image of this search is no longer here")
    step("the link of the name begins again")
    search.go("#collection=shapes&q=circle")
    search.page.get_by_label("recoquest").click()
    expect(search.page.locator(".landing")).to_be_visible()
    expect(search.field).to_have_value("")
    search.page.go_back()
    expect(search.field).to_have_value("circle")
    step("the link is copied")
    search.go("#collection=shapes&q=circle&like=shape-3&words=off")
    shown = search.ids()
    search.button("Copy link").click()
    expect(search.page.get_by_role("status").filter(has_text="Link copied")).to_be_visible()
    link = search.page.evaluate("navigator.clipboard.readText()")
    assert link == f"{sites.service}/#collection=shapes&q=circle&like=shape-3&words=off"
    other = open_search(link.removeprefix(f"{sites.service}/")).settle()
    assert other.ids() == shown
    assert "#" not in other.page.url
    step("where there is no clipboard the link is shown")
    search.page.evaluate("delete Navigator.prototype.clipboard")
    reports: list[str] = []

    def answer(dialog: Dialog) -> None:
        reports.append(dialog.default_value)
        dialog.dismiss()

    search.page.on("dialog", answer)
    search.button("Copy link").click()
    search.page.wait_for_timeout(100)
    assert reports == [link]
