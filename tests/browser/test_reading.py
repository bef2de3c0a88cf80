"""OHIF on a real archive: from its films to similar cases next to them and judgements, by real processes."""

import io
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Locator, Page, Playwright
from playwright.sync_api import TimeoutError as TooLate
from pydicom.dataset import Dataset

from app.radiology.viewer import ViewerPackageError, install_viewer
from tests.app.conftest import make_bundle
from tests.app.radiology.test_reports import make_report
from tests.browser.conftest import launched, step
from tests.browser.german import GERMAN, strangers
from tests.browser.search_page import expect, until
from tests.dicom_films import BITS, MARKER, make_film, uid
from tests.e2e.work import COMMAND, Work, service
from tests.needed import needed
from tests.orthanc import OrthancServer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FILMS: Final = "films"
PACKAGE: Final = "RECOQUEST_TEST_OHIF"
SHOTS: Final = "RECOQUEST_TEST_SHOTS"
FIRST_MS: Final = 90_000
# Software that draws what viewers draw by WebGL.
ARGUMENTS: Final = [
    *("--no-sandbox", "--enable-unsafe-swiftshader", "--use-gl=angle", "--use-angle=swiftshader"),
    "--disable-background-networking",
]


def _film(number: int, study: int, patient: int, view: str = "PA", **more: Any) -> Dataset:
    more = {"rows": 256, "columns": 224, "StudyDate": f"202401{10 + study}", **more}
    return make_film(number, study=study, patient=patient, view=view, **more)


# The first patient has a prior, and shares the id with somebody of another hospital.
OPEN: Final = _film(1, 1, 1)
LATERAL: Final = _film(2, 1, 1, "LL")
PRIOR: Final = _film(3, 2, 1)
OTHER: Final = _film(4, 3, 3)
LEAVING: Final = _film(5, 4, 4)
NAMESAKE: Final = _film(6, 5, 1, PatientName=f"{MARKER}^SOMEBODY ELSE")
COMING: Final = _film(7, 6, 6)
REPORTS: Final = {
    **{study: f"Small effusion of case {study}." for study in (1, 3, 6)},
    4: "Small effusion of case 4, unchanged.",
}


@dataclass(frozen=True)
class Hospital:
    """An archive, and the folder in which the commands are run."""

    archive: OrthancServer
    folder: Path

    @property
    def settings(self) -> dict[str, str]:
        pacs = {"PACS_URL": self.archive.dicom_web, "PACS_SYNC": f"{FILMS} --modality DX"}
        pacs["PACS_WRITE_BACK"] = "capture,report,selection"
        return {"HOME": str(self.folder / "home"), "DEVICE": "cpu", "THREADS": "1", **pacs}

    def run(self, *words: str) -> str:
        """Run a command of recoquest to its end, and return what it printed."""
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, **self._process)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    @contextmanager
    def worker(self) -> Iterator[None]:
        with (self.folder / "worker.log").open("wb") as log:
            process = subprocess.Popen([*COMMAND, "worker"], stdout=log, stderr=log, **self._process)
            try:
                yield
            finally:
                process.kill()
                process.wait()

    @property
    def _process(self) -> dict[str, Any]:
        variables = {f"RECOQUEST_{name}": value for name, value in self.settings.items()}
        return {"cwd": self.folder, "env": {**os.environ, "OMP_NUM_THREADS": "1", **variables}}


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


def open_study(window: BrowserContext, address: str, film: Dataset, key: str | None = None) -> Page:
    """Open a film's study in a new page, sign in if a key is given, and wait for the film's patient."""
    page = window.new_page()
    page.goto(link(address, film))
    if key is not None:
        page.get_by_label("Key").fill(key)
        page.get_by_role("button", name="Sign in", exact=True).click()
    identity = page.get_by_role("status", name="Open patient")
    # The first start reads and compiles some 20 MB of scripts.
    expect(identity).to_contain_text(str(film.PatientID), timeout=FIRST_MS)
    return page


