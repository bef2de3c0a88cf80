"""OHIF on a real archive, with the panel of similar cases beside it."""

import io
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from PIL import Image
from pydantic import SecretStr
from pydicom.dataset import Dataset

from app.application import create_app
from app.engine import open_engine
from app.settings import Settings
from app.viewer.installation import ViewerPackageError, install_viewer
from index.feedback.judgements import count_feedback
from index.ingest import ingest_manifest
from tests.access import ADMIN_KEY
from tests.app.conftest import make_bundle
from tests.browser.conftest import launched
from tests.browser.search_page import expect
from tests.browser.service import running
from tests.dicom_films import BITS, make_film
from tests.needed import needed, needed_module
from tests.orthanc import OrthancServer
from training.data.manifest import Record, read_manifest, write_manifest
from training.models.encoder import load_encoder

TooLate = needed_module("playwright.sync_api", "`pip install playwright`").TimeoutError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FILMS: Final = "films"
# Film, study, patient and view; the first patient has a prior.
SHOWN: Final = ((1, 1, 1, "PA"), (2, 1, 1, "LL"), (3, 2, 1, "PA"), (4, 3, 3, "PA"), (5, 4, 4, "PA"))
PACKAGE: Final = "RECOQUEST_TEST_OHIF"
_FIRST_MS: Final = 90_000
# Software that draws what viewers draw by WebGL.
_ARGUMENTS: Final = [
    "--no-sandbox",
    "--enable-unsafe-swiftshader",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--disable-background-networking",
]


