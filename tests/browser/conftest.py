"""Chromium on a running service; every page must stay without console errors and within its origin."""

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from app.application import create_app
from app.settings import Settings
from tests.access import AS_ADMIN
from tests.browser.room import ROOM_DESK, OpenRoom, RoomPage, address_of, index_room
from tests.browser.search_page import SearchPage
from tests.browser.service import SHAPES, index_films, index_shapes, running, site
from tests.needed import needed, needed_module

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request

OpenSearch = Callable[..., SearchPage]
_steps: list[str] = []

DESK: Final[dict[str, Any]] = {"viewport": {"width": 1280, "height": 900}}
PHONE: Final[dict[str, Any]] = {
    "viewport": {"width": 360, "height": 740},
    "has_touch": True,
    "is_mobile": True,
}
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Of Playwright's own, which a second list replaces; and the suggestions below the address bar, which are two
# pages that every window would load: more work than the page that is tested.
_WITHOUT = (
    "AvoidUnnecessaryBeforeUnloadCheckSync,DestroyProfileOnBrowserClose,HttpsFirstBalancedModeAutoEnable,"
    "HttpsUpgrades,LensOverlay,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,PaintHolding,"
    "ThirdPartyStoragePartitioning,WebUIOmniboxAimPopup,WebUIOmniboxPopup"
)
_ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", f"--disable-features={_WITHOUT}"),
    # Another site whose name leads to this machine.
    "--host-resolver-rules=MAP rebound.test 127.0.0.1",
]


@dataclass(frozen=True)
class Sites:
    """The service, and a site of another origin that may call it, with the folder it serves."""

    service: str
    settings: Settings
    host: str
    host_folder: Path


@dataclass
class Watch:
    """What a page did that it should not: messages on the console, requests to other origins."""

    allowed: list[str]
    problems: list[str] = field(default_factory=list)

    def follow(self, page: "Page") -> None:
        """Listen to a page."""
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._on_request)

    def allow(self, part: str) -> None:
        """Expect console messages with this in them, such as the browser's own line for a status 422."""
        self.allowed.append(part)

    def _on_console(self, message: "ConsoleMessage") -> None:
        if message.type in {"error", "warning"} and not any(part in message.text for part in self.allowed):
            self.problems.append(f"console: {message.text}")

    def _on_request(self, request: "Request") -> None:
        if not any(request.url.startswith(part) for part in (*self.allowed, "blob:", "data:")):
            self.problems.append(f"request: {request.url}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Add the step at which a journey failed to its failure."""
    _steps.clear()
    try:
        return (yield)
    except BaseException as error:
        if _steps:
            error.add_note(f"The journey failed at: {_steps[-1]}")
        raise


def step(name: str) -> None:
    """Name what a journey does next."""
    _steps.append(name)


def find_chromium() -> str:
    """Return the path of Chromium, which may be named by a variable."""
    named = os.environ.get("RECOQUEST_TEST_CHROMIUM")
    result = named or next(filter(None, map(shutil.which, _NAMES)), None)
    return needed(result, "Chromium", "`apt-get install chromium`")


@contextmanager
def launched(playwright: "Playwright", arguments: list[str]) -> "Iterator[Browser]":
    """Start Chromium with options of its command line."""
    browser = playwright.chromium.launch(executable_path=find_chromium(), args=arguments)
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def playwright() -> "Iterator[Playwright]":
    """The one Playwright of a process, which allows no second one."""
    module = needed_module("playwright.sync_api", "`pip install playwright`")
    with module.sync_playwright() as started:
        yield started


@pytest.fixture(scope="package")
def chromium(playwright: "Playwright") -> "Iterator[Browser]":
    with launched(playwright, _ARGUMENTS) as browser:
        yield browser


@pytest.fixture
def context(chromium: "Browser") -> "Iterator[BrowserContext]":
    """A window of a test's own."""
    context = chromium.new_context(**DESK)
    context.set_default_timeout(10_000)
    yield context
    context.close()


@pytest.fixture(scope="package")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """The service with its index, and the embedding site."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "host").mkdir()
    settings = index_shapes(folder / "home", folder / "data")
    with site(folder / "host") as host:
        # To a browser, both names are of different sites.
        origins = (host, host.replace("127.0.0.1", "localhost"))
        application = create_app(settings.model_copy(update={"cors_origins": origins}))
        with running(application) as service:
            yield Sites(service, settings, host, folder / "host")


@pytest.fixture(scope="package")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with films of 12 bits."""
    with running(create_app(index_films(tmp_path_factory.mktemp("films")))) as service:
        yield service


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Fails the test when its pages did what they should not."""
    watch = Watch([])
    yield watch
    assert watch.problems == []


@pytest.fixture(scope="package")
def desktop(chromium: "Browser") -> "Iterator[BrowserContext]":
    """A window on a desk, shared so that the page's files stay in its cache."""
    context = chromium.new_context(**DESK)
    # Keeps the window open, so that further pages are tabs of it.
    context.new_page()
    yield context
    context.close()


@pytest.fixture
def open_search(
    chromium: "Browser", desktop: "BrowserContext", sites: Sites, watch: Watch
) -> "Iterator[OpenSearch]":
    """Opens the search page at an address; settings of the browser give it a window of its own."""
    opened: list[Page | BrowserContext] = []
    watch.allow(sites.service)

    def open_page(
        address: str = "?collection=shapes",
        *,
        site: str | None = None,
        before: "Callable[[Page], object] | None" = None,
        **settings: Any,
    ) -> SearchPage:
        if site:
            watch.allow(f"{site}/")
        context = chromium.new_context(**settings) if settings else desktop
        page = context.new_page()
        opened.append(context if settings else page)
        page.set_default_timeout(10_000)
        watch.follow(page)
        if before:
            before(page)
        page.goto(f"{site or sites.service}/{address}")
        return SearchPage(page, sites.service, site)

    yield open_page
    for thing in opened:
        thing.close()


@pytest.fixture
def no_cases(sites: Sites, desktop: "BrowserContext") -> Iterator[None]:
    """Leaves the service without cases."""
    yield
    cases = f"{sites.service}/v1/collections/{SHAPES}/cases"
    for one in desktop.request.get(cases, headers=AS_ADMIN).json()["lists"]:
        assert desktop.request.delete(f"{cases}/{one['id']}").ok


@pytest.fixture(scope="package")
def room_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with DICOM films of two patients."""
    with running(create_app(index_room(tmp_path_factory.mktemp("room")))) as service:
        yield service


@pytest.fixture
def open_room(open_search: OpenSearch, room_service: str, watch: Watch) -> OpenRoom:
    """Opens the reading room with films on the table."""

    def open_page(*films: int | str, layout: int | None = None, **settings: Any) -> RoomPage:
        # Of the reading of pixels by the tests.
        watch.allow("willReadFrequently")
        address = address_of(*films, layout=layout)
        room = RoomPage(open_search(address, site=room_service, **(ROOM_DESK | settings)))
        for position in range(len(films)):
            room.wait(position)
        return room

    return open_page
