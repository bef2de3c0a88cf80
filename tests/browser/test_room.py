"""The reading room: films as they are drawn and in step, patients, searches and screens, and keys alone."""

import io
import json
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page

from tests.browser.conftest import Watch, step
from tests.browser.german import strangers
from tests.browser.room import (
    CENTRE,
    COLUMNS,
    CURVED,
    FILMS,
    FIRST,
    ROWS,
    WIDTH,
    OpenRoom,
    address_of,
    film_id,
    through,
    window_of,
)
from tests.browser.search_page import altered, box_of, expect, serious

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Levels are rounded, and DICOM's windows differ from ours by half a value.
EXACT = 1.2


def test_films_go_in_step_relative_to_their_own_windows(open_room: OpenRoom) -> None:
    room = open_room(2, 4)
    room.films.first.focus()
    step("one to one, alone and then in step")
    room.press("o")
    assert room.overlay(1, "zoom") != "1×"
    room.press("k")
    assert room.overlay(1, "zoom") == "1×"
    room.drag(0, 60, -40)
    first, second = (window_of(room.overlay(position, "levels")) for position in (0, 1))
    assert first[1] == second[1] > WIDTH
    assert first[0] == pytest.approx(4095 - second[0], abs=1)
    for position, number in ((0, 2), (1, 4)):
        assert np.abs(room.film(position) - through(number, *first)).max() <= 3
    room.drag(1, 30, 20, button="middle")
    for position, number in ((0, 2), (1, 4)):
        moved = room.pixels(position)
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


def test_two_patients_are_visibly_two(open_room: OpenRoom) -> None:
    room = open_room(2, 5, bypass_csp=True)
    step("each has a letter, a colour, and a part of an id")
    expect(room.warning).to_have_text("Different patients: A, B")
    tags = [room.overlay(position, "top-left") for position in (0, 1)]
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


def test_priors_open_beside_and_a_search_comes_back_or_begins_with_a_part(open_room: OpenRoom) -> None:
    room = open_room(2)
    step("priors are in order of time")
    expect(room.priors).to_have_count(4)
    ids = [film.get_attribute("data-id") for film in room.priors.all()]
    assert ids == [film_id(number) for number in (1, 2, 3, 4)]
    texts = [film.inner_text() for film in room.priors.all()]
    assert all(expected in texts[0] for expected in ("2023-11-02", "AP", "74 d before"))
    assert "same day" in texts[2]
    assert "138 d later" in texts[3]
    step("they open side by side")
    for position, number, expected in ((3, 4, "138 d later"), (0, 1, "74 d before")):
        room.priors.nth(position).click()
        room.wait(1, number)
        assert expected in room.overlay(1, "top-right")
        expect(room.warning).not_to_be_visible()
    step("the address has the films, and nothing of the search")
    room.search.search("film 4")
    result = room.search.ids()
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
    assert room.search.ids() == result
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
    room.films.first.focus()
    room.press("h")
    step("a region is drawn: of a mirrored film, the left quarter as it is seen is the right one")
    expect(room.page.get_by_role("button", name="Search with a part of the film")).to_be_visible()
    canvas = box_of(room.films.first.locator("canvas"))
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
    (like,) = json.loads(answered.value.request.post_data or "")["like"]
    assert like["id"] == film_id(2)
    assert like["box"] == pytest.approx({"x": 0.75, "y": 0, "width": 0.25, "height": 0.5}, abs=0.02)
    expect(room.search.liked).to_have_text(f"part of {film_id(2)}")
    step("the whole film, and back")
    room.films.first.focus()
    with room.page.expect_response("**/search") as answered:
        room.press("m")
    assert json.loads(answered.value.request.post_data or "")["like"] == [{"id": film_id(2)}]
    room.page.go_back()
    expect(room.search.liked).to_have_text(f"part of {film_id(2)}")
    assert room.shows() == [film_id(2), film_id(1)]


def test_from_a_query_to_films_side_by_side_by_keys_alone(open_room: OpenRoom) -> None:
    room = open_room()
    search, page = room.search, room.page
    search.settle()
    room.press("/")
    expect(search.field).to_be_focused()
    page.keyboard.type("film 2")
    room.press("Enter")
    search.settle()
    room.press("ArrowDown")
    ids = search.ids()
    search.expect_focused(ids[0])
    room.press("Enter")
    room.wait(0)
    room.press("ArrowRight", "c")
    room.wait(1)
    assert room.shows() == ids[:2]
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
    for position in (search.tiles.first.locator(".hit-open"), room.films.first):
        position.focus()
        room.press("?")
        expect(box).to_contain_text("one, two or four films")
        assert keys <= {key.lower() for key in box.locator("kbd").all_inner_texts()}
        room.press("Escape")
        expect(box).not_to_be_visible()


