"""Accessibility of the page: axe finds nothing serious, wherever a reader gets to."""

from typing import Any, Final

import pytest

from tests.browser.conftest import OpenSearch, Watch
from tests.browser.search_page import SearchPage, expect
from tests.browser.test_layout import PHONE
from tests.needed import needed_module

pytestmark = pytest.mark.browser

DESK: Final[dict[str, Any]] = {"viewport": {"width": 1280, "height": 900}}


def serious(search: SearchPage) -> list[str]:
    """Violations that keep somebody from using the page, each with where it is."""
    axe = needed_module("axe_playwright_python.sync_playwright", "`pip install axe-playwright-python`").Axe()
    found: list[dict[str, Any]] = axe.run(search.page).response["violations"]
    return [
        f"{violation['id']}: {violation['help']} at {node['target']}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "scheme"),
    [
        (DESK, "light"),
        (PHONE, "dark"),
        (DESK, "dark"),
        (PHONE, "light"),
    ],
)
def test_nothing_serious_from_the_landing_to_an_open_image(
    open_search: OpenSearch, scheme: str, window: dict[str, Any]
) -> None:
    # axe sets styles of its own while it looks.
    search = open_search(color_scheme=scheme, reduced_motion="reduce", bypass_csp=True, **window)
    expect(search.page.locator(".landing")).to_be_visible()
    assert serious(search) == []
    search.search("a red circle")
    expect(search.page.locator(".hit-mat img").first).not_to_have_js_property("naturalWidth", 0)
    assert serious(search) == []
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog.locator(".details")).to_contain_text("pixels")
    assert serious(search) == []
    search.page.keyboard.press("Escape")
    search.page.get_by_role("button", name="Filters").click()
    search.group("labels").get_by_label("circle").check()
    assert serious(search) == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_in_the_window_of_a_film(
    open_search: OpenSearch, films: str, watch: Watch, scheme: str
) -> None:
    watch.allow(films)
    search = open_search("#q=film&image=film.tif", site=films, color_scheme=scheme, bypass_csp=True)
    search.dialog.get_by_role("button", name="Grey levels").click()
    search.dialog.get_by_role("button", name="All values").click()
    expect(search.dialog.get_by_role("slider", name="Width")).to_be_visible()
    assert serious(search) == []


def test_nothing_serious_where_nothing_is_found_and_in_the_keys(
    open_search: OpenSearch, watch: Watch
) -> None:
    watch.allow("404")
    search = open_search("#q=circle&collection=none", bypass_csp=True)
    expect(search.notice).to_be_visible()
    assert serious(search) == []
    search.page.get_by_role("button", name="Keyboard shortcuts").click()
    expect(search.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    assert serious(search) == []
