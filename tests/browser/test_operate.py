"""The operator's page on a real service: what it shows, what it changes, and who may."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page
from pydantic import SecretStr

from app.application import create_app
from app.engine import open_engine
from app.generations.schemas import Outcome
from app.heartbeat import Heartbeat
from app.settings import Settings
from index.catalogue.collections import require_active
from index.catalogue.jobs import add_job, beat, claim_job, end_job, get_job
from index.catalogue.tables import EmbeddingRow
from index.engine import SearchEngine
from index.generations.activation import generation_of
from index.generations.comparison import compare
from index.generations.reindex import generation_for, reindex
from tests.access import ADMIN_KEY, AS_ADMIN, OPEN
from tests.browser.conftest import DESK, PHONE, OpenSearch, Sites, Watch, step
from tests.browser.german import GERMAN, strangers
from tests.browser.search_page import SearchPage, expect
from tests.browser.service import OTHER, SHAPES, running
from tests.training.models.tiny import tiny_model, tiny_preprocessing
from training.models.bundle import save_bundle
from training.models.encoder import load_encoder
from training.recipes.load import dump_recipe, load_recipe

pytestmark = pytest.mark.browser

WORKER = "a worker"
KEY = "a key of some length, with ä"
# The page looks again after a tenth of the time.
_OFTEN = "const every = window.setInterval; window.setInterval = (look, ms) => every(look, ms / 10);"
JUDGED = {"metric": "rsum", "before": 271.4, "held_out": "test", "images": 15}
_METRIC = ("image", "recall", "at")


@dataclass(frozen=True)
class Operated:
    """A running service, an engine on its home folder, and the retraining that waits there."""

    engine: SearchEngine
    service: str
    settings: Settings
    job: int

    @property
    def active(self) -> int:
        """The generation of the shapes that is searched."""
        return self.engine.active(SHAPES).generation


@pytest.fixture(scope="module")
def retrained(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, int]:
    """The shapes with a retraining that waits, and its job."""
    folder = tmp_path_factory.mktemp("retrained")
    settings = sites.settings.model_copy(update={"home": folder / "home"})
    shutil.copytree(sites.settings.home, settings.home)
    with closing(open_engine(settings)) as engine:
        with engine.home.catalogue.read() as session:
            active, _ = require_active(session, SHAPES)
        recipe = load_recipe("demo-scenes", [f"train.start_from=bundles/{active.digest}"])
        bundle = save_bundle(
            folder / "further",
            name="tiny, retrained",
            model=tiny_model(seed=1),
            preprocessing=tiny_preprocessing(),
            metrics={"rsum": 280.25, "image_recall_at_1": 31.4},
            recipe_yaml=dump_recipe(recipe),
        )
        encoder = load_encoder(folder / "further", "cpu")
        generation = generation_for(engine.home, SHAPES, encoder)
        reindex(engine, generation, encoder, show_progress=False)
        compare(engine.home, active, generation)
        judgement = {**JUDGED, "after": 280.25, "passed": True}
        made = {"generation": generation.id, "bundle": bundle.digest, "judgement": judgement}
        return settings, ended_retraining(engine, "waiting", made)


def ended_retraining(engine: SearchEngine, verdict: str, made: dict[str, Any]) -> int:
    """A job that a worker has ended with what a retraining has made."""
    outcome = Outcome.model_validate({"verdict": verdict, "collection": SHAPES, **made})
    return ended_job(engine, "retrain", outcome.model_dump(mode="json"))


def ended_job(engine: SearchEngine, kind: str, result: dict[str, Any]) -> int:
    """A job that a worker has ended with a result."""
    number = running_job(engine, kind, SHAPES)
    with engine.home.catalogue.write() as session:
        end_job(session, number, WORKER, "done", result=result)
    return number


def running_job(engine: SearchEngine, kind: str, *arguments: str) -> int:
    """A job that a worker has claimed."""
    with engine.home.catalogue.write() as session:
        number = add_job(session, kind, arguments).id
        claim_job(session, number, WORKER)
    return number


def sign_in(context: BrowserContext, service: str) -> None:
    """Give a window the session of the administrator."""
    answer = context.request.post(f"{service}/v1/session", headers=AS_ADMIN)
    assert answer.ok, answer.text()


class OperatorPage:
    """What an operator looks at and presses."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.dialog = page.locator("dialog.confirm")
        self.told = page.locator(".announcement")

    def job(self, number: int) -> Locator:
        """The row of a job."""
        return self.page.locator(f'[data-job="{number}"]')

    def generation(self, collection: str, number: int) -> Locator:
        """The row of a generation."""
        card = self.page.get_by_role("region", name=collection, exact=True)
        return card.locator(f'[data-generation="{number}"]')

    def press(self, name: str) -> Locator:
        """Press a button; gives the dialog that asks."""
        self.page.get_by_role("button", name=name, exact=True).click()
        return self.dialog

    def confirm(self) -> None:
        """Press the button that the dialog has for it."""
        self.dialog.locator(".primary").click()