def test_a_key_does_one_thing_wherever_the_focus_is(open_room: OpenRoom) -> None:
    room = open_room()
    search, page = room.search, room.page
    search.settle()
    search.field.focus()
    room.press("ArrowDown", "Enter")
    room.wait(0)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
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
    assert not any(url.endswith("/search") for url in requests)
    step("on a film, keys of the hits do nothing")
    room.press("F6", "u", "y", "n", "s", "c")
    assert not any(url.endswith(("/search", "/feedback", "/cases")) for url in requests)
    expect(page.get_by_role("dialog")).to_have_count(0)
    room.press("l")
    expect(room.films).to_have_count(4)
    step("back on the hit, its own key acts once")
    room.press("F6")
    with search.answered():
        room.press("u")
    expect(search.disliked).to_have_count(1)
    assert sum(url.endswith("/search") for url in requests) == 1
    expect(room.films).to_have_count(4)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (3840, 2160)])
def test_films_fill_small_and_large_screens_and_the_line_is_always_there(
    open_room: OpenRoom, width: int, height: int
) -> None:
    room = open_room(2, layout=1, viewport={"width": width, "height": height})
    line = room.page.get_by_text("Not a medical device. Not for diagnosis.")
    for layout in (1, 2, 4):
        step(f"{layout} films")
        expect(room.films).to_have_count(layout)
        boxes = map(box_of, room.films.all())
        assert sum(box["width"] * box["height"] for box in boxes) > 0.55 * width * height
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


@pytest.mark.parametrize(("number", "ratio"), [(2, 1), (4, 1), (2, 2)])
def test_each_pixel_is_seen_through_the_films_own_window_and_those_that_are_dragged(
    open_room: OpenRoom, number: int, ratio: int
) -> None:
    room = open_room(number, device_scale_factor=ratio)
    step("one to one, on a fine screen too")
    room.press("o")
    before = room.film(0)
    assert np.abs(before - through(number, CENTRE, WIDTH)).max() <= EXACT
    assert room.overlay(0, "zoom") == "1×"
    step("dragging up brightens")
    middle = (before > 100) & (before < 155)
    room.drag(0, 0, -80)
    assert (room.film(0)[middle] - before[middle]).mean() > 10
    step("dragging left hardens, as finely as the film has it")
    room.drag(0, 0, 80)
    room.drag(0, -300, 0)
    harder = room.film(0)
    assert harder.std() > before.std() + 10
    centre, width = window_of(room.overlay(0, "levels"))
    assert width == pytest.approx(WIDTH / np.e, abs=60)
    # An inverted film is written in the values of its file.
    assert np.abs(harder - through(number, 4095 - centre if number == 4 else centre, width)).max() <= 3
    room.drag(0, 300, 0)
    assert room.film(0).std() < harder.std() - 10


def test_keys_choose_windows_and_turn_films_and_the_wheel_zooms(open_room: OpenRoom) -> None:
    room = open_room(2)
    room.press("o")
    step("presets: lungs are dark, bones are bright")
    windows = {}
    for key in "12345":
        room.press(key)
        seen = room.film(0)
        windows[key] = window_of(room.overlay(0, "levels"))
    assert windows["1"] == pytest.approx((CENTRE, WIDTH), abs=1)
    assert len(set(windows.values())) == 5
    assert windows["2"][0] < CENTRE < windows["4"][0]
    step("values beyond the film's own window are seen through that of all")
    centre, width = windows["5"]
    assert width > WIDTH * 1.5
    expected = through(2, centre, width)
    beyond = (through(2, CENTRE, WIDTH) >= 255) & (expected < 250)
    assert beyond.sum() > 500
    assert np.abs(seen - expected).max() <= 3
    expect(room.page.get_by_role("button", name="All values (5)")).to_have_attribute("aria-pressed", "true")
    step("inverted, and all set back")
    room.press("1", "i")
    assert np.abs(room.film(0) - (255 - through(2, CENTRE, WIDTH))).max() <= EXACT
    assert "Inverted" in room.overlay(0, "marks")
    room.press("3", "r", "h", "z", "+", "0", "o")
    assert np.abs(room.film(0) - through(2, CENTRE, WIDTH)).max() <= EXACT
    assert room.overlay(0, "marks") == ""
    upright = room.film(0)
    assert room.letters(0) == "HLFR"
    room.press("h")
    assert np.abs(room.film(0) - upright[:, ::-1]).max() <= 1
    assert room.letters(0) == "HRFL"
    assert room.overlay(0, "marks") == "Mirrored"
    room.press("r")
    assert "Rotated 90°" in room.overlay(0, "marks")
    assert room.letters(0) == "LHRF"
    turned = room.pixels(0)
    top, left = (turned.shape[0] - COLUMNS) // 2, (turned.shape[1] - ROWS) // 2
    inside = turned[top : top + COLUMNS, left : left + ROWS]
    assert np.abs(inside - np.rot90(upright[:, ::-1], -1)).max() <= 1
    room.press("h", "r", "r", "r")
    assert room.overlay(0, "marks") == "Rotated 180°"
    assert room.letters(0) == "FRHL"
    step("the wheel zooms about the pointer")
    room.press("z", "o")
    box = box_of(room.films.first.locator("canvas"))
    # A corner of the film that stays under the pointer.
    before = room.pixels(0)
    x, y = (before.shape[1] - COLUMNS) // 2 + 60, (before.shape[0] - ROWS) // 2 + 90
    room.page.mouse.move(box["x"] + x + 0.5, box["y"] + y + 0.5)
    for _ in range(12):
        room.page.mouse.wheel(0, -100)
    zoomed = room.pixels(0)
    assert float(room.overlay(0, "zoom").rstrip("×")) == pytest.approx(1.15**12, rel=0.01)
    assert zoomed[y, x] == pytest.approx(through(2, CENTRE, WIDTH)[90, 60], abs=3)