@dataclass(frozen=True)
class Reading:
    """A service with the viewer, and its archive."""

    address: str
    settings: Settings
    films: dict[int, Dataset]

    def link(self, film: int) -> str:
        """Address of the page with a film's study open."""
        shown = self.films[film]
        return (
            f"{self.address}/reading#study={shown.StudyInstanceUID}&series={shown.SeriesInstanceUID}"
            f"&image={shown.SOPInstanceUID}"
        )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with OHIF, whose package a variable names or the registry gives."""
    home = tmp_path_factory.mktemp("reading") / "home"
    home.mkdir()
    named = os.environ.get(PACKAGE)
    try:
        installed = install_viewer(home, None if named is None else Path(named))
    except ViewerPackageError:
        installed = None
    needed(installed, "OHIF's package", f"a registry of npm, or {PACKAGE} with the file")
    return home


@pytest.fixture(scope="module")
def reading(home: Path, orthanc_server: OrthancServer) -> Iterator[Reading]:
    films = {
        film: make_film(film, study=study, patient=patient, view=view, rows=256, columns=224)
        for film, study, patient, view in SHOWN
    }
    orthanc_server.store(films.values())
    settings = Settings(
        home=home,
        threads=1,
        device="cpu",
        admin_key=SecretStr(ADMIN_KEY),
        pacs_url=orthanc_server.dicom_web,
        dicomweb=True,
    )
    _index(settings, films)
    with running(create_app(settings)) as address:
        yield Reading(address, settings, films)
    orthanc_server.clear()


def _index(settings: Settings, films: dict[int, Dataset]) -> None:
    data = settings.home.parent / "data"
    (data / "images").mkdir(parents=True)
    records = []
    for film, study, patient, view in SHOWN:
        known = films[film]
        name = f"images/{film}.png"
        Image.fromarray((known.pixel_array >> (BITS - 8)).astype(np.uint8)).save(data / name)
        hashed = f"c0ffee{patient:010}"
        records.append(
            Record(
                id=known.SOPInstanceUID,
                image=name,
                split="test",
                group=hashed,
                texts=(f"Small effusion number {film}.",),
                report=f"FINDINGS: Small effusion number {film}.",
                metadata={
                    "study": known.StudyInstanceUID,
                    "series": known.SeriesInstanceUID,
                    "sop": known.SOPInstanceUID,
                    "patient": hashed,
                    "modality": "DX",
                    "view": view,
                    "age": 30 + patient,
                    "sex": "F",
                    "date": f"2024-01-{10 + study}",
                },
            )
        )
    write_manifest(data, records)
    engine = open_engine(settings)
    bundle = make_bundle(settings.home.parent / "bundle", seed=0)
    ingest_manifest(engine, FILMS, load_encoder(bundle, "cpu"), read_manifest(data))
    engine.close()


@pytest.fixture(scope="module")
def drawing(playwright: "Playwright") -> "Iterator[Browser]":
    with launched(playwright, _ARGUMENTS) as browser:
        yield browser


@pytest.fixture
def window(drawing: "Browser", reading: Reading) -> "Iterator[BrowserContext]":
    """A window in which somebody has signed in."""
    context = drawing.new_context(viewport={"width": 1500, "height": 900})
    context.set_default_timeout(_FIRST_MS)
    yield context
    context.close()


def _open(window: "BrowserContext", reading: Reading, film: int) -> "Page":
    page = window.new_page()
    page.goto(reading.link(film))
    page.get_by_label("Key").fill(ADMIN_KEY)
    page.get_by_role("button", name="Sign in", exact=True).click()
    identity = page.get_by_role("status", name="Open patient")
    # The first start reads and compiles some 20 MB of scripts.
    expect(identity).to_contain_text(str(reading.films[film].PatientID), timeout=_FIRST_MS)
    return page


def _drawn(page: "Page") -> list[np.ndarray]:
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


def _until_drawn(page: "Page", count: int) -> list[np.ndarray]:
    """The pixels of so many viewports, once all show something."""
    deadline = time.monotonic() + _FIRST_MS / 1000
    while True:
        drawn = _drawn(page)
        if len(drawn) == count and all(picture.std() > 5 for picture in drawn):
            return drawn
        assert time.monotonic() < deadline, [picture.std() for picture in drawn]
        page.wait_for_timeout(300)


def _wait_for_likeness(page: "Page", film: Dataset) -> None:
    deadline = time.monotonic() + _FIRST_MS / 1000
    while max(_likeness(drawn, film) for drawn in _until_drawn(page, 1)) < 0.95:
        assert time.monotonic() < deadline
        page.wait_for_timeout(300)


def _likeness(drawn: np.ndarray, film: Dataset) -> float:
    """Correlation of a film with what was drawn: the whole film, in the middle of its viewport."""
    height, width = drawn.shape
    scale = min(height / film.Rows, width / film.Columns)
    rows, columns = round(film.Rows * scale), round(film.Columns * scale)
    top, left = (height - rows) // 2, (width - columns) // 2
    shown = drawn[top : top + rows, left : left + columns]
    expected = Image.fromarray((film.pixel_array >> (BITS - 8)).astype(np.uint8))
    resized = np.asarray(expected.resize((shown.shape[1], shown.shape[0])), dtype=np.float64)
    return float(np.corrcoef(shown.ravel(), resized.ravel())[0, 1])


def test_the_panel_follows_the_active_image(window: "BrowserContext", reading: Reading) -> None:
    page = _open(window, reading, 1)
    cases = page.get_by_role("list", name="Similar cases")
    expect(cases.get_by_role("listitem")).to_have_count(2)
    assert {case.get_attribute("data-id") for case in cases.get_by_role("listitem").all()} == {
        reading.films[4].SOPInstanceUID, reading.films[5].SOPInstanceUID
    }  # fmt: skip
    expect(cases).to_contain_text("Small effusion number 5.")
    expect(cases.locator("img").first).not_to_have_js_property("naturalWidth", 0)
    (drawn,) = _until_drawn(page, 1)
    assert _likeness(drawn, reading.films[1]) > 0.95
    # The lateral film of the same study, by its thumbnail in OHIF.
    with page.expect_response(re.compile(rf"instances/{reading.films[2].SOPInstanceUID}/similar")):
        page.frame_locator("iframe").get_by_text("LL").first.dblclick()
    _wait_for_likeness(page, reading.films[2])


def test_priors_open_beside_and_the_name_stays_one(window: "BrowserContext", reading: Reading) -> None:
    page = _open(window, reading, 1)
    page.get_by_label("Studies of the same patient").check()
    prior = (
        page.get_by_role("list", name="Similar cases").get_by_role("listitem").filter(has_text="Same patient")
    )
    expect(prior).to_have_count(1)
    expect(prior).to_contain_text("1 day after")
    prior.get_by_role("button", name="Open beside").click()
    beside = _until_drawn(page, 2)
    shown = [reading.films[1], reading.films[3]]
    likeness = np.array([[_likeness(drawn, film) for film in shown] for drawn in beside[:2]])
    assert max(likeness[0, 0] + likeness[1, 1], likeness[0, 1] + likeness[1, 0]) > 1.9
    identity = page.get_by_role("status", name="Open patient")
    expect(identity).to_contain_text(str(reading.films[1].PatientName))
    expect(identity).not_to_contain_text("several patients")
    expect(page.frame_locator("iframe").get_by_text("Multiple Patients")).to_have_count(0)


def test_another_patient_opens_in_a_tab_of_its_own(window: "BrowserContext", reading: Reading) -> None:
    page = _open(window, reading, 1)
    other = reading.films[4]
    case = page.locator(f'[data-id="{other.SOPInstanceUID}"]')
    expect(case).to_contain_text("Another patient")
    expect(case.get_by_role("button", name="Open beside")).to_have_count(0)
    with window.expect_page() as opened:
        case.get_by_role("link", name="Open in a tab of its own").click()
    tab = opened.value
    identity = tab.get_by_role("status", name="Open patient")
    expect(identity).to_contain_text(f"{other.PatientName} ({other.PatientID})", timeout=_FIRST_MS)
    (drawn,) = _until_drawn(tab, 1)
    assert _likeness(drawn, other) > 0.95
    assert "of several patients" not in identity.inner_text()
    assert str(other.PatientID) not in page.locator(".identity").inner_text()
    (drawn,) = _until_drawn(page, 1)
    assert _likeness(drawn, reading.films[1]) > 0.95


def test_cases_are_accepted_rejected_and_supplemented(window: "BrowserContext", reading: Reading) -> None:
    page = _open(window, reading, 1)
    case = page.locator(f'[data-id="{reading.films[4].SOPInstanceUID}"]')
    for name in ("Accept", "Reject"):
        with page.expect_response(lambda answer: answer.url.endswith("/feedback")) as kept:
            case.get_by_role("button", name=name).click()
        assert kept.value.ok
        assert kept.value.request.post_data_json == {
            "query": {"like": [{"id": reading.films[1].SOPInstanceUID}]},
            "hit": reading.films[4].SOPInstanceUID,
            "relevant": name == "Accept",
            "missed": False,
        }
        expect(case.get_by_role("button", name=name)).to_have_attribute("aria-pressed", "true")
    page.get_by_label("A similar case that is not in the list").fill(reading.films[3].SOPInstanceUID)
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".cases-said")).to_contain_text("is kept as a similar case")
    engine = open_engine(reading.settings)
    with engine.home.catalogue.read() as session:
        counts = count_feedback(session, FILMS)
    engine.close()
    assert (counts.relevant, counts.not_relevant) == (1, 1)
