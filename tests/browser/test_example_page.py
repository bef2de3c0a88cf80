"""The example page of docs/page.md: the search in a panel of 420 pixels, with a key and its events."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic import SecretStr

from app.application import create_app
from index.keys.api_keys import create_key
from tests.access import ADMIN_KEY
from tests.browser.search_page import expect
from tests.browser.service import SHAPES, index_shapes, running, site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DOCS: Final = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], tuple[str, str]]]:
    """A service that nobody searches without a key, and the example page on another origin."""
    folder = tmp_path_factory.mktemp("example")
    (host_folder := folder / "host").mkdir()
    settings = index_shapes(folder / "home", folder / "data")
    with site(host_folder) as host:
        changed = {"open_reading": False, "open_feedback": False, "admin_key": SecretStr(ADMIN_KEY)}
        application = create_app(settings.model_copy(update={**changed, "cors_origins": (host,)}))
        with running(application) as service:
            example = re.findall(r"```html\n(.*?)```", (DOCS / "page.md").read_text("utf-8"), re.DOTALL)[-1]
            page = example.replace("http://localhost:8000", service).replace("'scenes'", f"'{SHAPES}'")
            (host_folder / "example.html").write_text(page)
            catalogue = application.state.services.engine.home.catalogue

            def key(role: str) -> tuple[str, str]:
                with catalogue.write() as session:
                    grants: Any = {SHAPES: frozenset({role})}
                    return f"{host}/example.html", create_key(session, role, grants, days=1).text

            yield key


@pytest.fixture
def page(chromium: "Browser") -> "Iterator[Page]":
    context = chromium.new_context(viewport={"width": 1000, "height": 800})
    page = context.new_page()
    page.set_default_timeout(10_000)
    yield page
    context.close()


def _open(page: "Page", address: str, key: str) -> None:
    page.add_init_script(f"sessionStorage.setItem('token', {key!r})")
    page.goto(address)


def test_a_token_searches_shows_and_judges_and_the_page_is_told(
    page: "Page", closed: Callable[[str], tuple[str, str]]
) -> None:
    logged: list[str] = []
    page.on("console", lambda message: logged.append(message.text))
    _open(page, *closed("judge"))
    search = page.locator("image-search")
    box = search.bounding_box()
    assert box is not None
    assert box["width"] == 420
    search.get_by_role("searchbox").fill("a red circle")
    search.get_by_role("searchbox").press("Enter")
    tile = search.locator(".hit").first
    expect(tile.locator("img")).not_to_have_js_property("naturalWidth", 0)
    expect(tile.locator(".hit-score")).to_be_visible()
    first = tile.get_attribute("data-id")
    tile.locator(".hit-open").click()
    expect(page.locator("#viewer")).to_contain_text("open: S0")
    tile.get_by_role("button", name="Compare number 1").click()
    expect(page.locator("#viewer")).to_contain_text("beside: S0")
    with page.expect_console_message(lambda message: f"{first} true" in message.text):
        tile.get_by_role("button", name="This is what I searched for").click()
    # Nothing lies wider than the panel.
    assert search.evaluate("element => element.scrollWidth <= element.clientWidth")
    assert not [line for line in logged if "401" in line]


def test_without_a_token_the_service_gives_nothing(
    page: "Page", closed: Callable[[str], tuple[str, str]]
) -> None:
    address, _ = closed("reader")
    page.goto(address)
    expect(page.locator("image-search")).to_contain_text("key")
    expect(page.locator("image-search .hit")).to_have_count(0)
