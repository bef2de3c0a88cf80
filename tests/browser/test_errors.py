"""What the page says when something is wrong: the problem document's own words."""

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.browser.conftest import OpenSearch, Step, Watch
from tests.browser.search_page import SearchPage, expect, serious

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def _cut_off(page: "Page", pattern: str = "**/search") -> None:
    """Let the next request to an address fail as it does without a connection."""
    page.route(pattern, lambda route: route.abort("internetdisconnected"), times=1)


def _enter(search: SearchPage, text: str) -> None:
    search.field.fill(text)
    search.field.press("Enter")


def test_what_cannot_be_searched_is_told(open_search: OpenSearch, watch: Watch, step: Step) -> None:
    watch.allow("Failed to load resource")
    step("a file that is no image")
    search = open_search(bypass_csp=True)
    search.settle()
    search.drop(b"these are words", name="words.png")
    expect(search.notice).to_contain_text("415")
    assert len(search.notice.inner_text()) > 40
    step("a file of another kind, before it is sent")
    search.drop(b"words", name="words.txt", type="text/plain")
    expect(search.notice).to_contain_text("words.txt is no image")
    step("a filter on an unknown field, with the known ones")
    search.page.goto(f'{search.service}/#q=circle&filter={{"field":"color","eq":"red"}}')
    for part in ("'color'", "colour", "422"):
        expect(search.notice).to_contain_text(part)
    expect(search.tiles).to_have_count(0)
    search.press("Clear the filters")
    assert search.ids() == search.found_by_text("circle")
    for wrong in ({"field": "colour", "equals": "red"}, {}, {"field": "colour", "any_of": "red"}):
        step(f"a filter that is none: {wrong}")
        search.page.goto(f"{search.service}/#collection=shapes&filter={quote(json.dumps(wrong))}")
        expect(search.notice).to_contain_text("422")
        expect(search.tiles).to_have_count(0)
    step("an unknown collection")
    search.page.goto(f"{search.service}/#collection=nowhere&q=circle")
    expect(search.notice).to_contain_text("nowhere")
    expect(search.notice).to_contain_text("404")
    assert serious(search.page) == []
    search.page.get_by_label("Collection").select_option("shapes")
    search.settle()


def test_what_failed_can_be_tried_again(open_search: OpenSearch, watch: Watch, step: Step) -> None:
    watch.allow("ERR_INTERNET_DISCONNECTED")
    watch.allow("Failed to load resource")
    step("the service is down at the start")
    search = open_search("#q=circle", before=lambda page: _cut_off(page, "**/v1/collections"))
    # Its name goes on with the seconds that are left.
    again = search.page.get_by_role("button", name="Try again")
    expect(search.notice).to_contain_text("The service cannot be reached")
    again.click()
    search.settle()
    step("a search without a connection")
    _cut_off(search.page)
    _enter(search, "square")
    expect(search.notice).to_contain_text("The service cannot be reached")
    again.click()
    search.settle()
    step("hits stay when the next page fails")
    _cut_off(search.page)
    search.more.click()
    expect(search.notice).to_contain_text("cannot be reached")
    expect(search.tiles).to_have_count(24)
    again.click()
    expect(search.tiles).to_have_count(48)
    step("overload says when to try again")
    problem = json.dumps({"title": "Too many queries", "status": 429, "detail": "Come back in a second."})
    search.page.route(
        "**/search",
        lambda route: route.fulfill(
            status=429,
            headers={"Retry-After": "2"},
            content_type="application/problem+json",
            body=problem,
        ),
        times=1,
    )
    _enter(search, "triangle")
    expect(search.notice).to_contain_text("Come back in a second.")
    expect(again).to_be_disabled()
    expect(again).to_be_enabled()
    again.click()
    search.settle()
    expect(search.notice).to_have_count(0)