def drawn_in(page: Page) -> list[np.ndarray]:
    """The pixels of each viewport, as they are on the screen."""
    frame = page.frame_locator("iframe")
    canvases = frame.locator("canvas.cornerstone-canvas")
    pictures = []
    try:
        for position in range(canvases.count()):
            picture = Image.open(io.BytesIO(canvases.nth(position).screenshot(timeout=5_000)))
            pictures.append(np.asarray(picture.convert("L"), dtype=np.float64))
    except TooLate:
        # The viewer lays its viewports out again.
        return []
    return pictures


def until_drawn(page: Page, count: int) -> list[np.ndarray]:
    """The pixels of so many viewports, once all show something."""
    deadline = time.monotonic() + FIRST_MS / 1000
    while True:
        drawn = drawn_in(page)
        if len(drawn) == count and all(picture.std() > 5 for picture in drawn):
            return drawn
        assert time.monotonic() < deadline, [picture.std() for picture in drawn]
        page.wait_for_timeout(300)


def wait_for_likeness(page: Page, film: Dataset) -> None:
    """Wait until the only viewport shows a film."""
    until(page, lambda: likeness(until_drawn(page, 1)[0], film) >= 0.95, FIRST_MS / 1000)


def wait_for_both(page: Page, first: Dataset, second: Dataset) -> None:
    """Wait until two viewports show two films, one each."""

    def both() -> bool:
        one, other = until_drawn(page, 2)
        straight = likeness(one, first) + likeness(other, second)
        crossed = likeness(one, second) + likeness(other, first)
        return max(straight, crossed) > 1.9

    until(page, both, FIRST_MS / 1000)


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


def shot(page: Page, name: str) -> None:
    """Keep a picture of the page for people, in a folder that a variable names."""
    if folder := os.environ.get(SHOTS):
        page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture
def hospital(orthanc: OrthancServer, tmp_path: Path) -> Hospital:
    orthanc.store([OPEN, LATERAL, PRIOR, OTHER, LEAVING, NAMESAKE])
    orthanc.store([make_report(1, OPEN, REPORTS[1]), make_report(3, OTHER, REPORTS[3])])
    (tmp_path / "home").mkdir()
    install_ohif(tmp_path / "home")
    return Hospital(orthanc, tmp_path)


@pytest.fixture
def window(playwright: Playwright) -> Iterator[BrowserContext]:
    with launched(playwright, ARGUMENTS) as browser:
        context = browser.new_context(viewport={"width": 1500, "height": 900})
        context.set_default_timeout(FIRST_MS)
        yield context
        context.close()


