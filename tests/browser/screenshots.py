"""Takes the pictures of docs/ from a running `recoquest demo`.

recoquest keys create pictures --role curator --home .demo/600-images/home
make screenshots ARGS="http://localhost:8000 KEY"
"""

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import find_chromium

DOCS = Path(__file__).resolve().parents[2] / "docs"
_COLOURS = 64
_SEARCH = "#collection=radiographs&q=large+left+effusion"
_FILM = "film of the documentation"


def _shrunk(picture: bytes) -> Image.Image:
    """Of fewer colours: pictures in a repository stay in its history."""
    with Image.open(io.BytesIO(picture)) as opened:
        return opened.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)


def _keep(page: Page, name: str) -> None:
    page.mouse.move(2, 2)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    _shrunk(page.screenshot()).save(DOCS / name, optimize=True)


def _film(page: Page, service: str) -> bytes:
    """Make a radiograph of the demo a film of 12 bits in 16, with a bright marker."""
    address = f"{service}/v1/collections/radiographs/images/cxr00003/content"
    with Image.open(io.BytesIO(page.request.get(address).body())) as image:
        grey = np.asarray(image.convert("L").resize((1024, 1024), Image.Resampling.BICUBIC)).astype(float)
    noise = np.random.default_rng(0).normal(0, 25, grey.shape)
    deep = np.clip(grey * 12 + 200 + noise, 0, 4095).astype(np.uint16)
    deep[20:60, 20:60] = 65_535
    content = io.BytesIO()
    Image.fromarray(deep).save(content, "PNG")
    return content.getvalue()


def main(service: str, key: str) -> None:
    """Write page.png, panel.png and film.png; the film is removed again.

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
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take the pictures of docs/ from a running demo.")
    parser.add_argument("service", help="address of the service")
    parser.add_argument("key", help="key of a curator of its radiographs")
    given = parser.parse_args()
    main(given.service.rstrip("/"), given.key)
