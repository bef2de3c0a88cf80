"""The page where reading needs a key or a sign-in at the organisation, whose site is another one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import BrowserContext, Locator, Page

from app.application import create_app
from app.settings import Settings
from index.engine import SearchEngine
from index.keys.api_keys import create_key, revoke_key
from tests.browser.conftest import Sites, Watch, step
from tests.browser.search_page import SearchPage, expect
from tests.browser.service import SHAPES, running
from tests.needed import needed
from tests.oidc import PUBLIC_CLIENT, OidcProvider, installed_provider, serve_provider

pytestmark = pytest.mark.browser

NAME = "Dr Weiss"
# The provider's forms ask for it.
_FONTS = "https://fonts.googleapis.com/"
Open = Callable[..., SearchPage]


@dataclass(frozen=True)
class Closed:
    """A service that nobody reads without a key."""

    service: str
    engine: SearchEngine

    def key(self, name: str) -> str:
        """A new key of a judge."""
        with self.engine.home.catalogue.write() as session:
            return create_key(session, name, {SHAPES: frozenset({"judge"})}, days=1).text


@pytest.fixture(scope="module")
def settings(sites: Sites) -> Settings:
    return sites.settings.model_copy(update={"open_reading": False, "open_feedback": False})


@pytest.fixture(scope="module")
def closed(settings: Settings) -> Iterator[Closed]:
    application = create_app(settings)
    with running(application) as service:
        yield Closed(service, application.state.services.engine)


@pytest.fixture(scope="module")
def oidc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    package = needed(installed_provider(), "npm's oidc-provider", "`apt-get install npm`, and a registry")
    with serve_provider(package, tmp_path_factory.mktemp("oidc")) as running_one:
        yield running_one


@pytest.fixture(scope="module")
def organised(settings: Settings, oidc: OidcProvider) -> Iterator[str]:
    """A service under another name than the provider's, so that browsers take them for two sites."""
    provided: dict[str, object] = {"oidc_issuer": oidc.issuer, "oidc_client_id": PUBLIC_CLIENT}
    provided["oidc_roles"] = {"judges": {SHAPES: ["judge"]}}
    with running(create_app(Settings.model_validate(settings.model_dump() | provided))) as address:
        yield address.replace("127.0.0.1", "localhost")


@pytest.fixture
def open_page(context: BrowserContext, watch: Watch) -> Open:
    """Opens an address of a service in a window of a test's own."""
    watch.allow(_FONTS)
    context.route(f"{_FONTS}**", lambda route: route.fulfill(body="", content_type="text/css"))

    def open_one(service: str, address: str = "") -> SearchPage:
        watch.allow(service)
        page = context.new_page()
        watch.follow(page)
        page.goto(f"{service}/{address}")
        return SearchPage(page, service)

    return open_one


def _field(page: Page) -> Locator:
    return page.get_by_label("Key", exact=True)


def _sign_in(page: Page, key: str) -> None:
    _field(page).fill(key)
    page.get_by_role("button", name="Sign in").click()


def _log_in(page: Page, login: str) -> None:
    """Go from the page to the provider, and through its forms."""
    page.get_by_role("link", name="Sign in with your organisation").click()
    page.get_by_placeholder("Enter any login").fill(login)
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()


