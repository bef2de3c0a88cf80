"""Films of the reading room: their windows, places, curves, marks and orientation."""

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from tests.browser.conftest import Step
from tests.browser.room import (
    CENTRE,
    COLUMNS,
    CURVED,
    FILMS,
    ROWS,
    WIDTH,
    OpenRoom,
    film_id,
    through,
    window_of,
)
from tests.browser.search_page import expect

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Levels are rounded, and DICOM's windows are half a value beside ours.
EXACT = 1.2


@pytest.mark.parametrize(("number", "ratio"), [(2, 1), (4, 1), (2, 2)])
def test_each_pixel_is_seen_through_the_films_own_window_and_those_that_are_dragged(
    open_room: OpenRoom, number: int, ratio: int, step: Step
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
    step("and right softens")
    room.drag(0, 300, 0)
    assert room.film(0).std() < harder.std() - 10


def test_windows_are_chosen_by_keys(open_room: OpenRoom, step: Step) -> None:
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


def test_a_moving_window_shows_a_small_film_at_the_same_place(open_room: OpenRoom) -> None:
    room = open_room(2, layout=4, viewport={"width": 1280, "height": 420})
    assert float(room.overlay(0, "zoom").rstrip("×")) < 0.5
    box = room.films.first.bounding_box()
    assert box is not None
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
    open_room: OpenRoom, room_service: str, step: Step
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
    step("the curve again")
    room.press("1")
    assert np.abs(room.film(0) - searched).max() == 0


def test_mirrored_and_turned_films_say_so_and_their_letters_move_along(
    open_room: OpenRoom, step: Step
) -> None:
    room = open_room(2)
    room.press("o")
    upright = room.film(0)
    assert room.letters(0) == "HLFR"
    step("mirrored")
    room.press("h")
    assert np.abs(room.film(0) - upright[:, ::-1]).max() <= 1
    assert room.letters(0) == "HRFL"
    assert room.overlay(0, "marks") == "Mirrored"
    step("turned as well")
    room.press("r")
    assert "Rotated 90°" in room.overlay(0, "marks")
    assert room.letters(0) == "LHRF"
    turned = room.pixels(0)
    top, left = (turned.shape[0] - COLUMNS) // 2, (turned.shape[1] - ROWS) // 2
    inside = turned[top : top + COLUMNS, left : left + ROWS]
    assert np.abs(inside - np.rot90(upright[:, ::-1], -1)).max() <= 1
    step("turned alone")
    room.press("h", "r", "r", "r")
    assert room.overlay(0, "marks") == "Rotated 180°"
    assert room.letters(0) == "FRHL"


def test_what_is_hidden_or_not_known_of_a_film_is_not_written_on_it(open_room: OpenRoom, step: Step) -> None:
    step("hidden fields")

    def hide(route: "Route") -> None:
        response = route.fetch()
        hidden = ["age", "sex", "patient", "date", "orientation", "laterality"]
        route.fulfill(response=response, json={**response.json(), "hidden_fields": hidden})

    def before(page: "Page") -> None:
        page.route(f"**/v1/collections/{FILMS}", hide)

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
    expect(room.warning).to_have_text("Of some films the patient is not known")
    room.films.first.focus()
    expect(room.page.locator(".priors")).to_contain_text("The patient of this film is not known")
