"""The panel of similar cases when another film becomes active, next to a viewer that logs its messages."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Locator, Page, Request, Route
from pydantic import SecretStr

from app.application import create_app
from app.engine import open_engine
from app.settings import Settings
from index.ingest import ingest_manifest
from tests.access import ADMIN_KEY
from tests.browser.conftest import Watch, step
from tests.browser.german import strangers
from tests.browser.search_page import expect, held, until
from tests.browser.service import running, tiny_encoder
from tests.dicom_films import draw
from training.common.manifest import Record, read_manifest, write_manifest

pytestmark = pytest.mark.browser

FILMS: Final = "films"
SECOND: Final = "second"
FRAMES: Final = "frames"


@dataclass(frozen=True)
class Film:
    """A film of an archive, as the viewer and a collection know it."""

    number: int
    study: int
    patient: int
    frame: int | None = None

    @property
    def study_uid(self) -> str:
        return f"1.2.{self.study}"

    @property
    def sop(self) -> str:
        return f"1.2.{self.study}.1.{self.number}"

    @property
    def id(self) -> str:
        return self.sop if self.frame is None else f"{self.sop}.{self.frame}.dcm"

    @property
    def person(self) -> dict[str, str]:
        return {"name": f"NAME^{self.patient}", "id": f"P{self.patient}"}

    def active(self) -> dict[str, Any]:
        """Message of the viewer about it."""
        position = {"study": self.study_uid, "series": f"{self.study_uid}.1", "sop": self.sop}
        return {**position, "frame": self.frame, "patient": self.person, "date": "20240115"}


OPEN: Final = Film(1, study=1, patient=1)
LATERAL: Final = Film(2, study=1, patient=1)
PRIOR: Final = Film(3, study=2, patient=1)
OTHER: Final = Film(4, study=3, patient=2)
THIRD: Final = Film(5, study=4, patient=3)
# The only film of its collection, so that nothing is like it.
RUN: Final = tuple(Film(6, study=5, patient=4, frame=frame) for frame in (1, 2))
HELD: Final = {FILMS: (OPEN, LATERAL, PRIOR, OTHER, THIRD), SECOND: (OPEN, LATERAL, THIRD), FRAMES: RUN}

# Browsers show a frame in an isolated page only if the frame is also isolated.
_ISOLATED: Final = {
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TELL: Final = "(told) => parent.postMessage({ type: 'recoquest.active-image', ...told }, location.origin)"
# The former viewer speaks a last time before the address changes, and is heard after it.
_CHANGE: Final = """([hash, last]) => {
  const former = document.querySelector('iframe').contentWindow;
  const told = JSON.stringify({ type: 'recoquest.active-image', ...last });
  if (last !== null) former.eval(`parent.postMessage(${told}, location.origin)`);
  history.pushState(null, '', hash);
  window.dispatchEvent(new HashChangeEvent('hashchange'));
  const visible = (button) => button.checkVisibility();
  return {
    identity: document.querySelector('.identity').textContent,
    cases: document.querySelectorAll('.case').length,
    offered: [...document.querySelectorAll('.cases button')].filter(visible).length,
  };
}"""
_EMPTY: Final = {"identity": "", "cases": 0, "offered": 0}


class Panel:
    """The page of `/reading` with a viewer that shows nothing and tells what it is given."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.identity = page.locator(".identity")
        self.cases = page.locator(".case")
        self.said = page.locator(".cases-status")
        self.save = page.get_by_role("button", name="Save to archive")
        self.missing = page.get_by_label("A similar case that is not in the list")
        self.priors = page.get_by_label("Studies of the same patient")

    def begin(self) -> None:
        """Show the cases of the first film, by answers of the service."""
        self.page.unroute(SIMILAR)
        self.change(f"#study={OPEN.study_uid}")
        self.tell(OPEN)
        expect(self.identity).to_contain_text("NAME^1 (P1)")
        expect(self.case(OTHER)).to_be_visible()
        expect(self.save).to_be_visible()

    def tell(self, film: Film) -> None:
        """Make a film the active one of the viewer."""
        expect(self.page.frame_locator("iframe").locator("#viewer")).to_be_attached()
        frame = self.page.locator("iframe").element_handle().content_frame()
        assert frame is not None
        frame.evaluate(_TELL, {"image": film.active(), "patients": [film.person]})

    def change(self, hash: str, last: Film | None = None) -> Any:
        """Change the address, and return what the panel shows in that moment."""
        message = None if last is None else {"image": last.active(), "patients": [last.person]}
        return self.page.evaluate(_CHANGE, [hash, message])

    def case(self, film: Film) -> Locator:
        return self.page.locator(f'[data-id="{film.id}"]')

    def answer(self, path: str, status: int, body: dict[str, Any] | None = None) -> None:
        """Answer further requests instead of the service."""
        self.page.unroute(path)
        self.page.route(path, lambda route: _fulfil(route, status, body))

    def hold(self, path: str) -> list[Route]:
        """Let further requests wait."""
        self.page.unroute(path)
        return held(self.page, path)

    def wait_for(self, waiting: list[Route], count: int) -> None:
        until(self.page, lambda: len(waiting) >= count)

    def judge(self, film: Film) -> Request:
        """Accept a case, and give what was sent."""
        with self.page.expect_response(FEEDBACK) as kept:
            self.case(film).get_by_role("button", name="Accept").click()
        assert kept.value.ok
        expect(self.case(film).get_by_role("button", name="Accept")).to_have_attribute("aria-pressed", "true")
        return kept.value.request

    def has_only_a_problem(self, title: str) -> None:
        expect(self.said.get_by_role("alert")).to_contain_text(title)
        expect(self.cases).to_have_count(0)
        expect(self.page.locator(".cases").get_by_role("button")).to_have_count(0)


