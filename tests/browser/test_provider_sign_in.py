"""Sign-in at the organisation's own page, whose site is another one, with the page's own way back."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from app.application import create_app
from app.settings import Settings
from tests.browser.conftest import Watch
from tests.browser.search_page import SearchPage, expect
from tests.browser.service import SHAPES, index_shapes, running
from tests.needed import needed
from tests.oidc import PUBLIC_CLIENT, OidcProvider, installed_provider, serve_provider

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# The provider's forms ask for it.
_FONTS = "https://fonts.googleapis.com/"
_WIDTHS = "images => images.map((image) => image.naturalWidth)"


@pytest.fixture(scope="module")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    package = needed(installed_provider(), "npm's oidc-provider", "`apt-get install npm`, and a registry")
    with serve_provider(package, tmp_path_factory.mktemp("oidc")) as running_one:
        yield running_one


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, oidc: OidcProvider) -> Iterator[str]:
    """A service under another name than the provider's, so that browsers take them for two sites."""
    folder = tmp_path_factory.mktemp("signed-in")
    changed = {
        "open_reading": False,
        "open_feedback": False,
        "oidc_issuer": oidc.issuer,
        "oidc_client_id": PUBLIC_CLIENT,
        "oidc_roles": {"judges": {SHAPES: ["judge"]}},
    }
    settings = index_shapes(folder / "home", folder / "data")
    with running(create_app(Settings.model_validate(settings.model_dump() | changed))) as address:
        yield address.replace("127.0.0.1", "localhost")


@pytest.fixture
def watch(service: str, oidc: OidcProvider) -> Iterator[Watch]:
    watch = Watch([service, oidc.issuer, _FONTS])
    yield watch
    assert watch.problems == []


@pytest.fixture
def context(chromium: "Browser") -> "Iterator[BrowserContext]":
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(10_000)
    context.route(f"{_FONTS}**", lambda route: route.fulfill(body="", content_type="text/css"))
    yield context
    context.close()


def _open(context: "BrowserContext", watch: Watch, address: str) -> "Page":
    page = context.new_page()
    watch.follow(page)
    page.goto(address)
    return page


def _log_in(page: "Page", login: str) -> None:
    """Go from the page to the provider, and through its forms."""
    page.get_by_role("link", name="Sign in with your organisation").click()
    page.get_by_placeholder("Enter any login").fill(login)
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()


def test_a_judge_signs_in_at_the_organisation_judges_and_signs_out(
    context: "BrowserContext", watch: Watch, service: str, oidc: OidcProvider
) -> None:
    page = _open(context, watch, f"{service}/#q=a+red+circle&collection=shapes")
    search = SearchPage(page, service)
    expect(page.get_by_label("Key", exact=True)).to_be_visible()
    _log_in(page, "judges")
    expect(page.get_by_text("Dr judges")).to_be_visible()
    # The search that was asked for goes on, though it never left the browser.
    expect(search.field).to_have_value("a red circle")
    search.settle()
    page.wait_for_load_state("networkidle")
    widths = page.locator(".hit img").evaluate_all(_WIDTHS)
    assert widths
    assert min(widths[:4]) > 0
    (session,) = [one for one in context.cookies(service) if one["name"] == "recoquest_session"]
    assert (session["httpOnly"], session["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    assert "code=" not in page.url
    with page.expect_response("**/feedback") as judged:
        search.tiles.first.get_by_role("button", name="This is what I searched for").click()
    assert judged.value.status == 200
    page.reload()
    search.settle()
    page.wait_for_load_state("networkidle")
    # The session was there with every request; thumbnails that are on their way at the sign-out are refused.
    assert watch.problems == []
    watch.allow("status of 401")
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_label("Key", exact=True)).to_be_visible()
    expect(search.tiles).to_have_count(0)
    assert [one for one in context.cookies(service) if "recoquest" in one["name"]] == []
    page.get_by_role("link", name="Sign out at your organisation too").click()
    expect(page.get_by_role("button", name="Yes, sign me out")).to_be_visible()
    assert page.url.startswith(oidc.issuer)


def test_who_has_no_role_is_told_whom_to_ask(context: "BrowserContext", watch: Watch, service: str) -> None:
    page = _open(context, watch, service)
    _log_in(page, "strangers")
    expect(page.locator(".notice")).to_contain_text("You have no role here yet")
    expect(page.locator(".notice")).to_contain_text("signed in as Dr strangers")
    expect(page.locator(".notice")).to_contain_text("Ask the administrator of this service")
    expect(page.get_by_role("button", name="Sign out", exact=True)).to_be_visible()


def test_a_cancelled_sign_in_is_said_where_it_was_begun(
    context: "BrowserContext", watch: Watch, service: str
) -> None:
    watch.allow("status of 401")
    page = _open(context, watch, f"{service}/operate")
    page.get_by_role("link", name="Sign in with your organisation").click()
    page.get_by_role("link", name="Cancel").click()
    expect(page.get_by_role("alert").first).to_contain_text("did not let you sign in here")
    assert page.url == f"{service}/operate"
    page.reload()
    expect(page.get_by_text("a key with the role admin")).to_be_visible()


def test_an_answer_that_another_browser_began_signs_nobody_in(
    chromium: "Browser", context: "BrowserContext", watch: Watch, service: str
) -> None:
    page = _open(context, watch, service)
    found: list[str] = []

    def stop(route: "Route") -> None:
        """Keep the last address that the provider leads to from the browser."""
        answer = route.fetch(max_redirects=0)
        if "prompt=consent" in (route.request.post_data or ""):
            onward = context.request.get(answer.headers["location"], max_redirects=0)
            found.append(onward.headers["location"])
            route.fulfill(body="stopped")
        else:
            route.fulfill(response=answer)

    page.route("**/interaction/*", stop)
    _log_in(page, "judges")
    expect(page.get_by_text("stopped")).to_be_visible()
    assert found[0].startswith(f"{service}/v1/session/callback?code=")
    victim = chromium.new_context()
    other = _open(victim, watch, found[0])
    expect(other.get_by_role("alert")).to_contain_text("begun in another browser")
    assert [one["name"] for one in victim.cookies()] == []
    state = other.evaluate("fetch('v1/session').then((answer) => answer.json())")
    assert state["kind"] == "anonymous", json.dumps(state)
    victim.close()
