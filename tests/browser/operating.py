"""A service with a retraining that waits, and the operator's page as the operator sees it."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.application import create_app
from app.engine import open_engine
from app.generations.schemas import ModelVerdict, Outcome
from app.settings import Settings
from index.catalogue.collections import require_active
from index.catalogue.jobs import add_job, claim_job, end_job
from index.engine import SearchEngine
from index.generations.comparison import compare
from index.generations.reindex import generation_for, reindex
from tests.access import AS_ADMIN
from tests.browser.service import SHAPES, running
from tests.training.models.tiny import tiny_model, tiny_preprocessing
from training.models.bundle_writer import save_bundle
from training.models.encoder import load_encoder
from training.recipes.load import dump_recipe, load_recipe

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

WORKER = "a worker"


@dataclass(frozen=True)
class Operated:
    """A running service, and its catalogue beside it.

    Attributes:
        engine: On the service's home folder.
        service: Address.
        settings: Of the service.
        job: The retraining that waits.
    """

    engine: SearchEngine
    service: str
    settings: Settings
    job: int

    @property
    def active(self) -> int:
        """The generation of the shapes that is searched."""
        return self.engine.active(SHAPES).generation


@dataclass(frozen=True)
class Prepared:
    """Served: a home folder with indexed shapes, and the retraining that waits there."""

    settings: Settings
    job: int


def prepared(indexed: Settings, folder: Path) -> Prepared:
    """Retrain the model of a copy of indexed shapes."""
    settings = indexed.model_copy(update={"home": folder / "home"})
    shutil.copytree(indexed.home, settings.home)
    with closing(open_engine(settings)) as engine:
        return Prepared(settings, _retrained(engine, folder / "further"))


@contextmanager
def operated(prepared: Prepared, folder: Path, **settings: object) -> Iterator[Operated]:
    """Serve a copy of what was prepared."""
    shutil.copytree(prepared.settings.home, folder / "home")
    home = prepared.settings.model_copy(update={"home": folder / "home"})
    serving = home.model_copy(update={"refresh_s": 0.05, **settings})
    with (
        closing(open_engine(serving)) as engine,
        running(create_app(Settings.model_validate(serving.model_dump()))) as service,
    ):
        yield Operated(engine, service, home, prepared.job)


def _retrained(engine: SearchEngine, folder: Path) -> int:
    """What a retraining leaves behind: a model, a generation that nobody searches, and its job's result."""
    with engine.home.catalogue.read() as session:
        active, _ = require_active(session, SHAPES)
    digest = save_bundle(
        folder,
        name="tiny, retrained",
        model=tiny_model(seed=1),
        preprocessing=tiny_preprocessing(),
        metrics={"rsum": 280.25, "image_recall_at_1": 31.4},
        recipe_yaml=dump_recipe(load_recipe("demo-scenes", [f"train.start_from=bundles/{active.digest}"])),
    ).digest
    encoder = load_encoder(folder, "cpu")
    generation = generation_for(engine.home, SHAPES, encoder)
    reindex(engine, generation, encoder, show_progress=False)
    compare(engine.home, active, generation)
    judgement = ModelVerdict(
        metric="rsum", before=271.4, after=280.25, held_out="test", images=15, passed=True
    )
    outcome = Outcome(
        verdict="waiting", collection=SHAPES, generation=generation.id, bundle=digest, judgement=judgement
    )
    number = running_job(engine, "retrain", SHAPES)
    with engine.home.catalogue.write() as session:
        end_job(session, number, WORKER, "done", result=outcome.model_dump(mode="json"))
    return number


def running_job(engine: SearchEngine, kind: str, *arguments: str) -> int:
    """A job that a worker has claimed."""
    with engine.home.catalogue.write() as session:
        number = add_job(session, kind, arguments).id
        claim_job(session, number, WORKER)
    return number


def sign_in(context: "BrowserContext", service: str) -> None:
    """Give a window the session of the administrator."""
    answer = context.request.post(f"{service}/v1/session", headers=AS_ADMIN)
    assert answer.ok, answer.text()


class OperatorPage:
    """What an operator looks at and presses."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.dialog = page.locator("dialog.confirm")
        self.told = page.locator(".told")

    def job(self, number: int) -> "Locator":
        """The row of a job."""
        return self.page.locator(f'[data-job="{number}"]')

    def generation(self, collection: str, number: int) -> "Locator":
        """The row of a generation."""
        place = self.page.get_by_role("region", name=collection, exact=True)
        return place.locator(f'[data-generation="{number}"]')

    def press(self, name: str) -> "Locator":
        """Press a button; gives the dialog that asks."""
        self.page.get_by_role("button", name=name, exact=True).click()
        return self.dialog

    def confirm(self) -> None:
        """Press the button that the dialog has for it."""
        self.dialog.locator(".primary").click()