SIMILAR: Final = "**/similar?*"
RESULTS: Final = "**/results"
FEEDBACK: Final = "**/feedback"

OpenPanel = Callable[[Film], Panel]


def _fulfil(route: Route, status: int, body: dict[str, Any] | None = None) -> None:
    route.fulfill(status=status, json=body or {"title": f"Problem {status}", "detail": "Try again."})


def _body(request: Request) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(request.post_data or "")
    return body


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("changes")
    settings = Settings(
        home=folder / "home",
        threads=1,
        device="cpu",
        admin_key=SecretStr(ADMIN_KEY),
        # Nobody answers there: no test reaches it.
        pacs_url="http://127.0.0.1:9/dicom-web",
        pacs_write_back=("capture",),
    )
    engine = open_engine(settings)
    encoder = tiny_encoder(folder / "bundle")
    for collection, films in HELD.items():
        data = folder / collection
        data.mkdir()
        write_manifest(data, [_record(film, data) for film in films])
        ingest_manifest(engine, collection, encoder, read_manifest(data))
    engine.close()
    with running(create_app(settings)) as address:
        yield address


def _record(film: Film, data: Any) -> Record:
    pixels = (draw(film.number * 10 + (film.frame or 0)) >> 4).astype("uint8")
    Image.fromarray(pixels).save(data / f"{film.id}.png")
    metadata = {"study": film.study_uid, "series": f"{film.study_uid}.1", "sop": film.sop}
    metadata |= {"patient": f"c0ffee{film.patient:010}", "date": "2024-01-15"}
    return Record(
        id=film.id,
        image=f"{film.id}.png",
        split="test",
        group=metadata["patient"],
        texts=(f"film {film.number}",),
        metadata=metadata if film.frame is None else metadata | {"frame": film.frame},
    )


