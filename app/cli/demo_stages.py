"""What the demo does before it serves: stages that are finished once and found again."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from time import perf_counter

import typer
from index.ingest import ingest_manifest
from training.trainer.run import train

from app.cli.evaluate import print_report, write_json
from app.engine import open_engine
from app.settings import Settings, load_settings
from training.atomic import atomic_file
from training.data.manifest import read_manifest
from training.data.sample import write_sample_data
from training.errors import RecoquestError
from training.evaluation.evaluate import evaluate
from training.models.encoder import load_encoder
from training.recipes.load import dump_recipe, load_recipe

_SEED = 0
_PLAN = """\
This makes {images:,} generated radiographs and {images:,} generated scenes, trains a small encoder for each,
measures it, indexes both sets and serves the search. The first time takes about five minutes on two cores;
later only what is missing. Everything is kept in {folder}.
"""


class DemoError(RecoquestError):
    """The demo's folder cannot be used."""


@dataclass(frozen=True)
class _Subject:
    """One of the two halves of the demo."""

    name: str
    recipe: str


_SUBJECTS = (_Subject("radiographs", "demo-radiographs"), _Subject("scenes", "demo-scenes"))


class Stages:
    """Which stages of a folder are finished, and from what; kept in `stages.json`.

    Args:
        folder: The demo's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "stages.json"

    def run(self, name: str, made_from: str, sentence: str, work: Callable[[], None]) -> None:
        """Do a stage unless it was finished before from the same things.

        Args:
            name: Of the stage.
            made_from: Everything that its result depends on; another value does it again.
            sentence: What to say at its beginning.
            work: Does it.
        """
        fingerprint = hashlib.sha256(made_from.encode()).hexdigest()
        finished = self._finished()
        if finished.get(name) == fingerprint:
            typer.echo(f"{sentence}: done before.")
            return
        typer.echo(f"{sentence} ...")
        started = perf_counter()
        work()
        with atomic_file(self._path) as file:
            file.write(json.dumps({**self._finished(), name: fingerprint}, indent=2).encode())
        typer.echo(f"{sentence}: done in {perf_counter() - started:.0f} s.")

    def _finished(self) -> dict[str, str]:
        try:
            known = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def prepare(folder: Path, images: int) -> Settings:
    """Bring the demo's folder to where it can be served.

    Raises:
        DemoError: When another demo works in the same folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    typer.echo(_PLAN.format(images=images, folder=folder))
    settings = load_settings(home=folder / "home")
    with _locked(folder):
        stages = Stages(folder)
        made_from = f"images {images} seed {_SEED}"
        stages.run(
            "data",
            made_from,
            "Making sample data",
            lambda: write_sample_data(folder / "data", images=images, seed=_SEED),
        )
        for subject in _SUBJECTS:
            _prepare_subject(subject, folder, stages, settings, made_from)
    return settings


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except OSError:
            raise DemoError(
                f"Another demo is at work in {folder}: wait for it, or give another --folder."
            ) from None
        yield


def _prepare_subject(
    subject: _Subject, folder: Path, stages: Stages, settings: Settings, made_from: str
) -> None:
    name, data, run = subject.name, folder / "data" / subject.name, folder / "runs" / subject.name
    recipe = load_recipe(subject.recipe)
    made_from = f"{made_from} recipe {dump_recipe(recipe)}"

    def train_encoder() -> None:
        train(recipe, data, run, resume=(run / "checkpoints").is_dir())

    def measure_encoder() -> None:
        report = evaluate(load_encoder(run / "bundle", "auto"), read_manifest(data).split("test"))
        print_report(report, title=name)
        write_json(report, run / "evaluation.json")

    def index_images() -> None:
        engine = open_engine(settings)
        try:
            ingest_manifest(engine, name, load_encoder(run / "bundle", "auto"), read_manifest(data))
        finally:
            engine.close()

    stages.run(f"train {name}", made_from, f"Training the encoder of {name}", train_encoder)
    stages.run(f"evaluate {name}", made_from, f"Measuring the encoder of {name}", measure_encoder)
    stages.run(f"index {name}", made_from, f"Indexing {name}", index_images)
