"""`<image-search>` in a page of another origin."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import OpenSearch, Sites, Watch
from tests.browser.search_page import PAGE_SIZE, SearchPage, expect
from tests.browser.service import site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

_HOST = """<!doctype html><html lang="en"><meta charset="utf-8"><title>viewer</title>
<link rel="icon" href="data:,">
<style>button {{ background: lime; font-size: 40px }} image-search {{ --accent: rgb(200, 0, 0) }}</style>
<script type="module" src="{service}/page/image-search.js"></script>
<h1>A viewer</h1><input id="own" aria-label="own">
<image-search src="{service}" collection="shapes"></image-search>
<script>
  window.selected = [];
  document.addEventListener('image-select', (event) => {{
    if (window.keepsClosed) event.preventDefault();
    window.selected.push(event.detail);
  }});
</script>"""


@pytest.fixture
def embedded(open_search: OpenSearch, sites: Sites, watch: Watch) -> SearchPage:
    """The element inside the other site's page, after a search."""
    (sites.host_folder / "viewer.html").write_text(_HOST.format(service=sites.service))
    watch.allow(sites.host)
    search = open_search("viewer.html", site=sites.host)
    search.search("a red circle")
    return search


def test_searches_the_service_from_another_origin(embedded: SearchPage) -> None:
    assert embedded.ids() == embedded.found_by_text("a red circle")
    expect(embedded.page.locator(".hit-mat img").first).not_to_have_js_property("naturalWidth", 0)
    expect(embedded.page.get_by_label("Collection")).not_to_be_visible()
    assert embedded.page.url.endswith("viewer.html")


def test_is_embedded_by_a_page_of_another_site(open_search: OpenSearch, sites: Sites, watch: Watch) -> None:
    elsewhere = sites.host.replace("127.0.0.1", "localhost")
    (sites.host_folder / "elsewhere.html").write_text(_HOST.format(service=sites.service))
    watch.allow(elsewhere)
    search = open_search("elsewhere.html", site=elsewhere)
    search.search("a red circle")
    assert search.ids() == search.found_by_text("a red circle")
    expect(search.page.locator(".hit-mat img").first).not_to_have_js_property("naturalWidth", 0)


@pytest.fixture
def foreign(chromium: "Browser", tmp_path: Path) -> "Iterator[Page]":
    """An empty page of a site that may not call the service."""
    (tmp_path / "foreign.html").write_text("<!doctype html><title>foreign</title>")
    with site(tmp_path) as address:
        page = chromium.new_page()
        page.goto(f"{address.replace('127.0.0.1', 'localhost')}/foreign.html")
        yield page
        page.close()


@pytest.mark.parametrize(
    ("path", "method"), [("/v1/collections", "GET"), ("/v1/collections/shapes/search", "POST")]
)
def test_a_page_that_was_not_allowed_gets_nothing(
    foreign: "Page", sites: Sites, path: str, method: str
) -> None:
    url = f"{sites.service}{path}"
    # The refusal is not even handed to the renderer, by its resource policy.
    with foreign.expect_event("requestfailed", lambda request: request.url == url) as refused:
        foreign.evaluate(
            "([url, method]) => { fetch(url, {method, mode: 'no-cors'}).catch(() => null) }", [url, method]
        )
    assert refused.value.failure == "net::ERR_BLOCKED_BY_RESPONSE.NotSameOrigin"
    read = "([url, method]) => fetch(url, {method}).then(() => 'read', () => 'refused')"
    assert foreign.evaluate(read, [url, method]) == "refused"


def test_a_page_reached_by_a_name_that_was_rebound_gets_nothing(chromium: "Browser", sites: Sites) -> None:
    address = sites.service.replace("127.0.0.1", "rebound.test")
    page = chromium.new_page()
    for path in ("/", "/v1/collections", "/v1/collections/shapes/images/shape-1/content", "/livez"):
        answer = page.goto(f"{address}{path}")
        assert answer is not None
        assert answer.status == 421
    page.close()


@pytest.mark.slow
def test_a_link_of_another_site_leads_to_the_page(foreign: "Page", sites: Sites) -> None:
    foreign.evaluate("url => { location.href = url + '/?collection=shapes' }", sites.service)
    expect(foreign.get_by_role("button", name="Search", exact=True)).to_be_visible()


@pytest.mark.slow
def test_tells_its_host_which_image_was_opened(embedded: SearchPage) -> None:
    first = embedded.ids()[0]
    embedded.tiles.first.locator(".hit-open").click()
    expect(embedded.dialog).to_be_visible()
    (detail,) = embedded.page.evaluate("window.selected")
    assert (detail["id"], detail["collection"], detail["rank"]) == (first, "shapes", 1)
    assert detail["links"]["thumbnail"].startswith(f"{embedded.service}/v1/collections/shapes/images/")


@pytest.mark.slow
def test_host_may_show_the_image_itself(embedded: SearchPage) -> None:
    embedded.page.evaluate("window.keepsClosed = true")
    embedded.tiles.first.locator(".hit-open").click()
    expect(embedded.dialog).not_to_be_visible()
    assert len(embedded.page.evaluate("window.selected")) == 1


@pytest.mark.slow
def test_styles_stay_apart_but_its_colours_can_be_set(embedded: SearchPage) -> None:
    button = embedded.page.get_by_role("button", name="Search", exact=True)
    expect(button).to_have_css("background-color", "rgb(200, 0, 0)")
    expect(button).to_have_css("font-size", "14px")


@pytest.mark.slow
def test_keys_outside_of_the_element_are_the_hosts(embedded: SearchPage) -> None:
    embedded.page.locator("h1").click()
    embedded.page.keyboard.press("f")
    expect(embedded.panel).not_to_be_visible()
    embedded.page.keyboard.press("/")
    expect(embedded.field).not_to_be_focused()


@pytest.mark.slow
def test_collection_can_be_changed_by_the_host(embedded: SearchPage) -> None:
    embedded.page.evaluate("document.querySelector('image-search').setAttribute('collection', 'tiles')")
    expect(embedded.answer).to_contain_text("9 images")
    assert PAGE_SIZE > 9