OpenOperated = Callable[..., tuple[Operated, OperatorPage]]


@pytest.fixture
def open_operated(
    chromium: Browser, retrained: tuple[Settings, int], watch: Watch, tmp_path: Path
) -> Iterator[OpenOperated]:
    """Serves a copy of what was retrained, and opens the operator's page, signed in unless a key is given."""
    prepared, job = retrained
    with ExitStack() as opened:

        def open_page(key: str | None = None, **settings: Any) -> tuple[Operated, OperatorPage]:
            shutil.copytree(prepared.home, tmp_path / "home")
            changed = {"home": tmp_path / "home", "refresh_s": 0.05}
            if key:
                changed["admin_key"] = SecretStr(key)
            serving = prepared.model_copy(update=changed)
            engine = opened.enter_context(closing(open_engine(serving)))
            service = opened.enter_context(running(create_app(serving)))
            watch.allow(service)
            context = opened.enter_context(chromium.new_context(**settings))
            page = context.new_page()
            page.set_default_timeout(10_000)
            page.add_init_script(_OFTEN)
            if not key:
                sign_in(context, service)
            watch.follow(page)
            page.goto(f"{service}/operate")
            return Operated(engine, service, serving, job), OperatorPage(page)

        yield open_page


@pytest.mark.slow
def test_what_is_refused_is_told_where_it_was_asked_for(open_operated: OpenOperated, watch: Watch) -> None:
    watch.allow("status of 409")
    site, shown = open_operated()
    dialog = shown.press("Activate generation 3 of shapes")
    # A few would be embedded first.
    _drop_vectors(site, 3, 31)
    shown.confirm()
    expect(dialog.get_by_role("alert")).to_contain_text("lacks 31 of the 60 images of 'shapes'")
    assert site.active == 1
    dialog.get_by_role("button", name="Leave it").click()
    expect(shown.generation(SHAPES, 3)).to_contain_text("incomplete")


@pytest.mark.slow
def test_a_retraining_is_looked_at_promoted_and_rolled_back(open_operated: OpenOperated) -> None:
    site, shown = open_operated()
    job, new, old = shown.job(site.job), shown.generation(SHAPES, 3), shown.generation(SHAPES, 1)
    step("it waits, with what it was judged by")
    expect(job).to_contain_text("waits for you")
    expect(job).to_contain_text("rsum 271.4 \u2192 280.3 on 15 held-out images (test): passed")
    expect(new).to_contain_text("ready")
    expect(new).to_contain_text("by 20 texts of held-out images")
    step("a card says where its model comes from")
    card = shown.page.locator("[data-digest]").filter(has_text="tiny, retrained")
    expect(card).to_contain_text("280.3 rsum")
    card.locator("summary").press("Enter")
    with site.engine.home.catalogue.read() as session:
        base = generation_of(session, SHAPES, 1).digest
    for expected in (
        f"job {site.job} on shapes, waiting", "infonce", "shapes 3 (ready)", f"model {base[:12]}"
    ):  # fmt: skip
        expect(card).to_contain_text(expected)
    step("it is promoted, after a question")
    expect(shown.press(f"Promote the model of job {site.job}")).to_contain_text("generation 3")
    assert site.active == 1
    shown.confirm()
    expect(shown.told).to_have_text("shapes is now searched in generation 3 by tiny, retrained.")
    expect(shown.told).to_be_focused()
    expect(shown.dialog).not_to_be_visible()
    assert site.active == 3
    expect(new).to_contain_text("searched now")
    expect(old).to_contain_text("searched before")
    expect(job).not_to_contain_text("waits for you")
    expect(job.get_by_role("button")).to_have_count(0)
    step("rolling back is given up")
    expect(shown.press("Roll shapes back to generation 1")).to_contain_text("in generation 1, by tiny.")
    shown.page.keyboard.press("Escape")
    expect(shown.dialog).not_to_be_visible()
    assert site.active == 3
    shown.press("Roll shapes back to generation 1")
    shown.page.keyboard.press("Enter")
    expect(shown.told).to_have_text("shapes is now searched in generation 1 by tiny.")
    assert site.active == 1
    expect(job).to_contain_text("waits for you")
    shown.press("Activate generation 3 of shapes")
    shown.confirm()
    expect(new).to_contain_text("searched now")
    assert site.active == 3


