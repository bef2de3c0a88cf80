"""The reading room as a reader sees it, on DICOM films of two patients; pixels are read from its canvases."""

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import numpy as np
from PIL import Image

from app.engine import open_engine
from app.settings import Settings
from index.ingest import ingest_manifest
from tests.access import OPEN
from tests.browser.search_page import SearchPage, expect
from tests.browser.service import tiny_encoder
from tests.dicom_films import draw, encoded, make_film
from training.common.manifest import Record, read_manifest, write_manifest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

FILMS: Final = "films"
ROOM_DESK: Final[dict[str, Any]] = {"viewport": {"width": 1440, "height": 900}}
ROWS: Final = 300
COLUMNS: Final = 240
# Narrower than all values, so that some lie beyond it.
CENTRE: Final = 1800
WIDTH: Final = 2400
FIRST, SECOND, THIRD = "3fa9c2d17b604e58", "b81e4407aa93d256", "90d2f1a6c3e85b47"
# Added in another order than that of time. The last film of the first patient is inverted in its file.
SHOWN: Final = (
    (2, FIRST, "2024-01-15", "PA", "MONOCHROME2"),
    (4, FIRST, "2024-06-01", "PA", "MONOCHROME1"),
    (1, FIRST, "2023-11-02", "AP", "MONOCHROME2"),
    (5, SECOND, "2024-03-03", "PA", "MONOCHROME2"),
    (3, FIRST, "2024-01-15", "LL", "MONOCHROME2"),
    (6, THIRD, "2024-04-01", "PA", "MONOCHROME2"),
)
# A slice of CT whose file states a curve.
CURVED: Final = 6

_DRAWN: Final = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
_PIXELS: Final = """viewport => {
  const canvas = viewport.querySelector('canvas');
  const { data, width, height } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const red = data.filter((_, place) => place % 4 === 0);
  // In pieces, and as a text: a list of so many numbers takes seconds to be handed over.
  let text = '';
  for (let place = 0; place < red.length; place += 8192) {
    text += String.fromCharCode(...red.subarray(place, place + 8192));
  }
  return [width, height, btoa(text)];
}"""


def film_id(number: int) -> str:
    """Id of a film, as a SOP Instance UID."""
    return f"1.2.826.0.1.3680043.8.498.{number}"


def index_room(folder: Path, settings: Settings | None = None) -> Settings:
    """Index DICOM films with their metadata, and a picture of 8 bits without any."""
    data = folder / "data"
    data.mkdir()
    records = []
    for number, patient, date, view, photometric in SHOWN:
        tags: dict[str, Any] = {"WindowCenter": str(stored(CENTRE, photometric)), "WindowWidth": str(WIDTH)}
        if number == CURVED:
            tags["VOILUTFunction"] = "SIGMOID"
        film = make_film(number, view=view, rows=ROWS, columns=COLUMNS, photometric=photometric, **tags)
        (data / f"{number}.dcm").write_bytes(encoded(film))
        metadata = {
            "study": f"1.2.826.0.1.{date}", "patient": patient,
            "modality": "CT" if number == CURVED else "DX", "view": view, "date": date,
            # One date is shifted, one is known not to be, and nothing is said of the others.
            **({"date_shifted": patient == SECOND} if patient in (SECOND, THIRD) else {}),
            "orientation": "L\\F" if view != "LL" else "P\\F", "age": 62, "sex": "F", "body_part": "CHEST",
        }  # fmt: skip
        records.append(
            Record(
                id=film_id(number),
                image=f"{number}.dcm",
                split="test",
                group=patient,
                texts=(f"film {number}",),
                metadata=metadata | ({"laterality": "L"} if view == "LL" else {}),
            )
        )
    Image.fromarray((draw(9, 120, 100) >> 4).astype(np.uint8)).save(data / "plain.png")
    records.append(Record(id="plain", image="plain.png", split="test", texts=("plain",)))
    write_manifest(data, records)
    settings = settings or Settings(home=folder / "home", threads=1, device="cpu", **OPEN)
    engine = open_engine(settings)
    ingest_manifest(engine, FILMS, tiny_encoder(folder / "bundle"), read_manifest(data))
    engine.close()
    return settings


