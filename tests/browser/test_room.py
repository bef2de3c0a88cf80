"""The reading room: films in step, priors, patients, searches and screens, and keys alone."""

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from tests.browser.conftest import OpenSearch, Step, Watch
from tests.browser.german import strangers
from tests.browser.room import (
    CENTRE,
    COLUMNS,
    FILMS,
    FIRST,
    ROOM_DESK,
    ROWS,
    WIDTH,
    OpenRoom,
    RoomPage,
    address_of,
    film_id,
    through,
    window_of,
)
from tests.browser.search_page import expect, serious

if TYPE_CHECKING:
    from playwright.sync_api import Request

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def _likes(request: "Request") -> list[dict[str, Any]]:
    sent = request.post_data_json
    assert sent is not None
    likes: list[dict[str, Any]] = sent["like"]
    return likes


def test_films_go_in_step_relative_to_their_own_windows(open_room: OpenRoom, step: Step) -> None:
    room = open_room(2, 4)
    room.films.first.focus()
    step("one to one, alone and then in step")
    room.press("o")
    assert room.overlay(1, "zoom") != "1×"
    room.press("k")
    assert room.overlay(1, "zoom") == "1×"
    step("a window is dragged in both")
    room.drag(0, 60, -40)
    first, second = (window_of(room.overlay(place, "levels")) for place in (0, 1))
    assert first[1] == second[1] > WIDTH
    assert first[0] == pytest.approx(4095 - second[0], abs=1)
    for place, number in ((0, 2), (1, 4)):
        assert np.abs(room.film(place) - through(number, *first)).max() <= 3
    step("both are moved")
    room.drag(1, 30, 20, button="middle")
    for place, number in ((0, 2), (1, 4)):
        moved = room.pixels(place)
        top, left = (moved.shape[0] - ROWS) // 2 + 20, (moved.shape[1] - COLUMNS) // 2 + 30
        seen = moved[top : top + ROWS, left : left + COLUMNS]
        assert np.abs(seen - through(number, *first)).max() <= 3
    step("both are zoomed, until they are out of step")
    room.films.first.hover()
    room.page.mouse.wheel(0, -100)
    room.wait(0)
    assert room.overlay(0, "zoom") == room.overlay(1, "zoom") != "1×"
    room.press("k", "0")
    assert room.overlay(0, "zoom") != room.overlay(1, "zoom")


def test_the_wheel_zooms_about_the_pointer(open_room: OpenRoom) -> None:
    room = open_room(2)
    room.press("o")
    box = room.films.first.locator("canvas").bounding_box()
    assert box is not None
    # A corner of the film that stays under the pointer.
    before = room.pixels(0)
    x, y = (before.shape[1] - COLUMNS) // 2 + 60, (before.shape[0] - ROWS) // 2 + 90
    room.page.mouse.move(box["x"] + x + 0.5, box["y"] + y + 0.5)
    for _ in range(12):
        room.page.mouse.wheel(0, -100)
    zoomed = room.pixels(0)
    assert float(room.overlay(0, "zoom").rstrip("×")) == pytest.approx(1.15**12, rel=0.01)
    assert zoomed[y, x] == pytest.approx(through(2, CENTRE, WIDTH)[90, 60], abs=3)


def test_two_patients_are_visibly_two(open_room: OpenRoom, step: Step) -> None:
    room = open_room(2, 5, bypass_csp=True)
    step("each has a letter, a colour, and a part of an id")
    expect(room.warning).to_have_text("Different patients: A, B")
    tags = [room.overlay(place, "top-left") for place in (0, 1)]
    # The one whose film is there first is the first.
    letters = [tag.split()[1] for tag in tags]
    assert sorted(letters) == ["A", "B"]
    assert FIRST[:8] in tags[0]
    assert FIRST not in room.page.locator("body").inner_text()
    edges = [film.evaluate("film => getComputedStyle(film).borderLeftColor") for film in room.films.all()]
    assert edges[0] != edges[1]
    step("days between them say nothing, and shifted dates are marked")
    assert "later" not in room.overlay(1, "top-right")
    label = f"Viewport 2 of 2: Patient {letters[1]}, 2024-03-03 (shifted), DX, CHEST, PA"
    assert room.films.nth(1).get_attribute("aria-label") == label
    expect(room.search.group("date").locator("legend")).to_have_text("date (shifted)")
    expect(room.search.group("modality").locator("legend")).not_to_contain_text("shifted")
    step("axe finds nothing serious")
    room.search.settle()
    room.press("h")
    assert serious(room.page) == []
    room.press("?")
    expect(room.page.get_by_role("dialog")).to_be_visible()
    assert serious(room.page) == []
    step("the warning goes with the second patient")
    room.press("Escape")
    room.films.nth(1).focus()
    room.press("Delete")
    expect(room.warning).not_to_be_visible()


