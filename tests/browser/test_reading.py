"""OHIF on a real archive, with the panel of similar cases beside it."""

import json
import re
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
from index.feedback import count_feedback
from index.ingest import ingest_manifest
from tests.access import ADMIN_KEY
from tests.app.conftest import make_bundle
from tests.browser.conftest import launched
from tests.browser.german import strangers
from tests.browser.reading import (
    ARGUMENTS,
    FIRST_MS,
    install_ohif,
    likeness,
    link,
    open_study,
    shot,
    until_drawn,
    wait_for_both,
    wait_for_likeness,
)
from tests.browser.search_page import expect
from tests.browser.service import running
from tests.dicom_films import BITS, make_film
from tests.orthanc import OrthancServer
from training.common.manifest import Record, read_manifest, write_manifest
from training.models.encoder import load_encoder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FILMS: Final = "films"
# Film, study, patient and view; the first patient has a prior.
SHOWN: Final = ((1, 1, 1, "PA"), (2, 1, 1, "LL"), (3, 2, 1, "PA"), (4, 3, 3, "PA"), (5, 4, 4, "PA"))


@dataclass(frozen=True)
class Reading:
    """A service with the viewer, and its archive."""

    address: str
    settings: Settings
    films: dict[int, Dataset]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with OHIF, whose package a variable names or the registry gives."""
    home = tmp_path_factory.mktemp("reading") / "home"
    home.mkdir()
    install_ohif(home)
    return home


def _made(film: int, study: int, patient: int, view: str) -> Dataset:
    return make_film(
        film,
        study=study,
        patient=patient,
        view=view,
        rows=256,
        columns=224,
        StudyDate=f"202401{10 + study}",
    )


@pytest.fixture(scope="module")
def reading(home: Path, orthanc_server: OrthancServer) -> Iterator[Reading]:
    films = {film: _made(film, study, patient, view) for film, study, patient, view in SHOWN}
    orthanc_server.store(films.values())
    settings = Settings(
        home=home,
        threads=1,
        device="cpu",
        admin_key=SecretStr(ADMIN_KEY),
        pacs_url=orthanc_server.dicom_web,
        dicomweb=True,
        pacs_write_back=("capture", "report", "selection"),
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
    with launched(playwright, ARGUMENTS) as browser:
        yield browser


@pytest.fixture
def window(drawing: "Browser", reading: Reading) -> "Iterator[BrowserContext]":
    """A window in which somebody has signed in."""
    context = drawing.new_context(viewport={"width": 1500, "height": 900})
    context.set_default_timeout(FIRST_MS)
    yield context
    context.close()


def _open(window: "BrowserContext", reading: Reading, film: int) -> "Page":
    return open_study(window, reading.address, reading.films[film], ADMIN_KEY)


def test_the_panel_follows_the_active_image(window: "BrowserContext", reading: Reading) -> None:
    page = _open(window, reading, 1)
    cases = page.get_by_role("list", name="Similar cases")
    expect(cases.get_by_role("listitem")).to_have_count(2)
    assert {case.get_attribute("data-id") for case in cases.get_by_role("listitem").all()} == {
        reading.films[4].SOPInstanceUID, reading.films[5].SOPInstanceUID
    }  # fmt: skip
    expect(cases).to_contain_text("Small effusion number 5.")
    expect(cases.locator("img").first).not_to_have_js_property("naturalWidth", 0)
    (drawn,) = until_drawn(page, 1)
    assert likeness(drawn, reading.films[1]) > 0.95
    # The lateral film of the same study, by its thumbnail in OHIF.
    with page.expect_response(re.compile(rf"instances/{reading.films[2].SOPInstanceUID}/similar")):
        page.frame_locator("iframe").get_by_text("LL").first.dblclick()
    wait_for_likeness(page, reading.films[2])


def test_the_page_is_german_in_a_german_browser(drawing: "Browser", reading: Reading) -> None:
    context = drawing.new_context(viewport={"width": 1500, "height": 900}, locale="de-DE")
    page = context.new_page()
    page.goto(link(reading.address, reading.films[1]))
    page.get_by_label("Schlüssel").fill(ADMIN_KEY)
    page.get_by_role("button", name="Anmelden", exact=True).click()
    shown = reading.films[1]
    identity = page.get_by_role("status", name="Geöffneter Patient")
    expect(identity).to_contain_text(f"({shown.PatientID})", timeout=FIRST_MS)
    cases = page.get_by_role("list", name="Ähnliche Fälle")
    expect(cases.get_by_role("listitem").first).to_contain_text("Anderer Patient")
    page.get_by_label("Voraufnahmen desselben Patienten").check()
    prior = cases.get_by_role("listitem").filter(has_text="Derselbe Patient")
    expect(prior).to_contain_text("12.01.2024")
    expect(prior).to_contain_text("1 Tag danach")
    names = re.findall(r"[^\W\d_]+", f"{shown.PatientName} {shown.PatientID}")
    assert strangers(page, (*names, "films", "dx", "pa", "ll", "f", "small", "effusion", "number")) == []
    context.close()


def test_priors_open_beside_and_the_name_stays_one(window: "BrowserContext", reading: Reading) -> None:
    page = _open(window, reading, 1)
    page.get_by_label("Studies of the same patient").check()
    prior = (
        page.get_by_role("list", name="Similar cases").get_by_role("listitem").filter(has_text="Same patient")
    )
    expect(prior).to_have_count(1)
    expect(prior).to_contain_text("1 day after")
    prior.get_by_role("button", name="Open beside").click()
    wait_for_both(page, reading.films[1], reading.films[3])
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
    expect(identity).to_contain_text(f"{other.PatientName} ({other.PatientID})", timeout=FIRST_MS)
    (drawn,) = until_drawn(tab, 1)
    assert likeness(drawn, other) > 0.95
    assert "of several patients" not in identity.inner_text()
    assert str(other.PatientID) not in page.locator(".identity").inner_text()
    (drawn,) = until_drawn(page, 1)
    assert likeness(drawn, reading.films[1]) > 0.95


def test_another_study_in_the_tab_brings_its_own_name_and_cases(
    window: "BrowserContext", reading: Reading
) -> None:
    page = _open(window, reading, 1)
    first, other = reading.films[1], reading.films[4]
    identity = page.get_by_role("status", name="Open patient")
    cases = page.get_by_role("list", name="Similar cases").get_by_role("listitem")
    save = page.get_by_role("button", name="Save to archive")
    expect(cases).to_have_count(2)
    expect(save).to_be_visible()
    page.route("**/similar?*", lambda route: route.fulfill(status=503, json={"title": "Busy"}))
    page.evaluate("hash => { location.hash = hash; }", f"#study={other.StudyInstanceUID}")
    expect(cases).to_have_count(0)
    expect(identity).not_to_contain_text(str(first.PatientID))
    expect(identity).to_contain_text(f"{other.PatientName} ({other.PatientID})")
    expect(page.locator(".cases-said").get_by_role("alert")).to_contain_text("Busy")
    wait_for_likeness(page, other)
    expect(cases).to_have_count(0)
    expect(save).to_be_hidden()
    shot(page, "panel-error")
    page.unroute("**/similar?*")
    # A study that the archive does not have.
    page.evaluate("location.hash = '#study=1.2.3.4'")
    expect(page.locator(".cases-said")).to_have_text("No image is open yet.")
    expect(identity).to_be_empty()
    # Back from there, the film, its name and its cases are of one study again.
    page.go_back()
    expect(identity).to_contain_text(f"{other.PatientName} ({other.PatientID})")
    expect(page.locator(f'[data-study="{first.StudyInstanceUID}"]')).to_be_visible()
    wait_for_likeness(page, other)
    with page.expect_response(lambda answer: answer.url.endswith("/results")) as kept:
        save.click()
    assert kept.value.ok
    assert f"/studies/{other.StudyInstanceUID}/results" in kept.value.url


def test_the_viewer_opened_by_itself_leads_to_one_study_in_the_page(
    window: "BrowserContext", reading: Reading
) -> None:
    page = _open(window, reading, 1)
    first, other = reading.films[1], reading.films[4]
    page.goto(f"{reading.address}/viewer?StudyInstanceUIDs={first.StudyInstanceUID},{other.StudyInstanceUID}")
    page.wait_for_url(f"{reading.address}/reading#study={first.StudyInstanceUID}")
    identity = page.get_by_role("status", name="Open patient")
    expect(identity).to_contain_text(f"({first.PatientID})", timeout=FIRST_MS)
    expect(identity).not_to_contain_text("several patients")
    assert other.StudyInstanceUID not in str(page.frames[1].url)


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


def test_accepted_cases_are_saved_in_the_archive(
    window: "BrowserContext", reading: Reading, orthanc_server: OrthancServer
) -> None:
    page = _open(window, reading, 1)
    before = orthanc_server.instances()
    accepted = reading.films[5].SOPInstanceUID
    page.locator(f'[data-id="{accepted}"]').get_by_role("button", name="Accept").click()
    save = page.get_by_role("button", name="Save to archive")
    for _ in range(2):
        with page.expect_response(lambda answer: answer.url.endswith("/results")) as kept:
            save.click()
        assert kept.value.ok
        assert json.loads(kept.value.request.post_data or "")["hits"] == [accepted]
        expect(page.locator(".cases-said")).to_have_text("One case is saved in the study.")
    # Saved twice, the two objects are there once.
    made = orthanc_server.instances() - before
    assert made == {one["sop"] for one in kept.value.json()["objects"]}
    assert len(made) == 2
