"""`<image-search>` in a narrow panel of another page, light or dark by that page's choice."""

from collections.abc import Callable

import pytest

from tests.browser.conftest import OpenSearch, Sites, Watch
from tests.browser.search_page import SearchPage, expect

pytestmark = pytest.mark.browser

_HOST = """<!doctype html><html lang="en"><meta charset="utf-8"><title>panel</title>
<link rel="icon" href="data:,">
<style>
body {{ margin: 0; background: #111 }}
#panel {{ width: {width}px; height: 700px; overflow: auto }}
</style>
<script type="module" src="{service}/page/image-search.js"></script>
<aside id="panel"><image-search src="{service}" {attributes}></image-search></aside>"""

OpenPanel = Callable[..., SearchPage]


@pytest.fixture
def open_panel(open_search: OpenSearch, sites: Sites, watch: Watch) -> OpenPanel:
    """Opens a wide page with the element in a panel."""

    def open_page(width: int = 420, attributes: str = 'collection="shapes"', **settings: str) -> SearchPage:
        content = _HOST.format(service=sites.service, width=width, attributes=attributes)
        (sites.host_folder / "panel.html").write_text(content)
        watch.allow(sites.host)
        search = open_search("panel.html", site=sites.host, **settings)
        expect(search.field).to_be_visible()
        return search

    return open_page


def overflow(search: SearchPage) -> int:
    found: int = search.page.locator("#panel").evaluate("panel => panel.scrollWidth - panel.clientWidth")
    return found


@pytest.mark.parametrize("attributes", ['collection="shapes"', pytest.param("", marks=pytest.mark.slow)])
def test_the_field_of_a_panel_is_wide_enough_for_a_text(open_panel: OpenPanel, attributes: str) -> None:
    search = open_panel(attributes=attributes)
    assert search.field.evaluate("field => field.clientWidth") >= 220
    search.search("a red circle")
    assert overflow(search) == 0
    tops = search.tiles.evaluate_all("tiles => tiles.slice(0, 3).map((tile) => tile.offsetTop)")
    assert tops[0] == tops[1] < tops[2]


def test_the_filters_of_a_panel_stay_inside_of_it(open_panel: OpenPanel) -> None:
    search = open_panel()
    search.search("a red circle")
    search.page.get_by_role("button", name="Filters").click()
    box = search.panel.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 420
    search.group("labels").get_by_label("circle").check()
    search.page.get_by_role("button", name="Show results").click()
    expect(search.answer).to_contain_text("20 images")
    assert overflow(search) == 0


def test_a_wide_element_has_its_filters_beside_the_hits(open_panel: OpenPanel) -> None:
    search = open_panel(width=1100)
    search.search("a red circle")
    search.page.get_by_role("button", name="Filters").click()
    panel, results = search.panel.bounding_box(), search.page.locator(".results").bounding_box()
    assert panel is not None
    assert results is not None
    assert panel["x"] + panel["width"] <= results["x"] + 1


@pytest.mark.parametrize(
    ("theme", "reader", "dark"),
    [
        pytest.param('theme="dark"', "light", True, marks=pytest.mark.slow),
        pytest.param('theme="light"', "dark", False, marks=pytest.mark.slow),
        pytest.param('theme="auto"', "dark", True, marks=pytest.mark.slow),
        pytest.param('theme="auto"', "light", False, marks=pytest.mark.slow),
        ("", "dark", True),
        pytest.param("", "light", False, marks=pytest.mark.slow),
    ],
)
def test_the_page_around_chooses_light_or_dark(
    open_panel: OpenPanel, theme: str, reader: str, dark: bool
) -> None:
    search = open_panel(attributes=f'collection="shapes" {theme}', color_scheme=reader)
    search.search("a red circle")
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog).to_be_visible()
    for name in ("image-search", "dialog.image-dialog"):
        ground, ink = search.page.locator(name).evaluate(
            """element => ['backgroundColor', 'color'].map((name) => getComputedStyle(element)[name]
              .match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b))"""
        )
        assert (ground < ink) == dark


def test_the_theme_can_change_at_any_time(open_panel: OpenPanel) -> None:
    search = open_panel(attributes='collection="shapes" theme="light"')
    host = search.page.locator("image-search")
    light = host.evaluate("element => getComputedStyle(element).backgroundColor")
    host.evaluate("element => element.setAttribute('theme', 'dark')")
    assert host.evaluate("element => getComputedStyle(element).backgroundColor") != light
