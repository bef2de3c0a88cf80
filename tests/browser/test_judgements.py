"""Thumbs on hits: what a reader says is kept by the service, shown, and can be taken back."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import OpenSearch, Sites, Watch
from tests.browser.search_page import SearchPage, expect
from tests.browser.test_layout import PHONE

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Route

pytestmark = pytest.mark.browser

RIGHT = "This is what I searched for"
WRONG = "This is not what I searched for"
_FEEDBACK = "**/feedback"


def button(place: "Locator", name: str) -> "Locator":
    return place.get_by_role("button", name=f"{name}: number")


def pressed(place: "Locator") -> list[str]:
    return [name for name in (RIGHT, WRONG) if button(place, name).get_attribute("aria-pressed") == "true"]


def kept(search: SearchPage) -> tuple[int, int]:
    """How many judgements the service has: relevant, and not."""
    counts = search.ask("v1/collections/shapes/feedback")
    return counts["relevant"], counts["not_relevant"]


def say(search: SearchPage, place: "Locator", name: str) -> Any:
    """Press a button and give what was sent; the answer has come when this returns."""
    with search.page.expect_response(_FEEDBACK) as answered:
        button(place, name).click()
    assert answered.value.status == 200
    return answered.value.request.post_data_json


def test_a_hit_is_judged_otherwise_and_taken_back(open_search: OpenSearch) -> None:
    search = open_search("#q=circle")
    search.settle()
    before, tile = kept(search), search.tiles.nth(2)
    assert pressed(tile) == []
    judged = {"query": {"text": "circle"}, "hit": search.ids()[2]}
    assert say(search, tile, RIGHT) == {**judged, "relevant": True}
    assert pressed(tile) == [RIGHT]
    assert kept(search) == (before[0] + 1, before[1])
    assert say(search, tile, WRONG) == {**judged, "relevant": False}
    assert pressed(tile) == [WRONG]
    assert kept(search) == (before[0], before[1] + 1)
    assert say(search, tile, WRONG) == {**judged, "relevant": None}
    assert pressed(tile) == []
    assert kept(search) == before
    assert pressed(search.tiles.nth(3)) == []


@pytest.mark.slow
def test_what_was_said_belongs_to_its_query(open_search: OpenSearch) -> None:
    search = open_search("#q=a red circle")
    search.settle()
    image_id = search.ids()[0]
    say(search, search.tiles.nth(0), RIGHT)
    search.search("a square")
    assert [pressed(tile) for tile in search.tiles.all()] == [[]] * search.tiles.count()
    search.page.go_back()
    search.settle()
    assert search.ids()[0] == image_id
    assert pressed(search.tiles.nth(0)) == [RIGHT]
    liked = search.mark(1, "More like this")
    sent = say(search, search.tiles.nth(1), WRONG)
    assert sent["query"] == {"text": "a red circle", "like": [{"id": liked}]}


@pytest.mark.slow
def test_what_was_said_is_shown_again_in_the_same_tab(open_search: OpenSearch) -> None:
    search = open_search("#q=green")
    search.settle()
    say(search, search.tiles.nth(0), RIGHT)
    say(search, search.tiles.nth(1), WRONG)
    say(search, search.tiles.nth(1), WRONG)
    say(search, search.tiles.nth(2), WRONG)
    search.page.reload()
    search.settle()
    assert [pressed(search.tiles.nth(place)) for place in range(4)] == [[RIGHT], [], [WRONG], []]
    other = open_search("#q=green")
    other.settle()
    assert pressed(other.tiles.nth(0)) == []


@pytest.mark.slow
def test_the_keyboard_judges_the_hit_that_has_the_focus(open_search: OpenSearch) -> None:
    search = open_search("#q=triangle")
    search.settle()
    search.field.press("ArrowDown")
    for key, expected in (("y", [RIGHT]), ("n", [WRONG]), ("n", [])):
        with search.page.expect_response(_FEEDBACK):
            search.page.keyboard.press(key)
        assert pressed(search.tiles.nth(0)) == expected
    search.page.keyboard.press("ArrowRight")
    with search.page.expect_response(_FEEDBACK):
        search.page.keyboard.press("y")
    assert [pressed(search.tiles.nth(place)) for place in (0, 1)] == [[], [RIGHT]]
    # Both buttons of the tile in focus can be reached by Tab, and those of no other.
    reachable = search.page.locator(".judge-button[tabindex='0']")
    expect(reachable).to_have_count(2)
    assert pressed(search.tiles.nth(1)) == [RIGHT]
    button(search.tiles.nth(1), WRONG).focus()
    with search.page.expect_response(_FEEDBACK):
        search.page.keyboard.press("Space")
    assert pressed(search.tiles.nth(1)) == [WRONG]


@pytest.mark.slow
def test_an_open_image_and_its_tile_show_the_same(open_search: OpenSearch) -> None:
    search = open_search("#q=blue")
    search.settle()
    tile = search.tiles.nth(4)
    tile.locator(".hit-open").click()
    expect(search.dialog.locator(".details")).to_contain_text("pixels")
    say(search, search.dialog, RIGHT)
    assert pressed(search.dialog) == [RIGHT]
    with search.page.expect_response(_FEEDBACK):
        search.page.keyboard.press("n")
    assert pressed(search.dialog) == [WRONG]
    search.page.keyboard.press("Escape")
    assert pressed(tile) == [WRONG]


@pytest.mark.slow
def test_what_is_refused_is_said_and_not_shown_as_kept(open_search: OpenSearch, watch: Watch) -> None:
    watch.allow("status of 409")
    search = open_search("#q=circle")
    search.settle()

    def refuse(route: "Route") -> None:
        problem = {"title": "The collection keeps no more judgements", "detail": "There are enough of them."}
        route.fulfill(status=409, json=problem, content_type="application/problem+json")

    search.page.route(_FEEDBACK, refuse)
    shown = search.ids()
    button(search.tiles.nth(0), RIGHT).click()
    expect(search.page.get_by_role("alert")).to_have_text(
        "Your change was not kept. There are enough of them."
    )
    assert pressed(search.tiles.nth(0)) == []
    assert search.ids() == shown


@pytest.mark.slow
def test_hits_of_a_picture_that_was_brought_have_no_thumbs(open_search: OpenSearch, sites: Sites) -> None:
    search = open_search("#q=circle")
    search.settle()
    expect(search.page.locator(".judge").first).to_be_visible()
    picture = (sites.host_folder.parent / "data" / "shapes" / "images" / "7.png").read_bytes()
    with search.page.expect_response("**/search"):
        search.drop(picture)
    search.settle()
    expect(search.page.locator(".judge")).to_have_count(0)


@pytest.mark.slow
def test_thumbs_on_a_phone_are_large_enough_for_a_finger(open_search: OpenSearch) -> None:
    search = open_search("#q=circle", **PHONE)
    search.settle()
    for name in (RIGHT, WRONG):
        thumb = button(search.tiles.first, name)
        expect(thumb).to_be_visible()
        assert thumb.evaluate("button => Math.min(button.offsetWidth, button.offsetHeight)") >= 36
    with search.page.expect_response(_FEEDBACK):
        button(search.tiles.first, RIGHT).tap()
    assert pressed(search.tiles.first) == [RIGHT]
    assert not search.scrolls_sideways()
    search.tiles.first.locator(".hit-open").tap()
    expect(search.dialog.locator(".details")).to_contain_text("pixels")
    assert pressed(search.dialog) == [RIGHT]
    assert not search.scrolls_sideways()
