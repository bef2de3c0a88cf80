"""The reading room: films in step, priors, patients, searches and screens, and keys alone."""

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from tests.browser.conftest import OpenSearch, Watch
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
    press_keys,
    through,
    window_of,
)
from tests.browser.search_page import expect
from tests.browser.test_accessibility import serious

if TYPE_CHECKING:
    from playwright.sync_api import Request

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Levels are rounded, and DICOM's windows are half a value beside ours.
EXACT = 1.2


def _likes(request: "Request") -> list[dict[str, Any]]:
    sent = request.post_data_json
    assert sent is not None
    likes: list[dict[str, Any]] = sent["like"]
    return likes


def test_films_go_in_step_relative_to_their_own_windows(open_room: OpenRoom) -> None:
    room = open_room(2, 4)
    room.films.first.focus()
    room.page.keyboard.press("o")
    assert room.overlay(1, "zoom") != "1×"
    room.page.keyboard.press("k")
    assert room.overlay(1, "zoom") == "1×"
    room.drag(0, 60, -40)
    first, second = (window_of(room.overlay(place, "levels")) for place in (0, 1))
    assert first[1] == second[1] > WIDTH
    assert first[0] == pytest.approx(4095 - second[0], abs=1)
    for place, number in ((0, 2), (1, 4)):
        assert np.abs(room.film(place) - through(number, *first)).max() <= 3
    room.drag(1, 30, 20, button="middle")
    moved = [room.pixels(place) for place in (0, 1)]
    for place, number in ((0, 2), (1, 4)):
        top, left = (moved[place].shape[0] - ROWS) // 2 + 20, (moved[place].shape[1] - COLUMNS) // 2 + 30
        seen = moved[place][top : top + ROWS, left : left + COLUMNS]
        assert np.abs(seen - through(number, *first)).max() <= 3
    room.films.first.hover()
    room.page.mouse.wheel(0, -100)
    room.wait(0)
    assert room.overlay(0, "zoom") == room.overlay(1, "zoom") != "1×"
    room.page.keyboard.press("k")
    room.page.keyboard.press("0")
    assert room.overlay(0, "zoom") != room.overlay(1, "zoom")


def test_the_wheel_zooms_about_the_pointer(open_room: OpenRoom) -> None:
    room = open_room(2)
    room.page.keyboard.press("o")
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


def test_two_patients_are_visibly_two(open_room: OpenRoom) -> None:
    room = open_room(2, 5)
    expect(room.warning).to_have_text("Different patients: A, B")
    tags = [room.overlay(place, "top-left") for place in (0, 1)]
    # The one whose film is there first is the first.
    letters = [tag.split()[1] for tag in tags]
    assert sorted(letters) == ["A", "B"]
    assert FIRST[:8] in tags[0]
    assert FIRST not in room.page.locator("body").inner_text()
    edges = [film.evaluate("film => getComputedStyle(film).borderLeftColor") for film in room.films.all()]
    assert edges[0] != edges[1]
    # Days between two patients say nothing.
    assert "later" not in room.overlay(1, "top-right")
    label = f"Viewport 2 of 2: Patient {letters[1]}, 2024-03-03 (shifted), DX, CHEST, PA"
    assert room.films.nth(1).get_attribute("aria-label") == label
    room.films.nth(1).focus()
    press_keys(room.page, "Delete")
    expect(room.warning).not_to_be_visible()


def test_the_panel_of_filters_marks_dates_that_are_shifted(open_room: OpenRoom) -> None:
    room = open_room(2)
    expect(room.search.group("date").locator("legend")).to_have_text("date (shifted)")
    expect(room.search.group("modality").locator("legend")).not_to_contain_text("shifted")


def test_priors_are_in_order_of_time_and_open_beside(open_room: OpenRoom) -> None:
    room = open_room(2)
    expect(room.priors).to_have_count(4)
    ids = [film.get_attribute("data-id") for film in room.priors.all()]
    assert ids == [film_id(number) for number in (1, 2, 3, 4)]
    texts = [film.inner_text() for film in room.priors.all()]
    assert ["2023-11-02" in texts[0], "AP" in texts[0], "74 d before" in texts[0]] == [True] * 3
    assert "same day" in texts[2]
    assert "138 d later" in texts[3]
    room.priors.nth(3).click()
    room.wait(1, 4)
    assert "138 d later" in room.overlay(1, "top-right")
    expect(room.warning).not_to_be_visible()
    room.priors.nth(0).click()
    room.wait(1, 1)
    assert "74 d before" in room.overlay(1, "top-right")


