"""The description of the interface shows in a browser without any other server, within its policy."""

import pytest

from tests.browser.conftest import OpenSearch
from tests.browser.search_page import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_description_shows_every_operation(open_search: OpenSearch) -> None:
    search = open_search("docs")
    operations = sum(len(path) for path in search.ask("openapi.json")["paths"].values())
    expect(search.page.locator(".opblock")).to_have_count(operations, timeout=20_000)
    one = search.page.locator("#operations-search-search_images")
    one.click()
    expect(one).to_contain_text("application/problem+json")