def test_priors_and_a_search_come_back_after_a_reload(open_room: OpenRoom, step: Step) -> None:
    room = open_room(2)
    step("priors are in order of time")
    expect(room.priors).to_have_count(4)
    ids = [film.get_attribute("data-id") for film in room.priors.all()]
    assert ids == [film_id(number) for number in (1, 2, 3, 4)]
    texts = [film.inner_text() for film in room.priors.all()]
    for place, told in (
        (0, "2023-11-02"),
        (0, "AP"),
        (0, "74 d before"),
        (2, "same day"),
        (3, "138 d later"),
    ):
        assert told in texts[place]
    step("they open beside")
    for place, number, told in ((3, 4, "138 d later"), (0, 1, "74 d before")):
        room.priors.nth(place).click()
        room.wait(1, number)
        assert told in room.overlay(1, "top-right")
        expect(room.warning).not_to_be_visible()
    step("the address has the films, and nothing of the search")
    room.search.search("film 4")
    found = room.search.ids()
    address = urlsplit(room.page.url)
    assert (address.path, address.query) == ("/room", "")
    assert parse_qs(address.fragment) == {
        "layout": ["2"], "active": ["0"], "film": [f"{FILMS}/{film_id(2)}", f"{FILMS}/{film_id(1)}"]
    }  # fmt: skip
    step("a reload shows the same films and the same search")
    room.page.reload()
    room.wait(1, 1)
    room.wait(0, 2)
    expect(room.search.field).to_have_value("film 4")
    room.search.settle()
    assert room.search.ids() == found
    step("films take turns in the place of all")
    room.films.first.dblclick()
    expect(room.films).to_have_count(1)
    expect(room.films.first).to_have_attribute("data-film", film_id(2))
    room.press("ArrowRight")
    expect(room.films).to_have_count(1)
    expect(room.films.first).to_have_attribute("data-film", film_id(1))
    room.press("Enter")
    expect(room.films).to_have_count(2)
    assert room.shows() == [film_id(2), film_id(1)]
    expect(room.films.nth(1)).to_be_focused()


def test_from_a_query_to_films_side_by_side_by_keys_alone(open_room: OpenRoom, step: Step) -> None:
    room = open_room()
    search, page = room.search, room.page
    search.settle()
    step("a query by keys")
    room.press("/")
    expect(search.field).to_be_focused()
    page.keyboard.type("film 2")
    room.press("Enter")
    search.settle()
    room.press("ArrowDown")
    ids = search.ids()
    search.expect_focused(ids[0])
    step("two films are opened")
    room.press("Enter")
    room.wait(0)
    room.press("ArrowRight", "c")
    room.wait(1)
    assert room.shows() == ids[:2]
    step("on the films")
    room.press("F6")
    expect(room.films.first).to_be_focused()
    room.press("ArrowRight")
    expect(room.films.nth(1)).to_be_focused()
    expect(room.films.nth(1)).to_have_attribute("aria-current", "true")
    before = room.overlay(1, "levels")
    room.press("Shift+ArrowUp")
    room.wait(1)
    assert room.overlay(1, "levels") != before
    room.press("Tab", "Delete")
    expect(room.films.nth(1)).to_have_attribute("data-state", "empty")
    step("the box of keys lists the whole table from either side")
    room.press("F6")
    search.expect_focused(ids[1])
    table = page.evaluate("async () => (await import('./page/shared/keys.js')).KEYS")
    keys = {key.lower() for row in table.values() for names in row.values() for key in names}
    box = page.get_by_role("dialog", name="Keyboard shortcuts")
    for place in (search.tiles.first.locator(".hit-open"), room.films.first):
        place.focus()
        room.press("?")
        expect(box).to_contain_text("one, two or four films")
        assert keys <= {key.lower() for key in box.locator("kbd").all_inner_texts()}
        room.press("Escape")
        expect(box).not_to_be_visible()


