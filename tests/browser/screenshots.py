"""Takes the pictures of docs/ from a running `recoquest demo`.

recoquest keys create pictures --role curator --home .demo/600-images/home
make screenshots ARGS="http://localhost:8000 KEY"
"""

import argparse
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import FilePayload, Page, sync_playwright

from tests.browser.conftest import find_chromium

DOCS = Path(__file__).resolve().parents[2] / "docs"
_COLOURS = 64
_SEARCH = "#collection=radiographs&q=large+left+effusion"
_FILM = "film of the documentation"
# Radiographs of the demo as films of two made-up patients: id, patient and day.
_ROOM = (
    ("cxr00010", "3fa9c2d17b604e58", "2023-11-02"),
    ("cxr00008", "3fa9c2d17b604e58", "2024-01-15"),
    ("cxr00005", "b81e4407aa93d256", "2024-03-03"),
    ("cxr00007", "3fa9c2d17b604e58", "2024-06-01"),
)


def _keep(page: Page, name: str, colours: int = _COLOURS) -> None:
    page.mouse.move(2, 2)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    with Image.open(io.BytesIO(page.screenshot())) as opened:
        # Of few colours: pictures in a repository stay in its history.
        shrunk = opened.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    shrunk.save(DOCS / name, optimize=True)


def _film(page: Page, service: str, radiograph: str = "cxr00003") -> bytes:
    """Make a radiograph of the demo a film of 12 bits in 16, with a bright marker."""
    address = f"{service}/v1/collections/radiographs/images/{radiograph}/content"
    with Image.open(io.BytesIO(page.request.get(address).body())) as image:
        grey = np.asarray(image.convert("L").resize((1024, 1024), Image.Resampling.BICUBIC)).astype(float)
    noise = np.random.default_rng(0).normal(0, 25, grey.shape)
    deep = np.clip(grey * 12 + 200 + noise, 0, 4095).astype(np.uint16)
    deep[20:60, 20:60] = 65_535
    content = io.BytesIO()
    Image.fromarray(deep).save(content, "PNG")
    return content.getvalue()


def _room(page: Page, service: str, bearer: dict[str, str]) -> None:
    """Show films of two patients in the reading room; they are removed again."""
    images = f"{service}/v1/collections/radiographs/images"
    try:
        for number, (radiograph, patient, day) in enumerate(_ROOM):
            metadata = {
                "patient": patient, "date": day, "modality": "DX", "view": "PA", "orientation": "L\\F",
                "age": 62, "sex": "F",
            }  # fmt: skip
            film: FilePayload = {
                "name": "film.png",
                "mimeType": "image/png",
                "buffer": _film(page, service, radiograph),
            }
            record = json.dumps({"texts": ["A film of 12 bits."], "metadata": metadata})
            put = page.request.put(
                f"{images}/film-{number}", headers=bearer, multipart={"image": film, "record": record}
            )
            assert put.ok, put.text()
        page.goto(f"{service}/room#layout=2&film=radiographs%2Ffilm-1&film=radiographs%2Ffilm-2")
        page.locator(".viewport[data-state=ready]").nth(1).wait_for()
        page.get_by_role("searchbox").fill("large left effusion")
        page.get_by_role("searchbox").press("Enter")
        page.locator(".hit-score").first.wait_for()
        # Colours of patients in addition to many greys.
        _keep(page, "room.png", 2 * _COLOURS)
    finally:
        for number in range(len(_ROOM)):
            page.request.delete(f"{images}/film-{number}", headers=bearer)


def main(service: str, key: str) -> None:
    """Write page.png, panel.png, film.png and room.png; the films are removed again.

    Args:
        service: Address of the service.
        key: Key of a curator of its radiographs.
    """
    bearer = {"Authorization": f"Bearer {key}"}
    film = f"{service}/v1/collections/radiographs/images/{_FILM}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])

        def opened(width: int, height: int, **settings: Any) -> Page:
            return browser.new_page(viewport={"width": width, "height": height}, **settings)

        page = opened(1280, 780)
        page.goto(f"{service}/{_SEARCH}&words=exact")
        _keep(page, "page.png")
        panel = opened(420, 780, color_scheme="dark")
        panel.goto(f"{service}/{_SEARCH}")
        _keep(panel, "panel.png")
        put = page.request.put(
            film,
            headers=bearer,
            multipart={
                "image": {"name": "film.png", "mimeType": "image/png", "buffer": _film(page, service)},
                "record": '{"texts": ["A film of 12 bits."]}',
            },
        )
        assert put.ok, put.text()
        try:
            page.goto(f"{service}/#collection=radiographs&image={_FILM}")
            page.get_by_role("button", name="Grey levels").click()
            _keep(page, "film.png")
        finally:
            page.request.delete(film, headers=bearer)
        _room(opened(1440, 840), service, bearer)
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take the pictures of docs/ from a running demo.")
    parser.add_argument("service", help="address of the service")
    parser.add_argument("key", help="key of a curator of its radiographs")
    given = parser.parse_args()
    main(given.service.rstrip("/"), given.key)
