"""Windows and places of films in the reading room: its pure functions, run by Node.js."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.app.page.test_texts import evaluated

ROOM: Final = Path(__file__).resolve().parents[3] / "app" / "page" / "room"
BOX: Final = {"width": 600, "height": 500}
FILM: Final = {"width": 200, "height": 100}


def run(module: str, expression: str, **values: Any) -> Any:
    """Evaluate an expression with a module as `m` and values as `v`.

    Args:
        module: Path below the folder of the room, without its ending.
        expression: JavaScript whose value JSON can write.
        values: What JSON can write.
    """
    source = (ROOM / f"{module}.js").read_text(encoding="utf-8")
    given = f"const v = {json.dumps(values)};"
    return evaluated(f"{source}\n{given}\nprocess.stdout.write(JSON.stringify({expression}));")


def test_dragging_right_widens_and_dragging_up_brightens() -> None:
    moved = run(
        "film/grey",
        """[[300, 0], [-300, 0], [0, -40], [0, 40], [0, 9999], [99999, 0]]
             .map(([x, y]) => draggedWindow(v.window, x, y, v.range))""",
        window={"centre": 1000, "width": 400},
        range={"low": 0, "high": 4095},
    )
    assert [round(one["width"]) for one in moved[:2]] == [round(400 * np.e), round(400 / np.e)]
    # A lower centre makes all values brighter.
    assert [one["centre"] for one in moved[2:4]] == [960, 1040]
    assert moved[4]["centre"] == 4095
    assert moved[5]["width"] == 2 * 4095


def test_levels_are_those_of_the_window_and_the_last_code_is_the_largest_value() -> None:
    levels, inverted = run(
        "film/grey",
        "[false, true].map((inverted) => [...levelsOf(v.window, v.range, inverted, 400)])",
        window={"centre": 200, "width": 200},
        range={"low": 0, "high": 400},
    )
    expected = np.clip(np.rint(255 * (np.arange(401) - 100) / 200), 0, 255)
    assert np.abs(np.array(levels) - expected).max() <= 1
    assert np.abs(np.array(levels) + inverted - 255).max() <= 1


def test_values_of_a_film_are_known_as_finely_as_its_windows_tell() -> None:
    values = np.arange(4096)

    def seen(centre: float, width: float) -> list[int]:
        return [int(level) for level in np.clip(np.rint(255 * ((values - centre) / width + 0.5)), 0, 255)]

    windows = [(2047.5, 4095.0), (1000.0, 1000.0), (1200.0, 100.0)]
    errors = run(
        "film/grey",
        """(() => {
          const window = ([centre, width]) => ({ centre, width });
          const plane = planeOf(Uint8Array.from(v.pictures[0]), window(v.windows[0]), v.range);
          const all = [[...plane.codes]];
          for (const place of [1, 2, 1]) {
            refine(plane, Uint8Array.from(v.pictures[place]), window(v.windows[place]));
            all.push([...plane.codes]);
          }
          return all;
        })()""",
        windows=windows, pictures=[seen(*window) for window in windows], range={"low": 0, "high": 4095},
    )  # fmt: skip
    known = np.array(errors) * 4095 / 65_535
    away = np.abs(known - values)
    inside = [(values > centre - width / 2) & (values < centre + width / 2) for centre, width in windows]
    assert away[0].max() < 4095 / 255
    assert away[1][inside[1]].max() < 1.1 * 1000 / 255
    assert away[1].max() < 4095 / 255 + 0.1
    assert away[2][inside[2]].max() < 0.5
    # A coarser picture does not make worse what a finer one has told.
    assert away[3][inside[2]].max() < 0.5


@pytest.mark.parametrize("white", [False, True])
def test_it_is_seen_which_end_of_the_values_is_white(white: bool) -> None:
    values = np.random.default_rng(1).uniform(0, 4095, 5_000)

    def seen(centre: float, width: float) -> list[int]:
        levels = np.clip(np.rint(255 * ((values - centre) / width + 0.5)), 0, 255)
        return [int(255 - level if white else level) for level in levels]

    fits = run(
        "film/grey",
        """[false, true].map((white) =>
             misfit(Uint8Array.from(v.narrow), v.window, Uint8Array.from(v.wide), v.all, white))""",
        narrow=seen(2000, 1600), window={"centre": 2000, "width": 1600},
        wide=seen(2148, 4296), all={"centre": 2148, "width": 4296},
    )  # fmt: skip
    assert fits[white] < 1 < 3 < fits[not white]


def test_windows_in_step_are_as_far_from_each_films_own() -> None:
    window = run(
        "film/grey", "windowInStep(v.window, v.own, v.other)",
        window={"centre": 1200, "width": 500},
        own={"centre": 1000, "width": 1000}, other={"centre": -50, "width": 200},
    )  # fmt: skip
    assert window == {"centre": -10, "width": 100}


_PLACES: Final = """v.steps.map((steps) => {
  let place = { ...wholeFilm(), zoom: { kind: 'actual', by: 1 } };
  for (const step of steps) place = step === 'h' ? mirrored(place) : turned(place);
  const matrix = matrixOf(place, v.film, v.box);
  const [a, b, c, d, e, f] = matrix;
  const corners = [[0, 0], [200, 0], [0, 100]].map(([x, y]) => [a * x + c * y + e, b * x + d * y + f]);
  const back = filmPoint(matrix, { x: corners[1][0], y: corners[1][1] });
  return { corners, back, letters: edgeLetters('L\\\\F', place).join('') };
})"""
# Images under mirroring (h) and turning (r) of three corners and of the letters.
_EXPECTED: Final[dict[str, tuple[list[list[int]], str]]] = {
    "": ([[200, 200], [400, 200], [200, 300]], "HLFR"),
    "h": ([[400, 200], [200, 200], [400, 300]], "HRFL"),
    "r": ([[350, 150], [350, 350], [250, 150]], "RHLF"),
    "rr": ([[400, 300], [200, 300], [400, 200]], "FRHL"),
    "hr": ([[350, 350], [350, 150], [250, 350]], "LHRF"),
    "rh": ([[250, 150], [250, 350], [350, 150]], "RFLH"),
    "rhrh": ([[200, 200], [400, 200], [200, 300]], "HLFR"),
}


def test_corners_and_letters_move_together() -> None:
    result = run("film/geometry", _PLACES, steps=[list(steps) for steps in _EXPECTED], film=FILM, box=BOX)
    for (corners, letters), measured in zip(_EXPECTED.values(), result, strict=True):
        assert (measured["corners"], measured["letters"]) == (corners, letters)
        assert measured["back"] == pytest.approx({"x": 200, "y": 0})


def test_letters_of_an_oblique_film_have_two_parts_and_none_are_made_up() -> None:
    orientations = [None, "", "L", "X\\Y", "L\\F\\H", 3, "LP\\FA"]
    result = run("film/geometry", "v.all.map((one) => edgeLetters(one, wholeFilm()))", all=orientations)
    assert result == [None] * 6 + [["HP", "LP", "FA", "RA"]]


def test_the_point_under_the_pointer_stays_and_the_film_stays_in_view() -> None:
    result = run(
        "film/geometry",
        """[0, 1, 2, 3].map((turn) => {
          const place = { ...wholeFilm(), turn, mirrored: turn === 1 };
          const still = { x: 330, y: 270 };
          const under = (one) => filmPoint(matrixOf(one, v.film, v.box), still);
          const near = zoomed(place, v.film, v.box, 3, still);
          const far = moved(near, v.film, v.box, 1e6, -1e6);
          const scaled = (factor) => scaleOf(zoomed(place, v.film, v.box, factor), v.film, v.box);
          return { before: under(place), after: under(near), by: near.zoom.by, far: far.centre,
            scales: [scaled(1e9), scaled(1e-9)] };
        })""",
        film=FILM,
        box=BOX,
    )
    for measured in result:
        assert measured["after"] == pytest.approx(measured["before"], abs=0.5)
        assert measured["by"] == pytest.approx(3)
        assert measured["far"] == {"x": 0, "y": 1}
        assert measured["scales"] == [32, 0.5]


def test_the_address_holds_films_of_any_id_and_reads_what_it_can() -> None:
    table = {
        "layout": 4, "active": 2,
        "films": [{"collection": "films", "id": "a/b c&d=#ü"}, None, {"collection": "x", "id": "1.2"}, None],
    }  # fmt: skip
    assert run("address", "tableOf(fragmentOf(v.table))", table=table) == table
    read = run(
        "address", "['', '#layout=3&active=9&film=none&film=/x', '#film=a/1&film=a/2&film=a/3'].map(tableOf)"
    )
    assert read[0] == {"layout": 1, "active": 0, "films": [None]}
    assert read[1] == {"layout": 2, "active": 0, "films": [None, None]}
    assert (read[2]["layout"], len(read[2]["films"])) == (4, 4)