def test_from_a_query_to_films_side_by_side_by_keys_alone(open_room: OpenRoom) -> None:
    room = open_room()
    search = room.search
    search.settle()
    page = room.page
    press_keys(page, "/")
    expect(search.field).to_be_focused()
    page.keyboard.type("film 2")
    page.keyboard.press("Enter")
    search.settle()
    page.keyboard.press("ArrowDown")
    ids = search.ids()
    search.expect_focused(ids[0])
    page.keyboard.press("Enter")
    room.wait(0)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("c")
    room.wait(1)
    assert room.shows() == ids[:2]
    page.keyboard.press("F6")
    expect(room.films.first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(room.films.nth(1)).to_be_focused()
    expect(room.films.nth(1)).to_have_attribute("aria-current", "true")
    before = room.overlay(1, "levels")
    page.keyboard.press("Shift+ArrowUp")
    room.wait(1)
    assert room.overlay(1, "levels") != before
    press_keys(page, "Tab", "Delete")
    expect(room.films.nth(1)).to_have_attribute("data-state", "empty")
    page.keyboard.press("F6")
    search.expect_focused(ids[1])
    press_keys(page, "F6", "?")
    keys = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(keys).to_contain_text("one, two or four films")
    page.keyboard.press("Escape")
    expect(keys).not_to_be_visible()


def test_films_take_turns_in_the_place_of_all(open_room: OpenRoom) -> None:
    room = open_room(2, 1)
    room.films.first.dblclick()
    expect(room.films).to_have_count(1)
    expect(room.films.first).to_have_attribute("data-film", film_id(2))
    room.page.keyboard.press("ArrowRight")
    expect(room.films).to_have_count(1)
    expect(room.films.first).to_have_attribute("data-film", film_id(1))
    room.page.keyboard.press("Enter")
    expect(room.films).to_have_count(2)
    assert room.shows() == [film_id(2), film_id(1)]
    expect(room.films.nth(1)).to_be_focused()


def test_a_reload_shows_the_same_films_and_the_same_search(open_room: OpenRoom) -> None:
    room = open_room(2)
    room.search.search("film 4")
    ids = room.search.ids()
    room.priors.nth(0).click()
    room.wait(1, 1)
    address = urlsplit(room.page.url)
    assert (address.path, address.query) == ("/room", "")
    assert parse_qs(address.fragment) == {
        "layout": ["2"], "active": ["0"], "film": [f"{FILMS}/{film_id(2)}", f"{FILMS}/{film_id(1)}"]
    }  # fmt: skip
    room.page.reload()
    room.wait(1, 1)
    room.wait(0, 2)
    expect(room.search.field).to_have_value("film 4")
    room.search.settle()
    assert room.search.ids() == ids


def test_a_region_and_a_film_are_searched_with(open_room: OpenRoom) -> None:
    room = open_room(2)
    room.page.keyboard.press("h")
    expect(room.page.get_by_role("button", name="Search with a part of the film")).to_be_visible()
    canvas = room.films.first.locator("canvas").bounding_box()
    assert canvas is not None
    room.page.keyboard.press("b")
    expect(room.films.first.locator(".region-frame")).to_be_visible()
    # Of a mirrored film, the left quarter as it is seen is the right one.
    scale = min(canvas["width"] / COLUMNS, canvas["height"] / ROWS)
    left, top = (
        canvas["x"] + (canvas["width"] - COLUMNS * scale) / 2,
        canvas["y"] + (canvas["height"] - ROWS * scale) / 2,
    )
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
    room.films.first.focus()
    with room.page.expect_response("**/search") as answered:
        room.page.keyboard.press("m")
    assert _likes(answered.value.request) == [{"id": film_id(2)}]
    room.page.go_back()
    expect(room.search.liked).to_have_text(f"part of {film_id(2)}")
    assert room.shows() == [film_id(2)]


def test_a_film_that_cannot_be_shown_says_why_and_can_be_tried_again(
    open_room: OpenRoom, open_search: OpenSearch, room_service: str, watch: Watch
) -> None:
    watch.allow(room_service)
    watch.allow("404")
    room = RoomPage(open_search(address_of("none"), site=room_service, **ROOM_DESK))
    film = room.films.first
    expect(film).to_have_attribute("data-state", "failed")
    expect(film.get_by_role("alert")).to_contain_text("none")
    expect(film.get_by_role("button", name="Try again")).to_be_visible()


@pytest.mark.parametrize("layout", [1, 2, 4])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (3840, 2160)])
def test_films_fill_small_and_large_screens_and_the_line_is_always_there(
    open_room: OpenRoom, layout: int, width: int, height: int
) -> None:
    room = open_room(2, layout=layout, viewport={"width": width, "height": height})
    expect(room.films).to_have_count(layout)
    boxes = [film.bounding_box() for film in room.films.all()]
    area = sum(box["width"] * box["height"] for box in boxes if box)
    assert area > 0.55 * width * height
    assert not room.search.scrolls_sideways()
    line = room.page.get_by_text("Not a medical device. Not for diagnosis.")
    expect(line).to_be_in_viewport()
    room.page.keyboard.press("?")
    expect(line).to_be_in_viewport()