@pytest.mark.slow
def test_jobs_are_given_followed_and_cancelled(open_operated: OpenOperated) -> None:
    site, shown = open_operated()
    step("no worker is running, and then one is")
    nobody = shown.page.get_by_role("region", name="Jobs").get_by_text("No worker is running: jobs wait")
    expect(nobody).to_be_visible()
    Heartbeat(site.settings).beat()
    expect(nobody).not_to_be_visible()
    _drop_vectors(site, 3, 1)
    shown.page.reload()
    expect(shown.generation(SHAPES, 3)).to_contain_text("1 missing")
    submitted = {
        f"Embed the rest of generation 3 of {SHAPES}": ("reindex", [SHAPES, "--generation", "3"]),
        f"Retrain the model of {OTHER}": ("retrain", [OTHER, "--gain=0.0"]),
    }
    for number, (name, requested) in enumerate(submitted.items(), site.job + 1):
        step(name)
        shown.press(name)
        shown.confirm()
        expect(shown.job(number)).to_contain_text("waits for a worker")
        with site.engine.home.catalogue.read() as session:
            job = get_job(session, number)
        assert (job.kind, job.arguments) == requested
    for decision, verdict, words in (
        ("unchanged", None, "No epoch was better, so there is no new model."),
        ("rejected", "not better", "on 15 held-out images (test): did not pass"),
        ("waiting", "not enough to judge", "on 15 held-out images (test): not enough to judge"),
    ):
        step(words)
        judgement = {**JUDGED, "after": 271.4, "passed": False, "verdict": verdict}
        made = {"generation": None, "bundle": None, "judgement": judgement}
        number = ended_retraining(site.engine, decision, made)
        row = shown.job(number)
        expect(row).to_contain_text(f"Job {number}: retrain")
        expect(row).to_contain_text(words)
        if decision == "unchanged":
            expect(row).not_to_contain_text("did not pass")
    for groups, left_out, words in (
        (0, 0, "There are no near-duplicates."),
        (1, 0, "1 group of near-duplicates."),
        (2, 1200, "1,202 groups of near-duplicates."),
    ):
        step(words)
        results = {"groups": [{"ids": ["a", "b"], "same_file": True}] * groups, "unread": []}
        number = ended_job(
            site.engine, "duplicates", {**results, "left_out": {"groups": left_out, "unread": 0}}
        )
        expect(shown.job(number)).to_contain_text(f"Job {number}: duplicates")
        expect(shown.job(number)).to_contain_text(words)
    step("a job is followed as it continues")
    number = running_job(site.engine, "reindex", OTHER)
    row = shown.job(number)
    expect(row).to_contain_text("running")
    # Nothing but the events of the job can tell from now on.
    shown.page.route("**/v1/jobs?limit=*", lambda _: None)
    for done in (3, 7):
        with site.engine.home.catalogue.write() as session:
            beat(session, number, WORKER, {"what": "training", "done": done, "total": 10, "note": "loss 2.5"})
        expect(row).to_contain_text(f"training: {done} of 10, loss 2.5")
        expect(row.get_by_role("progressbar", name="training")).to_have_js_property("value", done)
    shown.press(f"Cancel job {number}")
    shown.confirm()
    expect(row).to_contain_text("being cancelled")
    expect(row.get_by_role("button")).to_have_count(0)
    with site.engine.home.catalogue.write() as session:
        end_job(session, number, WORKER, "cancelled")
    expect(row).not_to_contain_text("being cancelled")
    expect(row).to_contain_text("cancelled")
    expect(row.get_by_role("progressbar")).to_have_count(0)


@pytest.mark.slow
def test_without_a_session_a_key_is_asked_for_and_the_session_stays(
    open_operated: OpenOperated, watch: Watch
) -> None:
    watch.allow("status of 401")
    site, shown = open_operated(KEY)
    field = shown.page.get_by_label("Key")
    step("what readers may see is shown, and a key asked for")
    expect(shown.page.get_by_text("a key with the role admin")).to_be_visible()
    expect(shown.generation(SHAPES, 1)).to_contain_text("searched now")
    expect(shown.page.get_by_role("button")).to_have_text(["Sign in"])
    field.fill("a key that is not it")
    field.press("Enter")
    expect(shown.page.get_by_role("alert")).to_have_text(
        "The key is unknown: send another, or ask the service's administrator for one."
    )
    expect(field).to_be_focused()
    step("the right one promotes")
    field.fill(KEY)
    field.press("Enter")
    shown.press(f"Promote the model of job {site.job}")
    shown.confirm()
    expect(shown.told).to_contain_text("generation 3")
    assert site.active == 3
    step("the session stays until signed out")
    shown.page.reload()
    expect(shown.job(site.job)).to_be_visible()
    shown.page.get_by_role("button", name="Sign out").click()
    expect(field).to_be_visible()
    expect(shown.job(site.job)).to_have_count(0)