@pytest.fixture
def open_panel(context: BrowserContext, service: str, watch: Watch) -> OpenPanel:
    """Signs in, opens a film's study, and makes the film the active one."""
    watch.allow(service)
    # The browser's own line for an answer that a test gives.
    watch.allow("Failed to load resource")

    def open_page(film: Film) -> Panel:
        page = context.new_page()
        watch.follow(page)
        viewer = '<!doctype html><title>Viewer</title><link rel="icon" href="data:,"><p id="viewer"></p>'
        page.route(
            re.compile(r"/viewer\?"),
            lambda route: route.fulfill(body=viewer, content_type="text/html", headers=_ISOLATED),
        )
        page.goto(f"{service}/reading#study={film.study_uid}")
        if page.evaluate("navigator.languages[0]") == "de-DE":
            expect(page.get_by_role("heading", name="Anmelden")).to_be_visible()
            assert page.title() == "Befundung \u00b7 recoquest"
            assert strangers(page) == []
        page.get_by_role("textbox").fill(ADMIN_KEY)
        page.locator("form button").first.click()
        panel = Panel(page)
        panel.tell(film)
        return panel

    return open_page


@pytest.mark.slow
def test_another_study_or_film_takes_all_of_the_former_from_the_page_at_once(open_panel: OpenPanel) -> None:
    panel = open_panel(OPEN)
    panel.begin()
    for hash, message in (("#study=1.2.3.4", "No image is open"), ("#", "names no study")):
        step(f"nothing of the former stays where no image opens: {hash}")
        waiting = panel.hold(SIMILAR)
        assert panel.change(hash, last=OPEN) == _EMPTY
        panel.page.wait_for_timeout(500)
        assert waiting == []
        expect(panel.identity).to_be_empty()
        expect(panel.cases).to_have_count(0)
        expect(panel.save).to_be_hidden()
        expect(panel.said).to_contain_text(message)
        panel.begin()
    step("another study, for which the search fails")
    panel.answer(SIMILAR, 503)
    assert panel.change(f"#study={OTHER.study_uid}") == _EMPTY
    expect(panel.said).to_have_text("No image is open yet.")
    panel.tell(OTHER)
    expect(panel.identity).to_contain_text("NAME^2 (P2)")
    panel.has_only_a_problem("Problem 503")
    step("it is searched for again, and saved in its own study")
    panel.page.unroute(SIMILAR)
    panel.priors.check()
    expect(panel.case(THIRD)).to_be_visible()
    panel.answer(RESULTS, 200, {"objects": [{"form": "capture", "status": "stored", "reason": None}]})
    with panel.page.expect_request(RESULTS) as sent:
        panel.save.click()
    assert f"/studies/{OTHER.study_uid}/results" in sent.value.url
    assert _body(sent.value)["sop"] == OTHER.sop
    panel.begin()
    for film, status in ((LATERAL, 429), (PRIOR, 503)):
        step(f"film {film.number} is searched for, and answered {status}")
        panel.missing.fill("9.9")
        waiting = panel.hold(SIMILAR)
        panel.tell(film)
        expect(panel.said).to_have_text("Searching\u2026")
        expect(panel.cases).to_have_count(0)
        expect(panel.page.locator(".cases").get_by_role("button")).to_have_count(0)
        panel.wait_for(waiting, 1)
        _fulfil(waiting[0], status)
        panel.has_only_a_problem(f"Problem {status}")
        panel.page.unroute(SIMILAR)
        panel.priors.click()
        # Words typed for the former film are not added to this one.
        expect(panel.missing).to_have_value("")
        panel.begin()
    step("the list goes while the same film is searched for again")
    panel.answer(SIMILAR, 503)
    panel.priors.click()
    panel.has_only_a_problem("Problem 503")
    expect(panel.identity).to_contain_text("NAME^1 (P1)")
    step("a late answer for the former film is dropped")
    waiting = panel.hold(SIMILAR)
    panel.tell(LATERAL)
    panel.wait_for(waiting, 1)
    panel.tell(OTHER)
    waiting[0].continue_()
    panel.wait_for(waiting, 2)
    expect(panel.cases).to_have_count(0)
    assert OTHER.sop in waiting[1].request.url
    waiting[1].continue_()
    expect(panel.case(OPEN)).to_have_count(1)
    expect(panel.case(OTHER)).to_have_count(0)