def stored(value: int, photometric: str) -> int:
    """A value as a film of this kind stores it."""
    return 4095 - value if photometric == "MONOCHROME1" else value


def through(number: int, centre: float, width: float) -> np.ndarray:
    """The grey levels of a film through a window, brighter for larger values of its drawing."""
    levels = 255 * (draw(number, ROWS, COLUMNS) - (centre - width / 2)) / width
    return np.asarray(levels.clip(0, 255))


class RoomPage:
    """The page, with what it shows."""

    def __init__(self, search: SearchPage) -> None:
        self.search = search
        self.page = search.page
        self.press = search.keys
        self.films = self.page.locator(".viewport:visible")
        self.warning = self.page.locator(".table-warning")
        self.priors = self.page.get_by_role("list", name="Films of this patient").get_by_role("button")

    def wait(self, position: int, number: int | None = None) -> "Locator":
        """Wait until a viewport's film can be windowed, and is shown as finely as can be."""
        film = self.films.nth(position)
        if number is not None:
            expect(film).to_have_attribute("data-film", film_id(number))
        expect(film).to_have_attribute("data-state", "ready")
        expect(film).not_to_have_attribute("data-sharp", "false")
        self.draw()
        return film

    def draw(self) -> None:
        """Wait until what was changed is drawn."""
        self.page.evaluate(_DRAWN)

    def pixels(self, position: int) -> np.ndarray:
        """The red channel of a viewport's canvas, once it is as fine as can be."""
        self.wait(position)
        return self.read(position)

    def read(self, position: int) -> np.ndarray:
        """The red channel of a viewport's canvas, as it is now."""
        width, height, text = self.films.nth(position).evaluate(_PIXELS)
        values = np.frombuffer(base64.b64decode(text), dtype=np.uint8)
        return values.astype(np.float64).reshape(height, width)

    def film(self, position: int) -> np.ndarray:
        """The film in its viewport at its own size, whole in the middle of it."""
        shown = self.pixels(position)
        top, left = (shown.shape[0] - ROWS) // 2, (shown.shape[1] - COLUMNS) // 2
        return shown[top : top + ROWS, left : left + COLUMNS]

    def drag(self, position: int, right: int, down: int, *, button: Any = "left") -> None:
        """Drag from the middle of a viewport."""
        box = self.films.nth(position).bounding_box()
        assert box is not None
        mouse = self.page.mouse
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        mouse.move(x, y)
        mouse.down(button=button)
        mouse.move(x + right, y + down, steps=4)
        mouse.up(button=button)

    def overlay(self, position: int, part: str) -> str:
        """A text that is written over a film."""
        self.draw()
        return self.films.nth(position).locator(f".{part}").inner_text()

    def letters(self, position: int) -> str:
        """The directions at the top, right, bottom and left."""
        self.draw()
        return "".join(self.films.nth(position).locator(".edge").all_inner_texts())

    def shows(self) -> list[str]:
        """The ids of the films, by viewport."""
        return [film.get_attribute("data-film") or "" for film in self.films.all()]


OpenRoom = Callable[..., RoomPage]


def address_of(*films: int | str, layout: int | None = None) -> str:
    """The address of films side by side; of numbers the DICOM films."""
    names = [film_id(one) if isinstance(one, int) else one for one in films]
    parts = [f"film={quote(f'{FILMS}/{name}', safe='')}" for name in names]
    return "room#" + "&".join(parts if layout is None else [f"layout={layout}", *parts])


def window_of(text: str) -> tuple[int, int]:
    """Centre and width of a window as it is written on a film."""
    centre, width = re.findall(r"-?[\d,]+", text.splitlines()[-1])[:2]
    return int(centre.replace(",", "")), int(width.replace(",", ""))