def _searches_and_judges(search: SearchPage, name: str) -> None:
    """The search of the link continues, with pictures; a hit is judged; no script sees a cookie."""
    page = search.page
    search.settle()
    expect(search.field).to_have_value("a red circle")
    expect(page.get_by_text(name)).to_be_visible()
    page.wait_for_load_state("networkidle")
    widths = page.locator(".hit img").evaluate_all("images => images.map((image) => image.naturalWidth)")
    assert widths
    assert min(widths[:4]) > 0
    with page.expect_response("**/feedback") as judged:
        search.tiles.first.get_by_role("button", name="This is what I searched for").click()
    assert judged.value.status == 200
    (session,) = [one for one in page.context.cookies(search.service) if one["name"] == "recoquest_session"]
    assert (session["httpOnly"], session["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    page.reload()
    search.settle()


def _signs_out(search: SearchPage, name: str) -> None:
    """Nothing of the person and of the hits stays."""
    search.button("Sign out").click()
    expect(_field(search.page)).to_be_visible()
    expect(search.tiles).to_have_count(0)
    expect(search.page.get_by_text(name)).not_to_be_visible()
    cookies = search.page.context.cookies(search.service)
    assert [one for one in cookies if "recoquest" in one["name"]] == []


@pytest.mark.slow
def test_a_judge_signs_in_searches_judges_and_signs_out(
    open_page: Open, watch: Watch, closed: Closed
) -> None:
    watch.allow("status of 403")
    step("the operator's page asks once: a judge is no administrator")
    page = open_page(closed.service, "operate").page
    field, key = _field(page), closed.key(NAME)
    expect(field).to_be_visible()
    expect(page.get_by_role("region", name="Collections")).not_to_be_visible()
    assert page.get_by_role("button").all_inner_texts() == ["Sign in"]
    _sign_in(page, key)
    expect(page.get_by_role("alert").first).to_contain_text("the role admin")
    page.get_by_role("button", name="Sign out").click()
    expect(field).to_be_visible()
    watch.allow("status of 401")
    page.goto(f"{closed.service}/#q=a+red+circle&collection=shapes")
    search = SearchPage(page, closed.service)
    step("a key is asked for, and another one is refused")
    expect(field).to_have_attribute("type", "password")
    expect(field).to_have_attribute("autocomplete", "off")
    expect(search.tiles).to_have_count(0)
    _sign_in(page, "not a key")
    expect(page.get_by_role("alert")).to_contain_text("The key is unknown")
    expect(field).to_be_focused()
    step("the page continues with the search of the link")
    _sign_in(page, key)
    _searches_and_judges(search, NAME)
    step("what another page could send is refused")
    status = page.evaluate("fetch('v1/session', { method: 'DELETE' }).then(({ status }) => status)")
    assert status == 403
    step("another tab begins the session again, and this one continues")
    page.context.request.post(f"{closed.service}/v1/session", headers={"Authorization": f"Bearer {key}"})
    search.search("a red square")
    expect(search.answer).to_contain_text("Best 24 images")
    _signs_out(search, NAME)


@pytest.mark.slow
def test_the_reading_room_is_empty_after_signing_out_and_a_revoked_key_ends_the_session(
    open_page: Open, watch: Watch, closed: Closed
) -> None:
    watch.allow("status of 401")
    search = open_page(closed.service, "room#film=shapes%2Fshape-1&film=shapes%2Fshape-2")
    page, film = search.page, search.page.locator(".viewport").first
    priors = page.get_by_role("list", name="Films of this patient").get_by_role("button")
    key = closed.key("reading room")
    _sign_in(page, key)
    expect(film).to_have_attribute("data-state", "ready")
    expect(priors).not_to_have_count(0)
    search.button("Sign out").click()
    expect(film).to_have_attribute("data-state", "empty")
    expect(page.locator(".priors")).not_to_be_visible()
    assert "shape-" not in page.url
    _sign_in(page, key)
    search.tiles.nth(2).locator(".hit-open").click()
    expect(film).to_have_attribute("data-state", "ready")
    expect(priors).not_to_have_count(0)
    step("a key that is revoked ends the session, and another continues")
    search.go("?collection=shapes")
    with closed.engine.home.catalogue.write() as session:
        revoke_key(session, key.split("_")[1])
    search.page.wait_for_timeout(1_100)
    search.field.fill("a red circle")
    search.field.press("Enter")
    expect(search.page.get_by_text("The session has ended.")).to_be_visible()
    _sign_in(search.page, closed.key("after it"))
    search.settle()
    expect(search.answer).to_contain_text("Best 24 images")


@pytest.mark.slow
def test_a_judge_signs_in_at_the_organisation_judges_and_signs_out(
    open_page: Open, watch: Watch, organised: str, oidc: OidcProvider
) -> None:
    search = open_page(organised, "#q=a+red+circle&collection=shapes")
    watch.allow(oidc.issuer)
    page = search.page
    step("the search that was asked for continues, though it never left the browser")
    expect(_field(page)).to_be_visible()
    _log_in(page, "judges")
    expect(page.get_by_text("Dr judges")).to_be_visible()
    assert "code=" not in page.url
    _searches_and_judges(search, "Dr judges")
    page.wait_for_load_state("networkidle")
    # The session was there with every request; thumbnails that are on their way at the sign-out are refused.
    assert watch.problems == []
    step("signed out here, and at the organisation too")
    watch.allow("status of 401")
    _signs_out(search, "Dr judges")
    page.get_by_role("link", name="Also sign out at your organisation").click()
    expect(page.get_by_role("button", name="Yes, sign me out")).to_be_visible()
    assert page.url.startswith(oidc.issuer)


@pytest.mark.slow
def test_who_gets_no_further_is_told_why(
    open_page: Open, watch: Watch, organised: str, oidc: OidcProvider
) -> None:
    watch.allow("status of 401")
    watch.allow(oidc.issuer)
    step("a cancelled sign-in is said where it was begun")
    page = open_page(organised, "operate").page
    page.get_by_role("link", name="Sign in with your organisation").click()
    page.get_by_role("link", name="Cancel").click()
    expect(page.get_by_role("alert").first).to_contain_text("did not let you sign in here")
    assert page.url == f"{organised}/operate"
    page.reload()
    expect(page.get_by_text("a key with the role admin")).to_be_visible()
    step("so is one that another browser began")
    page.goto(f"{organised}/#sign-in=ended")
    expect(page.get_by_role("alert")).to_contain_text("started in another browser")
    step("a user without a role learns whom to ask")
    search = open_page(organised)
    _log_in(search.page, "strangers")
    for expected in (
        "no role here yet",
        "signed in as Dr strangers",
        "Ask the administrator of this service",
    ):
        expect(search.notice).to_contain_text(expected)
    expect(search.button("Sign out")).to_be_visible()