def test_late_outcomes_and_verdicts_are_not_told_of_another_film_or_collection(open_panel: OpenPanel) -> None:
    panel = open_panel(OPEN)
    panel.begin()
    for status in (200, 503):
        step(f"a save that is answered {status}")
        waiting = panel.hold(RESULTS)
        panel.save.click()
        panel.wait_for(waiting, 1)
        assert f"/studies/{OPEN.study_uid}/results" in waiting[0].request.url
        assert _body(waiting[0].request)["sop"] == OPEN.sop
        panel.tell(OTHER)
        expect(panel.case(THIRD)).to_be_visible()
        expect(panel.save).to_be_enabled()
        with panel.page.expect_response(RESULTS):
            _fulfil(waiting[0], status, {"objects": []} if status == 200 else None)
        panel.page.wait_for_timeout(100)
        expect(panel.said).to_be_empty()
        panel.begin()
    step("a verdict that fails")
    waiting = panel.hold(FEEDBACK)
    panel.case(OTHER).get_by_role("button", name="Accept").click()
    panel.wait_for(waiting, 1)
    with panel.page.expect_response(SIMILAR):
        panel.tell(LATERAL)
    expect(panel.case(THIRD)).to_be_visible()
    with panel.page.expect_response(FEEDBACK):
        _fulfil(waiting[0], 503)
    panel.page.wait_for_timeout(100)
    expect(panel.said).to_be_empty()
    panel.page.unroute(FEEDBACK)
    panel.begin()
    step("a verdict is not shown in another collection, and is given again there")
    panel.judge(THIRD)
    panel.page.get_by_label("Collection").select_option(SECOND)
    expect(panel.case(OTHER)).to_have_count(0)
    accept = panel.case(THIRD).get_by_role("button", name="Accept")
    expect(accept).to_have_attribute("aria-pressed", "false")
    sent = panel.judge(THIRD)
    assert f"/collections/{SECOND}/feedback" in sent.url
    assert _body(sent)["relevant"] is True
    step("a film that the chosen collection lacks is searched for in another")
    panel.tell(OTHER)
    expect(panel.case(OPEN)).to_be_visible()
    step("a missing case of a frame is added where nothing was found")
    panel.change(f"#study={RUN[1].study_uid}")
    panel.tell(RUN[1])
    expect(panel.said).to_have_text("frames has no other study.")
    panel.missing.fill(RUN[0].id)
    with panel.page.expect_response(FEEDBACK) as kept:
        panel.page.get_by_role("button", name="Add").click()
    assert kept.value.ok
    assert _body(kept.value.request)["query"] == {"like": [{"id": RUN[1].id}]}
    expect(panel.said).to_contain_text("is kept as a similar case")


@pytest.mark.parametrize(
    ("language", "note", "priors", "day"),
    [
        ("en-GB", "Not a medical device. Not for diagnosis.", "Studies of the same patient", "2024-01-15"),
        (
            "de-DE",
            "Kein Medizinprodukt. Nicht für die Diagnose.",
            "Voraufnahmen desselben Patienten",
            "15.01.2024",
        ),
    ],
    ids=["en", "de"],
)
def test_the_panel_speaks_the_readers_language_and_says_that_it_is_no_medical_device(
    context: BrowserContext, open_panel: OpenPanel, language: str, note: str, priors: str, day: str
) -> None:
    context.add_init_script(f"Object.defineProperty(navigator, 'languages', {{ value: ['{language}'] }})")
    panel = open_panel(OPEN)
    expect(panel.page.locator(".cases").get_by_role("note")).to_have_text(note)
    expect(panel.page.get_by_text(note)).to_be_visible()
    panel.page.get_by_label(priors).check()
    expect(panel.case(PRIOR)).to_contain_text(day)
