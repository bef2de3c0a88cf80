"""What the page says when something is wrong: the problem document's own words."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenSearch, Watch
from tests.browser.search_page import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

STATUS_LINE = "Failed to load resource"


@pytest.mark.slow
def test_a_filter_on_an_unknown_field_is_told_with_the_known_ones(
    open_search: OpenSearch, watch: Watch
) -> None:
    watch.allow(STATUS_LINE)
    search = open_search('#q=circle&filter={"field":"color","eq":"red"}')
    expect(search.notice).to_contain_text("'color'")
    expect(search.notice).to_contain_text("colour")
    expect(search.notice).to_contain_text("422")
    expect(search.tiles).to_have_count(0)
    search.page.get_by_role("button", name="Clear the filters").click()
    search.settle()
    assert search.ids() == search.found_by_text("circle")


def test_a_file_that_is_no_image_is_told(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow(STATUS_LINE)
    search = open_search()
    search.drop(b"these are words", name="words.png")
    expect(search.notice).to_contain_text("415")
    assert len(search.notice.inner_text()) > 40


def test_a_file_of_another_kind_is_refused_before_it_is_sent(open_search: OpenSearch) -> None:
    search = open_search()
    search.drop(b"words", name="words.txt", type="text/plain")
    expect(search.notice).to_contain_text("words.txt is no image")


def test_an_unknown_collection_is_told(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow(STATUS_LINE)
    search = open_search("#collection=nowhere&q=circle")
    expect(search.notice).to_contain_text("nowhere")
    expect(search.notice).to_contain_text("404")
    search.page.get_by_label("Collection").select_option("shapes")
    search.settle()


@pytest.mark.slow
def test_overload_says_when_to_try_again(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow(STATUS_LINE)
    problem = {"title": "Too many queries", "status": 429, "detail": "Come back in a second."}
    answer = {
        "status": 429,
        "headers": {"Retry-After": "1"},
        "content_type": "application/problem+json",
        "body": json.dumps(problem),
    }
    search = open_search()
    search.settle()
    search.page.route("**/search", lambda route: route.fulfill(**answer), times=1)
    search.field.fill("circle")
    search.field.press("Enter")
    expect(search.notice).to_contain_text("Come back in a second.")
    again = search.page.get_by_role("button", name="Try again")
    expect(again).to_be_disabled()
    expect(again).to_be_enabled()
    again.click()
    search.settle()
    expect(search.notice).to_have_count(0)


def test_without_a_connection_the_page_says_so_and_can_try_again(
    open_search: OpenSearch, watch: Watch
) -> None:
    watch.allow("ERR_INTERNET_DISCONNECTED")
    search = open_search()
    search.settle()
    _cut_off("**/search")(search.page)
    search.field.fill("circle")
    search.field.press("Enter")
    expect(search.notice).to_contain_text("The service cannot be reached")
    search.page.get_by_role("button", name="Try again").click()
    search.settle()


@pytest.mark.slow
def test_hits_stay_when_the_next_page_fails(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow("ERR_INTERNET_DISCONNECTED")
    search = open_search("#q=circle")
    search.settle()
    _cut_off("**/search")(search.page)
    search.page.get_by_role("button", name="Show more").click()
    expect(search.notice).to_contain_text("cannot be reached")
    expect(search.tiles).to_have_count(24)
    search.page.get_by_role("button", name="Try again").click()
    expect(search.tiles).to_have_count(48)


def test_service_that_is_down_at_the_start_can_be_tried_again(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow("ERR_INTERNET_DISCONNECTED")
    search = open_search("#q=circle", before=_cut_off("**/v1/collections"))
    expect(search.notice).to_contain_text("The service cannot be reached")
    search.page.get_by_role("button", name="Try again").click()
    search.settle()


def _cut_off(pattern: str) -> "Callable[[Page], None]":
    """Lets the next request to an address fail as it does without a connection."""

    def cut_off(page: "Page") -> None:
        page.route(pattern, lambda route: route.abort("internetdisconnected"), times=1)

    return cut_off
