"""The search page as a reader sees it: what the tests look at and do."""

import base64
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

from tests.access import AS_ADMIN
from tests.needed import needed_module

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload, FloatRect, Locator, Page, Response, Route

expect = needed_module("playwright.sync_api", "`pip install playwright`").expect
expect.set_options(timeout=15_000)

PAGE_SIZE = 24

_FOCUSED = "document.querySelector('image-search').shadowRoot.activeElement"
_DROP = """([kind, name, type, content]) => {
  const bytes = Uint8Array.from(atob(content), (character) => character.charCodeAt(0));
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name, { type }));
  const event = kind === 'paste'
    ? new ClipboardEvent('paste', { clipboardData: carried, bubbles: true, cancelable: true, composed: true })
    : new DragEvent(kind, { dataTransfer: carried, bubbles: true, cancelable: true, composed: true });
  document.querySelector('image-search').dispatchEvent(event);
}"""


def _asks(answer: "Response", text: str) -> bool:
    """Whether this is the answer to a search for a text."""
    body = answer.request.post_data_buffer
    if not answer.url.endswith("/search"):
        return False
    # Chromium does not tell of a body with a file: no list has one.
    return body is None or json.dumps(text.strip(), ensure_ascii=False).encode() in body


def held(page: "Page", pattern: str, **how_often: int) -> "list[Route]":
    """Let requests to an address wait; gives those that have come."""
    routes: list[Route] = []
    page.route(pattern, lambda route: routes.append(route), **how_often)
    return routes


def altered(page: "Page", pattern: str, change: Callable[[Any], Any], **how_often: int) -> None:
    """Let a page get the answers of an address with other values in them."""

    def answer(route: "Route") -> None:
        response = route.fetch()
        route.fulfill(response=response, json=response.json() | change(response.json()))

    page.route(pattern, answer, **how_often)


def until(page: "Page", holds: Callable[[], bool], seconds: float = 5) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)


