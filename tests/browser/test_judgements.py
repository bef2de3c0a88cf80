"""Thumbs on hits: what a reader says is kept by the service, shown, and can be taken back."""

from typing import Any

import pytest
from playwright.sync_api import Locator, Route

from tests.browser.conftest import OpenSearch, Watch, step
from tests.browser.search_page import SearchPage, expect

pytestmark = pytest.mark.browser

RIGHT = "This is what I searched for"
WRONG = "This is not what I searched for"
_FEEDBACK = "**/feedback"


def button(position: Locator, name: str) -> Locator:
    return position.get_by_role("button", name=f"{name}: number")


def pressed(position: Locator) -> list[str]:
    return [name for name in (RIGHT, WRONG) if button(position, name).get_attribute("aria-pressed") == "true"]


def kept(search: SearchPage) -> tuple[int, int]:
    """How many judgements the service has: relevant, and not."""
    counts = search.ask("v1/collections/shapes/feedback")
    return counts["relevant"], counts["not_relevant"]


def say(search: SearchPage, position: Locator, name: str) -> Any:
    """Press a button and give what was sent; the answer has come when this returns."""
    with search.page.expect_response(_FEEDBACK) as answered:
        button(position, name).click()
    assert answered.value.status == 200
    return answered.value.request.post_data_json


def key(search: SearchPage, name: str) -> None:
    """Press a key that judges, and wait for the answer."""
    with search.page.expect_response(_FEEDBACK):
        search.keys(name)


def test_a_hit_is_judged_otherwise_and_taken_back(open_search: OpenSearch, watch: Watch) -> None:
    search = open_search("#q=circle").settle()
    before, tile = kept(search), search.tiles.nth(2)
    assert pressed(tile) == []
    judged = {"query": {"text": "circle"}, "hit": search.ids()[2]}
    for name, relevant, shown, more in (
        (RIGHT, True, [RIGHT], (1, 0)),
        (WRONG, False, [WRONG], (0, 1)),
        (WRONG, None, [], (0, 0)),
    ):
        step(f"pressing {name!r} says {relevant}")
        assert say(search, tile, name) == {**judged, "relevant": relevant}
        assert pressed(tile) == shown
        assert kept(search) == (before[0] + more[0], before[1] + more[1])
    assert pressed(search.tiles.nth(3)) == []
    step("what is refused is said, and not shown as kept")
    watch.allow("status of 409")

    def refuse(route: Route) -> None:
        problem = {"title": "The collection keeps no more judgements", "detail": "There are enough of them."}
        route.fulfill(status=409, json=problem, content_type="application/problem+json")

    search.page.route(_FEEDBACK, refuse)
    shown = search.ids()
    button(search.tiles.nth(0), RIGHT).click()
    message = "Your change was not kept. There are enough of them."
    expect(search.page.get_by_role("alert")).to_have_text(message)
    assert pressed(search.tiles.nth(0)) == []
    assert search.ids() == shown


@pytest.mark.slow
def test_what_was_said_by_clicks_and_keys_belongs_to_its_query_and_its_tab(open_search: OpenSearch) -> None:
    search = open_search("#q=a red circle").settle()
    step("another query does not show it, and going back does")
    image_id = search.ids()[0]
    say(search, search.tiles.nth(0), RIGHT)
    search.search("a square")
    assert [pressed(tile) for tile in search.tiles.all()] == [[]] * search.tiles.count()
    search.page.go_back()
    search.settle()
    assert search.ids()[0] == image_id
    assert pressed(search.tiles.nth(0)) == [RIGHT]
    step("an example is part of the query")
    liked = search.mark(1, "More like this")
    sent = say(search, search.tiles.nth(1), WRONG)
    assert sent["query"] == {"text": "a red circle", "like": [{"id": liked}]}
    step("a reload shows it again, another tab does not")
    search.go("#q=green")
    for position, name in ((0, RIGHT), (1, WRONG), (1, WRONG), (2, WRONG)):
        say(search, search.tiles.nth(position), name)
    search.reload()
    assert [pressed(search.tiles.nth(position)) for position in range(4)] == [[RIGHT], [], [WRONG], []]
    other = open_search("#q=green")
    other.settle()
    assert pressed(other.tiles.nth(0)) == []
    search.go("#q=triangle")
    step("y and n judge the hit that has the focus")
    search.field.press("ArrowDown")
    for name, expected in (("y", [RIGHT]), ("n", [WRONG]), ("n", [])):
        key(search, name)
        assert pressed(search.tiles.nth(0)) == expected
    search.keys("ArrowRight")
    key(search, "y")
    assert [pressed(search.tiles.nth(position)) for position in (0, 1)] == [[], [RIGHT]]
    step("both buttons of the tile in focus can be reached by Tab, and those of no other")
    expect(search.page.locator(".judge-button[tabindex='0']")).to_have_count(2)
    button(search.tiles.nth(1), WRONG).focus()
    key(search, "Space")
    assert pressed(search.tiles.nth(1)) == [WRONG]
    step("an open image and its tile show the same")
    search.open_hit(4)
    say(search, search.dialog, RIGHT)
    assert pressed(search.dialog) == [RIGHT]
    key(search, "n")
    assert pressed(search.dialog) == [WRONG]
    search.keys("Escape")
    assert pressed(search.tiles.nth(4)) == [WRONG]
