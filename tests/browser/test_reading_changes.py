"""The panel of similar cases when another film becomes active, beside a viewer that says what it is told."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from PIL import Image
from pydantic import SecretStr

from app.application import create_app
from app.engine import open_engine
from app.settings import Settings
from index.ingest import ingest_manifest
from tests.access import ADMIN_KEY
from tests.browser.conftest import Watch
from tests.browser.search_page import expect
from tests.browser.service import running, tiny_encoder
from tests.dicom_films import draw
from training.common.manifest import Record, read_manifest, write_manifest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, Request, Route

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
        return {
            "study": self.study_uid,
            "series": f"{self.study_uid}.1",
            "sop": self.sop,
            "frame": self.frame,
            "patient": self.person,
            "date": "20240115",
        }


OPEN: Final = Film(1, study=1, patient=1)
LATERAL: Final = Film(2, study=1, patient=1)
PRIOR: Final = Film(3, study=2, patient=1)
OTHER: Final = Film(4, study=3, patient=2)
THIRD: Final = Film(5, study=4, patient=3)
# The only film of its collection, so that nothing is like it.
RUN: Final = tuple(Film(6, study=5, patient=4, frame=frame) for frame in (1, 2))
HELD: Final = {FILMS: (OPEN, LATERAL, PRIOR, OTHER, THIRD), SECOND: (OPEN, LATERAL, THIRD), FRAMES: RUN}

# Browsers show a frame in an isolated page only where it is isolated, too.
_ISOLATED: Final = {
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TELL: Final = (
    """(told) => parent.postMessage({ type: 'recoquest.active-image', ...told }, location.origin)"""
)
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

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.identity = page.locator(".identity")
        self.cases = page.locator(".case")
        self.said = page.locator(".cases-said")
        self.save = page.get_by_role("button", name="Save to archive")

    def tell(self, film: Film) -> None:
        """Make a film the active one of the viewer."""
        expect(self.page.frame_locator("iframe").locator("#viewer")).to_be_attached()
        frame = self.page.locator("iframe").element_handle().content_frame()
        assert frame is not None
        frame.evaluate(_TELL, {"image": film.active(), "patients": [film.person]})

    def change(self, hash: str, last: Film | None = None) -> Any:
        """Change the address, and return what the panel shows in that moment."""
        told = None if last is None else {"image": last.active(), "patients": [last.person]}
        return self.page.evaluate(_CHANGE, [hash, told])

    def case(self, film: Film) -> "Locator":
        return self.page.locator(f'[data-id="{film.id}"]')

    def answer(self, path: str, status: int, body: dict[str, Any] | None = None) -> None:
        """Answer further requests in place of the service."""
        self.page.unroute(path)
        self.page.route(path, lambda route: _fulfil(route, status, body))

    def hold(self, path: str) -> "list[Route]":
        """Let further requests wait."""
        held: list[Route] = []
        self.page.unroute(path)
        self.page.route(path, lambda route: held.append(route))
        return held

    def wait_for(self, held: "list[Route]", count: int) -> None:
        for _ in range(100):
            if len(held) >= count:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{len(held)} of {count} requests came.")

    def has_only_a_problem(self, title: str) -> None:
        expect(self.said.get_by_role("alert")).to_contain_text(title)
        expect(self.cases).to_have_count(0)
        expect(self.page.locator(".cases").get_by_role("button")).to_have_count(0)


SIMILAR: Final = "**/similar?*"
RESULTS: Final = "**/results"
FEEDBACK: Final = "**/feedback"

OpenPanel = Callable[[Film], Panel]


def _fulfil(route: "Route", status: int, body: dict[str, Any] | None = None) -> None:
    route.fulfill(status=status, json=body or {"title": f"Problem {status}", "detail": "Try again."})


def _body(request: "Request") -> dict[str, Any]:
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
    Image.fromarray((draw(film.number * 10 + (film.frame or 0)) >> 4).astype("uint8")).save(
        data / f"{film.id}.png"
    )
    known = {"study": film.study_uid, "series": f"{film.study_uid}.1", "sop": film.sop}
    known |= {"patient": f"c0ffee{film.patient:010}", "date": "2024-01-15"}
    return Record(
        id=film.id,
        image=f"{film.id}.png",
        split="test",
        group=known["patient"],
        texts=(f"film {film.number}",),
        metadata=known if film.frame is None else known | {"frame": film.frame},
    )


@pytest.fixture
def context(chromium: "Browser") -> "Iterator[BrowserContext]":
    context = chromium.new_context(viewport={"width": 1500, "height": 900})
    context.set_default_timeout(10_000)
    yield context
    context.close()


@pytest.fixture
def open_panel(context: "BrowserContext", service: str, watch: Watch) -> OpenPanel:
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
        page.get_by_role("textbox").fill(ADMIN_KEY)
        page.locator("form button").first.click()
        panel = Panel(page)
        panel.tell(film)
        return panel

    return open_page


@pytest.fixture
def panel(open_panel: OpenPanel) -> Panel:
    """The panel with the cases of the first film."""
    panel = open_panel(OPEN)
    expect(panel.identity).to_contain_text("NAME^1 (P1)")
    expect(panel.case(OTHER)).to_be_visible()
    expect(panel.save).to_be_visible()
    return panel


def test_another_study_takes_all_of_the_former_from_the_page_at_once(panel: Panel) -> None:
    panel.answer(SIMILAR, 503)
    assert panel.change(f"#study={OTHER.study_uid}") == _EMPTY
    expect(panel.said).to_have_text("No image is open yet.")
    panel.tell(OTHER)
    expect(panel.identity).to_contain_text("NAME^2 (P2)")
    panel.has_only_a_problem("Problem 503")
    panel.page.unroute(SIMILAR)
    panel.page.get_by_label("Studies of the same patient").check()
    expect(panel.case(THIRD)).to_be_visible()
    panel.answer(RESULTS, 200, {"objects": [{"form": "capture", "status": "stored", "reason": None}]})
    with panel.page.expect_request(RESULTS) as sent:
        panel.save.click()
    assert f"/studies/{OTHER.study_uid}/results" in sent.value.url
    assert _body(sent.value)["sop"] == OTHER.sop


@pytest.mark.parametrize("hash", ["#study=1.2.3.4", pytest.param("#", marks=pytest.mark.slow)])
def test_nothing_of_the_former_stays_where_no_image_opens(panel: Panel, hash: str) -> None:
    held = panel.hold(SIMILAR)
    assert panel.change(hash, last=OPEN) == _EMPTY
    panel.page.wait_for_timeout(500)
    assert held == []
    expect(panel.identity).to_be_empty()
    expect(panel.cases).to_have_count(0)
    expect(panel.save).to_be_hidden()
    expect(panel.said).to_contain_text("No image is open" if "study" in hash else "names no study")


@pytest.mark.parametrize(("film", "status"), [(LATERAL, 429), (PRIOR, 503)], ids=["lateral", "prior"])
def test_another_film_of_the_patient_has_no_cases_of_the_former(
    panel: Panel, film: Film, status: int
) -> None:
    panel.page.get_by_label("A similar case that is not in the list").fill("9.9")
    held = panel.hold(SIMILAR)
    panel.tell(film)
    expect(panel.said).to_have_text("Searching\u2026")
    expect(panel.cases).to_have_count(0)
    expect(panel.page.locator(".cases").get_by_role("button")).to_have_count(0)
    panel.wait_for(held, 1)
    _fulfil(held[0], status)
    panel.has_only_a_problem(f"Problem {status}")
    panel.page.unroute(SIMILAR)
    panel.page.get_by_label("Studies of the same patient").check()
    # Words typed for the former film are not added to this one.
    expect(panel.page.get_by_label("A similar case that is not in the list")).to_have_value("")


def test_a_late_answer_for_the_former_film_is_dropped(panel: Panel) -> None:
    held = panel.hold(SIMILAR)
    panel.tell(LATERAL)
    panel.wait_for(held, 1)
    panel.tell(OTHER)
    held[0].continue_()
    panel.wait_for(held, 2)
    expect(panel.cases).to_have_count(0)
    assert OTHER.sop in held[1].request.url
    held[1].continue_()
    expect(panel.case(OPEN)).to_have_count(1)
    expect(panel.case(OTHER)).to_have_count(0)


def test_the_list_goes_while_the_same_film_is_searched_for_anew(panel: Panel) -> None:
    panel.answer(SIMILAR, 503)
    panel.page.get_by_label("Studies of the same patient").check()
    panel.has_only_a_problem("Problem 503")
    expect(panel.identity).to_contain_text("NAME^1 (P1)")


@pytest.mark.parametrize("status", [200, pytest.param(503, marks=pytest.mark.slow)])
def test_a_late_outcome_of_a_save_is_not_told_of_another_film(panel: Panel, status: int) -> None:
    held = panel.hold(RESULTS)
    panel.save.click()
    panel.wait_for(held, 1)
    assert f"/studies/{OPEN.study_uid}/results" in held[0].request.url
    assert _body(held[0].request)["sop"] == OPEN.sop
    panel.tell(OTHER)
    expect(panel.case(THIRD)).to_be_visible()
    expect(panel.save).to_be_enabled()
    with panel.page.expect_response(RESULTS):
        _fulfil(held[0], status, {"objects": []} if status == 200 else None)
    panel.page.wait_for_timeout(100)
    expect(panel.said).to_be_empty()


@pytest.mark.slow
def test_a_verdict_that_fails_late_is_not_told_of_another_film(panel: Panel) -> None:
    held = panel.hold(FEEDBACK)
    panel.case(OTHER).get_by_role("button", name="Accept").click()
    panel.wait_for(held, 1)
    with panel.page.expect_response(SIMILAR):
        panel.tell(LATERAL)
    expect(panel.case(THIRD)).to_be_visible()
    with panel.page.expect_response(FEEDBACK):
        _fulfil(held[0], 503)
    panel.page.wait_for_timeout(100)
    expect(panel.said).to_be_empty()


def test_a_verdict_belongs_to_its_collection(panel: Panel) -> None:
    # The button is pressed before the answer comes, which would be taken for that of the next verdict.
    with panel.page.expect_response(FEEDBACK):
        panel.case(THIRD).get_by_role("button", name="Accept").click()
    expect(panel.case(THIRD).get_by_role("button", name="Accept")).to_have_attribute("aria-pressed", "true")
    panel.page.get_by_label("Collection").select_option(SECOND)
    expect(panel.case(OTHER)).to_have_count(0)
    accept = panel.case(THIRD).get_by_role("button", name="Accept")
    expect(accept).to_have_attribute("aria-pressed", "false")
    with panel.page.expect_response(FEEDBACK) as kept:
        accept.click()
    assert f"/collections/{SECOND}/feedback" in kept.value.url
    assert _body(kept.value.request)["relevant"] is True


@pytest.mark.slow
def test_a_film_that_the_chosen_collection_lacks_is_searched_for_in_another(panel: Panel) -> None:
    panel.page.get_by_label("Collection").select_option(SECOND)
    expect(panel.case(THIRD)).to_be_visible()
    panel.tell(OTHER)
    expect(panel.case(OPEN)).to_be_visible()


@pytest.mark.slow
def test_a_missing_case_of_a_frame_is_added_where_nothing_was_found(open_panel: OpenPanel) -> None:
    panel = open_panel(RUN[1])
    expect(panel.said).to_have_text("frames has no other study.")
    panel.page.get_by_label("A similar case that is not in the list").fill(RUN[0].id)
    with panel.page.expect_response(FEEDBACK) as kept:
        panel.page.get_by_role("button", name="Add").click()
    assert kept.value.ok
    assert _body(kept.value.request)["query"] == {"like": [{"id": RUN[1].id}]}
    expect(panel.said).to_contain_text("is kept as a similar case")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en-GB", "Not a medical device. Not for diagnosis."),
        ("de-DE", "Kein Medizinprodukt. Nicht für die Diagnose."),
    ],
    ids=["en", "de"],
)
def test_the_panel_says_that_it_is_no_medical_device(
    context: "BrowserContext", open_panel: OpenPanel, language: str, text: str
) -> None:
    context.add_init_script(f"Object.defineProperty(navigator, 'languages', {{ value: ['{language}'] }})")
    panel = open_panel(OPEN)
    expect(panel.page.locator(".cases").get_by_role("note")).to_have_text(text)
    expect(panel.page.get_by_text(text)).to_be_visible()