def test_a_moving_window_shows_a_small_film_at_the_same_place(open_room: OpenRoom) -> None:
    room = open_room(2, layout=4, viewport={"width": 1280, "height": 420})
    assert float(room.overlay(0, "zoom").rstrip("×")) < 0.5
    box = box_of(room.films.first)
    room.page.mouse.move(box["x"] + 50, box["y"] + 50)
    room.page.mouse.down()
    room.page.mouse.move(box["x"] + 50, box["y"] + 20)
    room.draw()
    expect(room.films.first).to_have_attribute("data-sharp", "false")
    moving = room.read(0)
    room.page.mouse.up()
    resting = room.pixels(0)
    assert np.abs(moving - resting)[resting > 20].mean() < 12
    assert np.corrcoef(moving.ravel(), resting.ravel())[0, 1] > 0.98


def test_a_curve_of_the_file_is_shown_as_it_is_and_windows_of_ct_are_in_hounsfield_units(
    open_room: OpenRoom, room_service: str
) -> None:
    room = open_room(CURVED)
    room.press("o")
    step("the curve, as the service renders it")
    address = f"{room_service}/v1/collections/{FILMS}/images/{film_id(CURVED)}/rendition"
    picture = room.page.request.get(address, headers={"Accept": "image/png"}).body()
    with Image.open(io.BytesIO(picture)) as opened:
        searched = np.asarray(opened.convert("L"), dtype=np.float64)
    assert np.abs(searched - through(CURVED, CENTRE, WIDTH)).max() > 10
    assert np.abs(room.film(0) - searched).max() == 0
    for key, window in (("3", (40, 400)), ("4", (400, 1800))):
        step(f"preset {key}")
        room.press(key)
        assert np.abs(room.film(0) - through(CURVED, *window)).max() <= 3
        assert window_of(room.overlay(0, "levels")) == window
    room.press("1")
    assert np.abs(room.film(0) - searched).max() == 0


def test_what_is_hidden_or_not_known_of_a_film_is_not_written_on_it(
    open_room: OpenRoom, room_service: str, watch: Watch
) -> None:

    hidden = ["age", "sex", "patient", "date", "orientation", "laterality"]

    def before(page: Page) -> None:
        altered(page, f"**/v1/collections/{FILMS}", lambda _: {"hidden_fields": hidden})

    room = open_room(3, 5, before=before)
    assert room.overlay(0, "top-left").split() in (["Patient", "A"], ["Patient", "B"])
    assert room.overlay(0, "top-right") == "DX · CHEST · LL"
    assert room.letters(0) == ""
    expect(room.warning).to_have_text("Different patients: A, B")
    room.films.first.focus()
    expect(room.priors).to_have_count(4)
    assert "2024" not in room.page.locator(".priors").inner_text()
    step("a picture of which nothing is known")
    room = open_room("plain", 2)
    assert room.letters(0) == ""
    assert "Patient unknown" in room.overlay(0, "top-left")
    assert "8 bit" in room.overlay(0, "bottom-left")
    expect(room.warning).to_have_text("The patient of some films is unknown")
    room.films.first.focus()
    expect(room.page.locator(".priors")).to_contain_text("The patient of this film is unknown")
    step("a film that cannot be shown says why, and can be tried again")
    watch.allow("404")
    room.page.goto(f"{room_service}/{address_of('none')}")
    film = room.films.first
    expect(film).to_have_attribute("data-state", "failed")
    expect(film.get_by_role("alert")).to_contain_text("none")
    expect(film.get_by_role("button", name="Try again")).to_be_visible()
