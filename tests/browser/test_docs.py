"""The description of the interface shows in a browser without any other server, within its policy."""

from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Sites, Watch
from tests.browser.search_page import expect

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytestmark = pytest.mark.browser


@pytest.mark.slow
def test_the_description_shows_every_operation(desktop: "BrowserContext", sites: Sites, watch: Watch) -> None:
    page = desktop.new_page()
    watch.follow(page)
    page.goto(f"{sites.service}/docs")
    paths = page.request.get(f"{sites.service}/openapi.json").json()["paths"]
    operations = sum(len(path) for path in paths.values())
    expect(page.locator(".opblock")).to_have_count(operations, timeout=20_000)
    page.locator("#operations-search-search_images").click()
    expect(page.locator("#operations-search-search_images")).to_contain_text("application/problem+json")
    page.close()