def test_films_of_an_archive_are_read_beside_similar_ones(hospital: Hospital, window: BrowserContext) -> None:
    bundle = make_bundle(hospital.folder / "bundle", seed=0)
    synced = hospital.run("pacs", "sync", FILMS, "--bundle", str(bundle), "--modality", "DX")
    assert "8 instances found = 8 taken" in synced
    assert "Reports: 2 taken" in synced
    report = hospital.folder / f"{uid('study', 4)}.txt"
    report.write_text(f"FINDINGS: {REPORTS[4]}")
    assert "1 matched" in hospital.run("reports", FILMS, str(report))
    key = hospital.run("keys", "create", "reader", "--role", "judge", "--role", "curator").strip()
    serving = service(Work(hospital.folder), **hospital.settings, dicomweb=True, open_reading=False)
    with serving as (client, _), hospital.worker():
        address = str(client.base_url).rstrip("/")
        page = open_study(window, address, OPEN, key)
        _the_panel_follows_the_active_image(open_study(window, address, OPEN))
        _the_page_is_german_in_a_german_browser(window, address, key)
        step("similar cases are listed")
        expect(_cases(page).get_by_role("listitem")).to_have_count(2)
        expect(_case(page, OTHER)).to_contain_text(REPORTS[3])
        expect(_case(page, LEAVING)).to_contain_text(REPORTS[4])
        for film, compared in ((OTHER, []), (LEAVING, ["earlier examination"])):
            expect(_case(page, film).locator(".prior-mark")).to_have_text(compared)
            expect(_case(page, film)).to_contain_text("Another patient")
            expect(_case(page, film).get_by_role("button", name="Open side by side")).to_have_count(0)
            expect(_case(page, film).locator("img")).not_to_have_js_property("naturalWidth", 0)
        assert MARKER not in _cases(page).inner_text()
        (drawn,) = until_drawn(page, 1)
        assert likeness(drawn, OPEN) > 0.95
        shot(page, "panel")
        step("another patient opens in a tab")
        with window.expect_page() as opened:
            _case(page, OTHER).get_by_role("link", name="Open in a new tab").click()
        tab = opened.value
        expect(_identity(tab)).to_contain_text(f"{OTHER.PatientName} ({OTHER.PatientID})", timeout=FIRST_MS)
        (drawn,) = until_drawn(tab, 1)
        assert likeness(drawn, OTHER) > 0.95
        expect(_identity(page)).to_contain_text(f"{OPEN.PatientName} ({OPEN.PatientID})")
        for shown in (tab, page):
            expect(_identity(shown)).not_to_contain_text("several patients")
        tab.close()
        step("judgements are kept")
        for film, name in ((OTHER, "Accept"), (LEAVING, "Reject")):
            verdict = _case(page, film).get_by_role("button", name=name)
            with page.expect_response(re.compile("/feedback$")) as kept:
                verdict.click()
            assert kept.value.ok
            assert kept.value.request.post_data_json == {
                "query": {"like": [{"id": OPEN.SOPInstanceUID}]},
                "hit": film.SOPInstanceUID,
                "relevant": name == "Accept",
                "missed": False,
            }
            expect(verdict).to_have_attribute("aria-pressed", "true")
        page.get_by_label("A similar case that is not in the list").fill(PRIOR.SOPInstanceUID)
        page.get_by_role("button", name="Add").click()
        expect(page.locator(".cases-status")).to_contain_text("is kept as a similar case")
        lines = hospital.run("feedback", "export", FILMS, "-").splitlines()
        assert [(one["query"], one["image"], one["verdict"]) for one in map(json.loads, lines)] == [
            ({"images": [OPEN.SOPInstanceUID]}, film.SOPInstanceUID, message)
            for film, message in ((OTHER, "accepted"), (LEAVING, "rejected"), (PRIOR, "supplemented"))
        ]
        step("a prior opens next to the current study")
        page.get_by_label("Studies of the same patient").check()
        expect(_case(page, PRIOR)).to_contain_text("1 day after")
        # The verdicts stay, and dates that the import has shifted are not told.
        accept = _case(page, OTHER).get_by_role("button", name="Accept")
        expect(accept).to_have_attribute("aria-pressed", "true")
        assert re.search(r"\b20\d\d\b", _cases(page).inner_text()) is None
        _case(page, PRIOR).get_by_role("button", name="Open side by side").click()
        wait_for_both(page, OPEN, PRIOR)
        expect(_identity(page)).to_contain_text(str(OPEN.PatientName))
        expect(_identity(page)).not_to_contain_text("several patients")
        expect(page.frame_locator("iframe").get_by_text("Multiple Patients")).to_have_count(0)
        shot(page, "beside")
        step("a namesake is distinguished")
        # Collections know patients by hashes of their ids; the names on the screen tell them apart.
        _case(page, NAMESAKE).get_by_role("button", name="Open side by side").click()
        wait_for_both(page, OPEN, NAMESAKE)
        alert = _identity(page).get_by_role("alert")
        for film in (OPEN, NAMESAKE):
            expect(alert).to_contain_text(str(film.PatientName))
        shot(page, "namesake")
        hospital.archive.store([COMING, make_report(6, COMING, REPORTS[6])])
        hospital.archive.delete(uid("study", 4))
        _is_indexed_now(open_study(window, address, COMING))
        assert "Removed: 1." in hospital.run("pacs", "sync", FILMS, "--modality", "DX")
        page.reload()
        expect(_case(page, COMING)).to_contain_text(REPORTS[6])
        expect(_case(page, LEAVING)).to_have_count(0)
        expect(_cases(page).get_by_role("listitem")).to_have_count(2)
        shot(page, "followed")
        step("an accepted case is saved in the archive, twice, where its two objects are once")
        before = hospital.archive.instances()
        _case(page, COMING).get_by_role("button", name="Accept").click()
        for _ in range(2):
            with page.expect_response(re.compile("/results$")) as kept:
                page.get_by_role("button", name="Save to archive").click()
            assert kept.value.ok
            assert json.loads(kept.value.request.post_data or "")["hits"] == [COMING.SOPInstanceUID]
            expect(page.locator(".cases-status")).to_have_text("One case is saved in the study.")
        made = hospital.archive.instances() - before
        assert made == {one["sop"] for one in kept.value.json()["objects"]}
        assert len(made) == 2


