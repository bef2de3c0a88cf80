"""`<image-search>` in a page of another origin, wide or in a panel, with or without a key."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import BrowserContext, Page

from app.application import create_app
from index.keys.api_keys import create_key
from tests.browser.conftest import OpenSearch, Sites, Watch, step
from tests.browser.german import strangers
from tests.browser.search_page import SearchPage, box_of, expect
from tests.browser.service import SHAPES, running, site

pytestmark = pytest.mark.browser

DOCS: Final = Path(__file__).parents[2] / "docs"
_HOST: Final = """<!doctype html><html{language}><meta charset="utf-8"><title>host</title>
<link rel="icon" href="data:,">
<style>
body {{ margin: 0; background: #111 }}
button {{ background: lime; font-size: 40px }}
image-search {{ --accent: rgb(200, 0, 0) }}
#panel {{ width: {width}; height: 700px; overflow: auto }}
</style>
<script type="module" src="{service}/page/image-search.js"></script>
<h1>host</h1>
<aside id="panel" {around}><image-search src="{service}" {attributes}></image-search></aside>
<script>
  window.selected = [];
  document.addEventListener('image-select', (event) => {{
    if (window.keepsClosed) event.preventDefault();
    window.selected.push(event.detail);
  }});
</script>"""

OpenHost = Callable[..., SearchPage]


@pytest.fixture
def open_host(open_search: OpenSearch, sites: Sites, watch: Watch) -> OpenHost:
    """Opens the other site's page with the element in a panel."""

    def open_page(
        *, width: str = "auto", attributes: str = 'collection="shapes"', language: str = ' lang="en"',
        around: str = "", host: str = sites.host, **settings: Any,
    ) -> SearchPage:  # fmt: skip
        content = _HOST.format(
            service=sites.service, width=width, attributes=attributes, language=language, around=around
        )
        (sites.host_folder / "host.html").write_text(content)
        watch.allow(host)
        search = open_search("host.html", site=host, **settings)
        expect(search.field).to_be_visible()
        return search

    return open_page


@pytest.mark.parametrize("name", ["127.0.0.1", pytest.param("localhost", marks=pytest.mark.slow)])
def test_a_page_of_another_site_searches_and_is_told_what_was_opened(
    open_host: OpenHost, sites: Sites, name: str
) -> None:
    # To a browser, both names are of different sites.
    search = open_host(host=sites.host.replace("127.0.0.1", name))
    page = search.page
    step("it searches the service, whose page it is not")
    search.search("a red circle")
    ids = search.ids()
    assert ids == search.found(text="a red circle")
    expect(page.locator(".hit-mat img").first).not_to_have_js_property("naturalWidth", 0)
    expect(page.get_by_label("Collection")).not_to_be_visible()
    assert page.url.endswith("host.html")
    step("styles stay apart, but its colours can be set")
    button = search.button("Search")
    expect(button).to_have_css("background-color", "rgb(200, 0, 0)")
    expect(button).to_have_css("font-size", "14px")
    step("the host gets an event for the opened image")
    search.open_hit()
    (detail,) = page.evaluate("window.selected")
    assert (detail["id"], detail["collection"], detail["rank"]) == (ids[0], "shapes", 1)
    assert detail["links"]["thumbnail"].startswith(f"{search.service}/v1/collections/shapes/images/")
    page.keyboard.press("Escape")
    step("the host may show the image itself")
    page.evaluate("window.keepsClosed = true")
    search.tiles.first.locator(".hit-open").click()
    expect(search.dialog).not_to_be_visible()
    assert len(page.evaluate("window.selected")) == 2
    step("keys outside of the element are the host's")
    page.locator("h1").click()
    page.keyboard.press("f")
    expect(search.panel).not_to_be_visible()
    page.keyboard.press("/")
    expect(search.field).not_to_be_focused()
    step("the host changes the collection")
    page.evaluate("document.querySelector('image-search').setAttribute('collection', 'tiles')")
    expect(search.answer).to_contain_text("9 images")


@pytest.mark.parametrize("attributes", ['collection="shapes"', pytest.param("", marks=pytest.mark.slow)])
def test_a_panel_holds_all_of_the_search(open_host: OpenHost, attributes: str) -> None:
    search = open_host(width="420px", attributes=attributes)
    panel = search.page.locator("#panel")
    overflow = "panel => panel.scrollWidth - panel.clientWidth"
    step("its field is wide enough for a text, and two hits fit a row")
    assert search.field.evaluate("field => field.clientWidth") >= 220
    search.search("a red circle")
    assert panel.evaluate(overflow) == 0
    tops = search.tiles.evaluate_all("tiles => tiles.slice(0, 3).map((tile) => tile.offsetTop)")
    assert tops[0] == tops[1] < tops[2]
    step("its filters stay inside of it")
    search.open_filters()
    box = box_of(search.panel)
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 420
    search.group("labels").get_by_label("circle").check()
    search.button("Show results").click()
    expect(search.answer).to_contain_text("20 images")
    assert panel.evaluate(overflow) == 0


@pytest.mark.parametrize(
    ("reader", "themes"),
    [("dark", {"": True, "light": False, "auto": True}), ("light", {"": False, "dark": True, "auto": False})],
    ids=["dark", "light"],
)
def test_the_page_around_chooses_light_or_dark_at_any_time(
    open_host: OpenHost, reader: str, themes: dict[str, bool]
) -> None:
    search = open_host(width="1100px", color_scheme=reader)
    search.search("a red circle")
    step("a wide element shows its filters next to the hits")
    search.open_filters()
    panel, results = box_of(search.panel), box_of(search.page.locator(".results"))
    assert panel["x"] + panel["width"] <= results["x"] + 1
    search.open_hit()
    element = search.page.locator("image-search")
    for theme, dark in themes.items():
        step(f"theme {theme!r}, reader {reader}")
        if theme:
            element.evaluate("(element, theme) => element.setAttribute('theme', theme)", theme)
        for name in ("image-search", "dialog.image-dialog"):
            ground, ink = search.page.locator(name).evaluate(
                """element => ['backgroundColor', 'color'].map((name) => getComputedStyle(element)[name]
                  .match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b))"""
            )
            assert (ground < ink) == dark, name


@pytest.mark.parametrize(
    ("language", "around", "attributes", "reader", "spoken"),
    [
        (' lang="en"', "", 'lang="de"', "en-US", "de"),
        (' lang="en"', "", "", "de-DE", "en"),
        pytest.param(' lang="en"', 'lang="de-CH"', "", "en-US", "de", marks=pytest.mark.slow),
        pytest.param(' lang="fr"', "", "", "de-DE", "de", marks=pytest.mark.slow),
    ],
)
def test_the_element_speaks_the_language_of_its_place(
    open_host: OpenHost, sites: Sites, language: str, around: str, attributes: str, reader: str, spoken: str
) -> None:
    attributes += ' collection="shapes"'
    search = open_host(language=language, around=around, attributes=attributes, locale=reader)
    expect(search.button({"de": "Suchen", "en": "Search"}[spoken])).to_be_visible()
    expect(search.page.locator(".shell")).to_have_attribute("lang", spoken)
    if spoken == "de":
        assert strangers(search.page, ("host",)) == []
    else:
        step("and one that is made by a script, when it comes into the page")
        search.page.evaluate(
            """(service) => {
              document.querySelector('image-search').remove();
              const search = document.createElement('image-search');
              search.setAttribute('src', service);
              search.setAttribute('lang', 'de');
              document.body.append(search);
            }""",
            sites.service,
        )
        expect(search.button("Suchen")).to_be_visible()


@pytest.fixture
def foreign(context: BrowserContext, tmp_path: Path) -> Iterator[Page]:
    """An empty page of a site that may not call the service."""
    (tmp_path / "foreign.html").write_text("<!doctype html><title>foreign</title>")
    with site(tmp_path) as address:
        page = context.new_page()
        page.goto(f"{address.replace('127.0.0.1', 'localhost')}/foreign.html")
        yield page


def test_a_page_that_was_not_allowed_gets_nothing_but_a_link(foreign: Page, sites: Sites) -> None:
    read = "([url, method]) => fetch(url, {method}).then(() => 'read', () => 'refused')"
    for path, method in (("/v1/collections", "GET"), ("/v1/collections/shapes/search", "POST")):
        step(f"{method} {path}")
        url = f"{sites.service}{path}"
        # The refusal is not even handed to the renderer, by its resource policy.
        with foreign.expect_event("requestfailed", lambda request, url=url: request.url == url) as refused:
            foreign.evaluate(
                "([url, method]) => { fetch(url, {method, mode: 'no-cors'}).catch(() => null) }",
                [url, method],
            )
        assert refused.value.failure == "net::ERR_BLOCKED_BY_RESPONSE.NotSameOrigin"
        assert foreign.evaluate(read, [url, method]) == "refused"
    step("a link leads to the page")
    foreign.evaluate("url => { location.href = url + '/?collection=shapes' }", sites.service)
    expect(foreign.get_by_role("button", name="Search", exact=True)).to_be_visible()
    step("nor does one that is reached by a name that was rebound")
    for path in ("/", "/v1/collections", "/v1/collections/shapes/images/shape-1/content", "/livez"):
        answer = foreign.goto(f"{sites.service.replace('127.0.0.1', 'rebound.test')}{path}")
        assert answer is not None
        assert answer.status == 421, path


@pytest.fixture
def example(sites: Sites, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The page that docs/guides/integrate.md shows, for a service that needs a key, and a key."""
    with site(tmp_path) as host:
        changed = {"open_reading": False, "open_feedback": False, "cors_origins": (host,)}
        application = create_app(sites.settings.model_copy(update=changed))
        with running(application) as service:
            result = re.findall(
                r"```html\n(.*?)```", (DOCS / "guides" / "integrate.md").read_text("utf-8"), re.DOTALL
            )[-1]
            page = result.replace("http://localhost:8000", service).replace("'scenes'", f"'{SHAPES}'")
            (tmp_path / "example.html").write_text(page)
            with application.state.services.engine.home.catalogue.write() as session:
                key = create_key(session, "judge", {SHAPES: frozenset({"judge"})}, days=1).text
            yield f"{host}/example.html", key


@pytest.mark.slow
def test_the_example_of_the_docs_searches_with_a_key_and_is_told(
    context: BrowserContext, example: tuple[str, str]
) -> None:
    address, key = example
    page = context.new_page()
    search = page.locator("image-search")
    step("without a key the service gives nothing")
    page.goto(address)
    expect(search).to_contain_text("key")
    expect(search.locator(".hit")).to_have_count(0)
    step("with a key it searches")
    logged: list[str] = []
    page.on("console", lambda message: logged.append(message.text))
    page.add_init_script(f"sessionStorage.setItem('token', {key!r})")
    page.goto(address)
    assert box_of(search)["width"] == 420
    search.get_by_role("searchbox").fill("a red circle")
    search.get_by_role("searchbox").press("Enter")
    tile = search.locator(".hit").first
    expect(tile.locator("img")).not_to_have_js_property("naturalWidth", 0)
    expect(tile.locator(".hit-score")).to_be_visible()
    step("the page gets events for what is opened, compared and judged")
    first = tile.get_attribute("data-id")
    tile.locator(".hit-open").click()
    expect(page.locator("#viewer")).to_contain_text("open: S0")
    tile.get_by_role("button", name="Compare number 1").click()
    expect(page.locator("#viewer")).to_contain_text("compare: S0")
    with page.expect_console_message(lambda message: f"{first} true" in message.text):
        tile.get_by_role("button", name="This is what I searched for").click()
    # Nothing is wider than the panel.
    assert search.evaluate("element => element.scrollWidth <= element.clientWidth")
    assert not [line for line in logged if "401" in line]