def serious(page: "Page") -> list[str]:
    """Violations that keep somebody from using a page, each with where it is."""
    axe = needed_module("axe_playwright_python.sync_playwright", "`pip install axe-playwright-python`").Axe()
    result: list[dict[str, Any]] = axe.run(page).response["violations"]
    return [
        f"{violation['id']}: {violation['help']} at {node['target']}"
        for violation in result
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def box_of(position: "Locator") -> "FloatRect":
    """Where something is on the page."""
    box = position.bounding_box()
    assert box is not None
    return box


class SearchPage:
    """A page with the search, and the service behind it."""

    def __init__(self, page: "Page", service: str, site: str | None = None) -> None:
        self.page = page
        self.service = service
        self.site = site or service
        self.field = page.get_by_role("searchbox")
        self.tiles = page.locator(".hit:not(.skeleton)")
        self.notice = page.locator(".notice")
        self.dialog = page.locator("dialog.image-dialog")
        self.panel = page.locator(".filters")
        self.chips = page.locator(".chip")
        self.liked = page.get_by_role("group", name="More like").locator(".chip")
        self.disliked = page.get_by_role("group", name="Less like").locator(".chip")
        self.likeness = page.get_by_role("switch", name="Likeness")
        self.words = page.get_by_role("switch", name="Exact words")
        self.answer = page.locator(".answer")
        self.more = self.button("Show more")

    def button(self, name: str) -> "Locator":
        """A button anywhere on the page, by its whole name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def go(self, address: str) -> None:
        """Open another address in the same tab, and wait for its hits."""
        self.page.goto(f"{self.site}/{address}")
        self.settle()

    def filter_circles(self) -> None:
        """Open the filters, and let circles alone pass."""
        self.open_filters()
        self.group("labels").get_by_label("circle").check()
        expect(self.answer).to_contain_text("20 images")

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Wait for the answer to a search that the block begins."""
        with self.page.expect_response("**/search"):
            yield
        self.settle()

    def press(self, name: str) -> None:
        """Press a button that searches, and wait for the answer."""
        with self.answered():
            self.button(name).click()

    def open_filters(self) -> None:
        """Open the panel of filters."""
        self.page.get_by_role("button", name="Filters").click()
        expect(self.panel).to_be_visible()

    def open_hit(self, position: int = 0, pixels: str = "pixels") -> str:
        """Open a hit, wait for its details, and return its id."""
        image_id = self.ids()[position]
        self.tiles.nth(position).locator(".hit-open").click()
        expect(self.dialog.locator(".details")).to_contain_text(pixels)
        return image_id

    def search(self, text: str) -> None:
        """Type a text, press Enter, and wait for the answer."""
        self.field.fill(text)
        # The list that the page begins with may be answered meanwhile.
        with self.page.expect_response(lambda answer: _asks(answer, text)):
            self.field.press("Enter")
        self.settle()

    def keys(self, *names: str) -> None:
        """Press keys, one after another."""
        for name in names:
            self.page.keyboard.press(name)

    def settle(self) -> Self:
        """Wait until hits are shown and no search is under way."""
        expect(self.tiles.first).to_be_visible()
        expect(self.page.locator(".results")).not_to_have_attribute("aria-busy", "true")
        return self

    def reload(self) -> None:
        """Load the page again, and wait for its hits."""
        self.page.reload()
        self.settle()

    def drop(
        self, content: bytes, *, kind: str = "drop", name: str = "query.png", type: str = "image/png"
    ) -> None:
        """Drop, paste or drag a file over the page."""
        self.page.evaluate(_DROP, [kind, name, type, base64.b64encode(content).decode()])

    def picture(self, number: int) -> bytes:
        """The file of one of the shapes."""
        address = f"{self.service}/v1/collections/shapes/images/shape-{number}/content"
        return self.page.request.get(address).body()

    def link(self) -> dict[str, list[str]]:
        """The search as the page keeps it in the history of the tab."""
        return parse_qs(self.page.evaluate("history.state?.search ?? ''"))

    def expect_link(self, name: str, *values: str) -> None:
        """Wait until a part of the search has these values, or none."""
        until(self.page, lambda: self.link().get(name, []) == list(values))

    def ids(self) -> list[str]:
        """The ids of the tiles, in order."""
        return list(self.tiles.evaluate_all("tiles => tiles.map((tile) => tile.dataset.id)"))

    def scores(self) -> list[float]:
        """The scores on the tiles, in order."""
        texts = self.page.locator(".hit-score").all_inner_texts()
        return [float(text.split()[0].replace("\u2212", "-")) for text in texts]

    def ranks(self) -> list[int]:
        """The ranks on the tiles, in order."""
        return [int(text) for text in self.page.locator(".hit-rank").all_inner_texts()]

    def focused_id(self) -> str | None:
        """The id of the tile that has the focus."""
        result: str | None = self.page.evaluate(f"{_FOCUSED}?.closest('.hit')?.dataset.id ?? null")
        return result

    def expect_focused(self, image_id: str) -> None:
        """Wait until a tile has the focus; a closing dialog gives it back a moment later."""
        until(self.page, lambda: self.focused_id() == image_id)

    def scrolls_sideways(self) -> bool:
        """Whether something is wider than the window."""
        wider: bool = self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        return wider

    def checks(self, field: str) -> "Locator":
        """The values of a field in the panel of filters, with their counts."""
        return self.group(field).locator(".check")

    def group(self, field: str) -> "Locator":
        """The controls of a field in the panel of filters."""
        return self.panel.locator(f'.filter-group[data-field="{field}"]')

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask the service itself, to compare with what the page shows."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **AS_ADMIN}
        request = Request(f"{self.service}/{path}", data, headers)
        with urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def found(self, *, like: Sequence[str] = (), unlike: Sequence[str] = (), **query: Any) -> list[str]:
        """The ids that the service finds for a query with examples; the words of its text are looked up."""
        query = {"keywords": query.get("text"), **query}
        examples = {"like": [{"id": one} for one in like], "unlike": [{"id": one} for one in unlike]}
        answer = self.ask("v1/collections/shapes/search", {"limit": PAGE_SIZE, **examples, **query})
        return [hit["id"] for hit in answer["hits"]]

    def found_by_picture(self, picture: bytes, **query: Any) -> list[str]:
        """The ids that the service finds for a picture that is brought along."""
        file: FilePayload = {"name": "7.png", "mimeType": "image/png", "buffer": picture}
        requested = json.dumps({"limit": PAGE_SIZE, **query})
        address = f"{self.service}/v1/collections/shapes/search"
        answer = self.page.request.post(address, multipart={"query": requested, "image": file})
        return [hit["id"] for hit in answer.json()["hits"]]

    def listed(self, **query: Any) -> list[str]:
        """The ids that the service lists without a query."""
        answer = self.ask("v1/collections/shapes/search", {"limit": 100, **query})
        return [hit["id"] for hit in answer["hits"]]

    def mark(self, position: int, name: str) -> str:
        """Click "More like this" or "Less like this" on a tile, wait for the answer, and give its id."""
        image_id = self.ids()[position]
        tile = self.tiles.nth(position)
        tile.hover()
        with self.page.expect_response(lambda answer: image_id in (answer.request.post_data or "")):
            tile.get_by_text(name).click()
        self.settle()
        return image_id