def _cases(page: Page) -> Locator:
    return page.get_by_role("list", name="Similar cases")


def _case(page: Page, film: Dataset) -> Locator:
    return page.locator(f'[data-id="{film.SOPInstanceUID}"]')


def _identity(page: Page) -> Locator:
    return page.get_by_role("status", name="Open patient")


def _the_panel_follows_the_active_image(page: Page) -> None:
    """To the lateral film, by its thumbnail in OHIF; to another study of the tab, and back."""
    until_drawn(page, 1)
    with page.expect_response(re.compile(rf"instances/{LATERAL.SOPInstanceUID}/similar")):
        page.frame_locator("iframe").get_by_text("LL").first.dblclick()
    wait_for_likeness(page, LATERAL)
    page.evaluate("hash => { location.hash = hash; }", f"#study={OTHER.StudyInstanceUID}")
    expect(_identity(page)).to_contain_text(f"{OTHER.PatientName} ({OTHER.PatientID})", timeout=FIRST_MS)
    expect(_case(page, OTHER)).to_have_count(0)
    wait_for_likeness(page, OTHER)
    # A study that the archive does not have.
    page.evaluate("location.hash = '#study=1.2.3.4'")
    expect(page.locator(".cases-status")).to_have_text("No image is open yet.")
    expect(_identity(page)).to_be_empty()
    # Back from there, the film, its name and its cases are of one study again.
    page.go_back()
    expect(_identity(page)).to_contain_text(f"{OTHER.PatientName} ({OTHER.PatientID})", timeout=FIRST_MS)
    expect(page.locator(f'[data-study="{OPEN.StudyInstanceUID}"]')).to_be_visible()
    wait_for_likeness(page, OTHER)
    page.close()


def _the_page_is_german_in_a_german_browser(window: BrowserContext, address: str, key: str) -> None:
    assert window.browser is not None
    context = window.browser.new_context(viewport={"width": 1500, "height": 900}, **GERMAN)
    page = context.new_page()
    page.goto(link(address, OPEN))
    page.get_by_label("Schlüssel").fill(key)
    page.get_by_role("button", name="Anmelden", exact=True).click()
    identity = page.get_by_role("status", name="Geöffneter Patient")
    expect(identity).to_contain_text(f"({OPEN.PatientID})", timeout=FIRST_MS)
    cases = page.get_by_role("list", name="Ähnliche Fälle").get_by_role("listitem")
    expect(cases.first).to_contain_text("Anderer Patient")
    page.get_by_label("Voraufnahmen desselben Patienten").check()
    expect(cases.filter(has_text="Derselbe Patient").first).to_contain_text("danach")
    names = re.findall(r"[^\W\d_]+", f"{OPEN.PatientName} {OPEN.PatientID} {' '.join(REPORTS.values())}")
    assert strangers(page, (*names, FILMS, "dx", "pa", "ll", "f", "m")) == []
    context.close()


def _is_indexed_now(page: Page) -> None:
    expect(page.locator(".cases-status")).to_contain_text("not in a collection")
    shot(page, "not-indexed")
    page.get_by_role("button", name="Index now").click()
    # A job is a process that loads the encoder again.
    expect(_case(page, OPEN)).to_contain_text(REPORTS[1], timeout=FIRST_MS)
    expect(page.locator(".cases-status")).to_be_empty()
    (drawn,) = until_drawn(page, 1)
    assert likeness(drawn, COMING) > 0.95
    shot(page, "indexed-now")
    page.close()