@pytest.mark.slow
def test_it_is_used_on_a_phone_whose_connection_is_lost_and_found(
    open_operated: OpenOperated, watch: Watch
) -> None:
    watch.allow("ERR_INTERNET_DISCONNECTED")
    site, shown = open_operated(**PHONE)
    step("it fits, with buttons large enough for a finger")
    expect(shown.job(site.job)).to_contain_text("waits for you")
    shown.page.locator("summary").first.tap()
    expect(shown.page.locator(".facts").first).to_be_visible()
    assert not SearchPage(shown.page, site.service).scrolls_sideways()
    for button in shown.page.get_by_role("button").all():
        assert button.evaluate("button => button.offsetHeight") >= 40
    step("it is reached from the search")
    shown.page.get_by_role("link", name="Search").tap()
    shown.page.get_by_role("link", name="Operate").tap()
    expect(shown.job(site.job)).to_be_visible()
    expect(shown.generation(SHAPES, 1)).to_be_visible()
    step("without a connection it says so, and continues when there is one")
    shown.page.context.set_offline(True)
    notice = shown.page.get_by_role("alert")
    expect(notice).to_contain_text("The service cannot be reached")
    shown.page.context.set_offline(False)
    expect(shown.job(site.job)).to_contain_text("waits for you")
    expect(notice).to_have_count(0)


@pytest.mark.slow
def test_a_service_that_holds_nothing_says_how_to_begin(open_search: OpenSearch, tmp_path: Path) -> None:
    with running(create_app(Settings(home=tmp_path, device="cpu", **OPEN))) as service:
        page = open_search(
            "operate", site=service, before=lambda page: sign_in(page.context, service), **DESK
        ).page
        for position, words in (
            ("Jobs", "recoquest jobs start"),
            ("Collections", "recoquest index"),
            ("Models", "recoquest models register"),
        ):
            expect(page.get_by_role("region", name=position)).to_contain_text(words)
        page.close()


@pytest.mark.slow
@pytest.mark.parametrize("window", [DESK, {"viewport": {"width": 420, "height": 900}}])
def test_the_operators_page_is_german(
    open_operated: OpenOperated, watch: Watch, window: dict[str, Any]
) -> None:
    watch.allow("status of 401")
    site, shown = open_operated(ADMIN_KEY, **window, **GERMAN)
    page = shown.page
    expect(page.get_by_role("heading", name="Anmelden")).to_be_visible()
    assert page.title() == "Betrieb \u00b7 recoquest"
    assert strangers(page, _METRIC) == []
    step("a retraining that waits, its model, and the question before it is promoted")
    sign_in(page.context, site.service)
    page.reload()
    expect(shown.job(site.job)).to_contain_text("wartet auf Sie")
    expect(shown.job(site.job)).to_contain_text("rsum 271,4 \u2192 280,3 mit 15 zurückgehaltenen Bildern")
    page.get_by_text("Steckbrief").first.click()
    expect(page.locator(".facts.metrics").first).to_be_visible()
    expect(shown.press(f"Das Modell von Auftrag {site.job} übernehmen")).to_contain_text("Generation 3")
    data = ", ".join(f"dt:text-is('{name}') + dd" for name in ("Rezept", "Teilnetze", "Zielfunktion"))
    shown_data = page.locator(f"{data}, .metrics dt, .figures, .row-main code, .row-head strong")
    names = re.findall(r"[^\W\d_]+", " ".join(shown_data.all_inner_texts()))
    assert strangers(page, (*names, *_METRIC, "worker", "admin", "key", SHAPES, OTHER)) == []
    assert not SearchPage(page, site.service).scrolls_sideways()


def _drop_vectors(site: Operated, number: int, count: int) -> None:
    """Take vectors of images out of a generation, as if the images had been written since."""
    with site.engine.home.catalogue.write() as session:
        for row in session.query(EmbeddingRow).filter_by(generation_id=number).limit(count).all():
            session.delete(row)