def test_a_key_does_one_thing_wherever_the_focus_is(open_room: OpenRoom, step: Step) -> None:
    room = open_room()
    search, page = room.search, room.page
    search.settle()
    search.field.focus()
    room.press("ArrowDown", "Enter")
    room.wait(0)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    before = search.focused_id()
    step("on the hit that was opened, keys of the films are for the films")
    expect(room.films).to_have_count(1)
    room.press("l")
    expect(room.films).to_have_count(2)
    room.press("h")
    assert room.overlay(0, "marks") == "Mirrored"
    room.press("k")
    expect(page.get_by_role("button", name="in step")).to_have_attribute("aria-pressed", "true")
    search.expect_focused(before or "")
    assert search.disliked.count() == search.liked.count() == 0
    assert not any(url.endswith("/search") for url in asked)
    step("on a film, keys of the hits do nothing")
    room.press("F6", "u", "y", "n", "s", "c")
    assert not any(url.endswith(("/search", "/feedback", "/cases")) for url in asked)
    expect(page.get_by_role("dialog")).to_have_count(0)
    room.press("l")
    expect(room.films).to_have_count(4)
    step("back on the hit, its own key acts once")
    room.press("F6")
    with search.answered():
        room.press("u")
    expect(search.disliked).to_have_count(1)
    assert sum(url.endswith("/search") for url in asked) == 1
    expect(room.films).to_have_count(4)


def test_a_region_and_a_film_are_searched_with(open_room: OpenRoom, step: Step) -> None:
    room = open_room(2)
    room.press("h")
    step("a region is drawn: of a mirrored film, the left quarter as it is seen is the right one")
    expect(room.page.get_by_role("button", name="Search with a part of the film")).to_be_visible()
    canvas = room.films.first.locator("canvas").bounding_box()
    assert canvas is not None
    room.press("b")
    expect(room.films.first.locator(".region-frame")).to_be_visible()
    scale = min(canvas["width"] / COLUMNS, canvas["height"] / ROWS)
    left = canvas["x"] + (canvas["width"] - COLUMNS * scale) / 2
    top = canvas["y"] + (canvas["height"] - ROWS * scale) / 2
    mouse = room.page.mouse
    mouse.move(left + 1, top + 1)
    mouse.down()
    mouse.move(left + COLUMNS * scale / 4, top + ROWS * scale / 2, steps=4)
    with room.page.expect_response("**/search") as answered:
        mouse.up()
    (like,) = _likes(answered.value.request)
    assert like["id"] == film_id(2)
    assert like["box"] == pytest.approx({"x": 0.75, "y": 0, "width": 0.25, "height": 0.5}, abs=0.02)
    expect(room.search.liked).to_have_text(f"part of {film_id(2)}")
    step("the whole film, and back")
    room.films.first.focus()
    with room.page.expect_response("**/search") as answered:
        room.press("m")
    assert _likes(answered.value.request) == [{"id": film_id(2)}]
    room.page.go_back()
    expect(room.search.liked).to_have_text(f"part of {film_id(2)}")
    assert room.shows() == [film_id(2)]


def test_a_film_that_cannot_be_shown_says_why_and_can_be_tried_again(
    open_search: OpenSearch, room_service: str, watch: Watch
) -> None:
    watch.allow(room_service)
    watch.allow("404")
    room = RoomPage(open_search(address_of("none"), site=room_service, **ROOM_DESK))
    film = room.films.first
    expect(film).to_have_attribute("data-state", "failed")
    expect(film.get_by_role("alert")).to_contain_text("none")
    expect(film.get_by_role("button", name="Try again")).to_be_visible()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (3840, 2160)])
def test_films_fill_small_and_large_screens_and_the_line_is_always_there(
    open_room: OpenRoom, width: int, height: int, step: Step
) -> None:
    room = open_room(2, layout=1, viewport={"width": width, "height": height})
    line = room.page.get_by_text("Not a medical device. Not for diagnosis.")
    for layout in (1, 2, 4):
        step(f"{layout} films")
        expect(room.films).to_have_count(layout)
        boxes = [film.bounding_box() for film in room.films.all()]
        assert sum(box["width"] * box["height"] for box in boxes if box) > 0.55 * width * height
        assert not room.search.scrolls_sideways()
        expect(line).to_be_in_viewport()
        room.press("l")
    room.press("?")
    expect(line).to_be_in_viewport()


def test_the_room_speaks_german(open_room: OpenRoom) -> None:
    room = open_room(2, 4, locale="de-DE")
    expect(room.page.get_by_text("Kein Medizinprodukt. Nicht für die Diagnose.")).to_be_visible()
    expect(room.page).to_have_title("Befundraum · recoquest")
    room.press("h")
    assert room.overlay(0, "marks") == "Gespiegelt"
    assert "15.01.2024" in room.overlay(0, "top-right")
    assert "138 T. später" in room.overlay(1, "top-right")
    room.search.settle()
    data = ("film", "films", "plain", "dx", "pa", "ap", "ll", "chest", *"abfhjlmrw")
    assert strangers(room.page, data) == []
    room.press("?")
    expect(room.page.get_by_role("dialog")).to_be_visible()
    assert strangers(room.page, (*data, *"cegiknosuyz", "esc", "f6")) == []
