"""The page where reading needs a key: it asks for one, shows images by the session, and signs out."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from app.application import create_app
from app.engine import open_engine
from index.keys.api_keys import create_key, revoke_key
from tests.browser.conftest import Watch
from tests.browser.search_page import SearchPage, expect
from tests.browser.service import SHAPES, index_shapes, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from app.settings import Settings

pytestmark = pytest.mark.browser

NAME = "Dr Weiss"
_WIDTHS = "images => images.map((image) => image.naturalWidth)"


@dataclass(frozen=True)
class Closed:
    """A service that nobody reads without a key."""

    service: str
    settings: "Settings"

    def key(self, name: str) -> str:
        """A new key of a judge."""
        with closing(open_engine(self.settings)) as engine, engine.home.catalogue.write() as session:
            return create_key(session, name, {SHAPES: frozenset({"judge"})}, days=1).text

    def revoke(self, key: str) -> None:
        """Revoke a key; the service knows within a second."""
        with closing(open_engine(self.settings)) as engine, engine.home.catalogue.write() as session:
            revoke_key(session, key.split("_")[1])


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("closed")
    indexed = index_shapes(folder / "home", folder / "data")
    settings = indexed.model_copy(update={"open_reading": False, "open_feedback": False})
    with running(create_app(settings)) as service:
        yield Closed(service, settings)


@pytest.fixture
def watch(closed: Closed) -> Iterator[Watch]:
    watch = Watch([closed.service])
    yield watch
    assert watch.problems == []


@pytest.fixture
def context(chromium: "Browser") -> "Iterator[BrowserContext]":
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(10_000)
    yield context
    context.close()


def _open(context: "BrowserContext", watch: Watch, closed: Closed, address: str) -> "Page":
    page = context.new_page()
    watch.follow(page)
    page.goto(f"{closed.service}/{address}")
    return page


def _sign_in(page: "Page", key: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.slow
def test_a_judge_signs_in_searches_judges_and_signs_out(
    context: "BrowserContext", watch: Watch, closed: Closed
) -> None:
    watch.allow("status of 401")
    page = _open(context, watch, closed, "#q=a+red+circle&collection=shapes")
    search, field = SearchPage(page, closed.service), page.get_by_label("Key", exact=True)
    expect(field).to_have_attribute("type", "password")
    expect(field).to_have_attribute("autocomplete", "off")
    expect(search.tiles).to_have_count(0)
    _sign_in(page, "not a key")
    expect(page.get_by_role("alert")).to_contain_text("The key is not known here")
    expect(field).to_be_focused()
    _sign_in(page, closed.key(NAME))
    # The page goes on with the search of the link.
    search.settle()
    expect(search.field).to_have_value("a red circle")
    page.wait_for_load_state("networkidle")
    widths = page.locator(".hit img").evaluate_all(_WIDTHS)
    assert widths
    assert min(widths[:4]) > 0
    expect(page.get_by_text(NAME)).to_be_visible()
    with page.expect_response("**/feedback") as judged:
        search.tiles.first.get_by_role("button", name="This is what I searched for").click()
    assert judged.value.status == 200
    # The script that could steal the session sees no cookie.
    assert page.evaluate("document.cookie") == ""
    page.reload()
    search.settle()
    page.get_by_role("button", name="Sign out").click()
    expect(field).to_be_visible()
    expect(search.tiles).to_have_count(0)
    expect(page.get_by_text(NAME)).not_to_be_visible()
    assert context.cookies() == []


def test_what_another_page_could_send_is_refused(
    context: "BrowserContext", watch: Watch, closed: Closed
) -> None:
    watch.allow("status of 403")
    page = _open(context, watch, closed, "")
    _sign_in(page, closed.key("forged"))
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    status = page.evaluate("fetch('v1/session', { method: 'DELETE' }).then(({ status }) => status)")
    assert status == 403
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")


@pytest.mark.slow
def test_two_tabs_share_a_session_that_is_begun_again(
    context: "BrowserContext", watch: Watch, closed: Closed
) -> None:
    watch.allow("status of 403")
    page = _open(context, watch, closed, "?collection=shapes")
    key = closed.key("in two tabs")
    _sign_in(page, key)
    search = SearchPage(page, closed.service)
    search.settle()
    context.request.post(f"{closed.service}/v1/session", headers={"Authorization": f"Bearer {key}"})
    search.search("a red circle")
    expect(search.answer).to_contain_text("Best 24 images")


@pytest.mark.slow
def test_a_key_that_is_revoked_ends_the_session_and_another_goes_on(
    context: "BrowserContext", watch: Watch, closed: Closed
) -> None:
    watch.allow("status of 401")
    page = _open(context, watch, closed, "?collection=shapes")
    key = closed.key("revoked")
    _sign_in(page, key)
    search = SearchPage(page, closed.service)
    search.settle()
    closed.revoke(key)
    page.wait_for_timeout(1_100)
    search.field.fill("a red circle")
    search.field.press("Enter")
    expect(page.get_by_text("The session has ended.")).to_be_visible()
    _sign_in(page, closed.key("after it"))
    search.settle()
    expect(search.answer).to_contain_text("Best 24 images")


def test_the_operators_page_asks_once(context: "BrowserContext", watch: Watch, closed: Closed) -> None:
    watch.allow("status of 403")
    page = _open(context, watch, closed, "operate")
    expect(page.get_by_label("Key", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Collections")).not_to_be_visible()
    assert page.get_by_role("button").all_inner_texts() == ["Sign in"]
    _sign_in(page, closed.key("no operator"))
    # A judge is no administrator.
    expect(page.get_by_role("alert").first).to_contain_text("the role admin")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


@pytest.mark.slow
def test_the_reading_room_asks_for_a_key_and_is_empty_after_signing_out(
    context: "BrowserContext", watch: Watch, closed: Closed
) -> None:
    watch.allow("status of 401")
    page = _open(context, watch, closed, "room#film=shapes%2Fshape-1&film=shapes%2Fshape-2")
    key = closed.key("reading room")
    _sign_in(page, key)
    film = page.locator(".viewport").first
    expect(film).to_have_attribute("data-state", "ready")
    expect(page.get_by_role("list", name="Films of this patient").get_by_role("button")).not_to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    expect(film).to_have_attribute("data-state", "empty")
    expect(page.locator(".priors")).not_to_be_visible()
    assert "shape-" not in page.url
    _sign_in(page, key)
    SearchPage(page, closed.service).tiles.nth(2).locator(".hit-open").click()
    expect(film).to_have_attribute("data-state", "ready")
    expect(page.get_by_role("list", name="Films of this patient").get_by_role("button")).not_to_have_count(0)