def test_nothing_serious_in_the_room(open_room: OpenRoom) -> None:
    room = open_room(2, 5, bypass_csp=True)
    room.search.settle()
    room.page.keyboard.press("h")
    assert serious(room.search) == []
    room.page.keyboard.press("?")
    expect(room.page.get_by_role("dialog")).to_be_visible()
    assert serious(room.search) == []


def test_the_room_speaks_german(open_room: OpenRoom) -> None:
    room = open_room(2, 4, locale="de-DE")
    expect(room.page.get_by_text("Kein Medizinprodukt. Nicht für die Diagnose.")).to_be_visible()
    expect(room.page).to_have_title("Befundraum · recoquest")
    room.page.keyboard.press("h")
    assert room.overlay(0, "marks") == "Gespiegelt"
    assert "15.01.2024" in room.overlay(0, "top-right")
    assert "138 T. später" in room.overlay(1, "top-right")
    room.search.settle()
    data = ("film", "films", "plain", "dx", "pa", "ap", "ll", "chest", *"abfhjlmrw")
    assert strangers(room.page, data) == []
    room.page.keyboard.press("?")
    expect(room.page.get_by_role("dialog")).to_be_visible()
    assert strangers(room.page, (*data, *"cegiknosuyz", "esc", "f6")) == []


def test_a_key_does_one_thing_wherever_the_focus_is(open_room: OpenRoom) -> None:
    room = open_room()
    search, page = room.search, room.page
    search.settle()
    search.field.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    room.wait(0)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    before = search.focused_id()
    # On the hit that was opened: keys of the films are for the films.
    expect(room.films).to_have_count(1)
    page.keyboard.press("l")
    expect(room.films).to_have_count(2)
    page.keyboard.press("h")
    assert room.overlay(0, "marks") == "Mirrored"
    page.keyboard.press("k")
    expect(page.get_by_role("button", name="in step")).to_have_attribute("aria-pressed", "true")
    search.expect_focused(before or "")
    assert search.disliked.count() == search.liked.count() == 0
    assert not any(url.endswith("/search") for url in asked)
    # On a film: keys of the hits do nothing.
    page.keyboard.press("F6")
    for key in ("u", "y", "n", "s", "c"):
        page.keyboard.press(key)
    assert not any(url.endswith(("/search", "/feedback", "/cases")) for url in asked)
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("l")
    expect(room.films).to_have_count(4)
    # Back on the hit, its own key acts once.
    page.keyboard.press("F6")
    with page.expect_response("**/search"):
        page.keyboard.press("u")
    search.settle()
    expect(search.disliked).to_have_count(1)
    assert sum(url.endswith("/search") for url in asked) == 1
    expect(room.films).to_have_count(4)


def test_the_box_of_keys_lists_the_whole_table_from_either_side(open_room: OpenRoom) -> None:
    room = open_room(2)
    page = room.page
    table = page.evaluate("async () => (await import('./page/shared/keys.js')).KEYS")
    keys = [key for row in table.values() for keys in row.values() for key in keys]
    room.search.settle()
    for focus in (room.films.first, room.search.tiles.first.locator(".hit-open")):
        focus.focus()
        page.keyboard.press("?")
        box = page.get_by_role("dialog", name="Keyboard shortcuts")
        shown = {key.lower() for key in box.locator("kbd").all_inner_texts()}
        assert {key.lower() for key in keys} <= shown
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
