"""The page of the viewer in a browser: OHIF installed, opened, and what it has drawn."""

import io
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset

from app.radiology.viewer import ViewerPackageError, install_viewer
from tests.browser.search_page import expect
from tests.dicom_films import BITS
from tests.needed import needed, needed_module

TooLate = needed_module("playwright.sync_api", "`pip install playwright`").TimeoutError

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

PACKAGE: Final = "RECOQUEST_TEST_OHIF"
SHOTS: Final = "RECOQUEST_TEST_SHOTS"
FIRST_MS: Final = 90_000
# Software that draws what viewers draw by WebGL.
ARGUMENTS: Final = [
    "--no-sandbox",
    "--enable-unsafe-swiftshader",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--disable-background-networking",
]


def install_ohif(home: Path) -> None:
    """Bring OHIF into a home, whose package a variable names or the registry gives."""
    named = os.environ.get(PACKAGE)
    try:
        installed = install_viewer(home, None if named is None else Path(named))
    except ViewerPackageError:
        installed = None
    needed(installed, "OHIF's package", f"a registry of npm, or {PACKAGE} with the file")


def link(address: str, film: Dataset) -> str:
    """Return the address of the page with a film's study open."""
    return (
        f"{address}/reading#study={film.StudyInstanceUID}&series={film.SeriesInstanceUID}"
        f"&image={film.SOPInstanceUID}"
    )


def open_study(window: "BrowserContext", address: str, film: Dataset, key: str) -> "Page":
    """Open a film's study in a new page, sign in, and wait for the film's patient."""
    page = window.new_page()
    page.goto(link(address, film))
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Sign in", exact=True).click()
    return _shown(page, film)


def open_signed_in(window: "BrowserContext", address: str, film: Dataset) -> "Page":
    """Open a film's study in a new page of somebody who has signed in, and wait for the film's patient."""
    page = window.new_page()
    page.goto(link(address, film))
    return _shown(page, film)


def _shown(page: "Page", film: Dataset) -> "Page":
    identity = page.get_by_role("status", name="Open patient")
    # The first start reads and compiles some 20 MB of scripts.
    expect(identity).to_contain_text(str(film.PatientID), timeout=FIRST_MS)
    return page


def drawn_in(page: "Page") -> list[np.ndarray]:
    """The pixels of each viewport, as they are on the screen."""
    frame = page.frame_locator("iframe")
    canvases = frame.locator("canvas.cornerstone-canvas")
    pictures = []
    try:
        for place in range(canvases.count()):
            picture = Image.open(io.BytesIO(canvases.nth(place).screenshot(timeout=5_000)))
            pictures.append(np.asarray(picture.convert("L"), dtype=np.float64))
    except TooLate:
        # The viewer lays its viewports out anew.
        return []
    return pictures


def until_drawn(page: "Page", count: int) -> list[np.ndarray]:
    """The pixels of so many viewports, once all show something."""
    deadline = time.monotonic() + FIRST_MS / 1000
    while True:
        drawn = drawn_in(page)
        if len(drawn) == count and all(picture.std() > 5 for picture in drawn):
            return drawn
        assert time.monotonic() < deadline, [picture.std() for picture in drawn]
        page.wait_for_timeout(300)


def wait_for_likeness(page: "Page", film: Dataset) -> None:
    """Wait until the only viewport shows a film."""
    deadline = time.monotonic() + FIRST_MS / 1000
    while max(likeness(drawn, film) for drawn in until_drawn(page, 1)) < 0.95:
        assert time.monotonic() < deadline
        page.wait_for_timeout(300)


def wait_for_both(page: "Page", first: Dataset, second: Dataset) -> None:
    """Wait until two viewports show two films, one each."""
    deadline = time.monotonic() + FIRST_MS / 1000
    while True:
        one, other = until_drawn(page, 2)
        straight = likeness(one, first) + likeness(other, second)
        crossed = likeness(one, second) + likeness(other, first)
        if max(straight, crossed) > 1.9:
            return
        assert time.monotonic() < deadline, (straight, crossed)
        page.wait_for_timeout(300)


def likeness(drawn: np.ndarray, film: Dataset) -> float:
    """Correlation of a film with what was drawn: the whole film, in the middle of its viewport."""
    height, width = drawn.shape
    scale = min(height / film.Rows, width / film.Columns)
    rows, columns = round(film.Rows * scale), round(film.Columns * scale)
    top, left = (height - rows) // 2, (width - columns) // 2
    shown = drawn[top : top + rows, left : left + columns]
    expected = Image.fromarray((film.pixel_array >> (BITS - 8)).astype(np.uint8))
    resized = np.asarray(expected.resize((shown.shape[1], shown.shape[0])), dtype=np.float64)
    return float(np.corrcoef(shown.ravel(), resized.ravel())[0, 1])


def shot(page: "Page", name: str) -> None:
    """Keep a picture of the page for people, in a folder that a variable names."""
    if folder := os.environ.get(SHOTS):
        page.screenshot(path=Path(folder) / f"{name}.png")
