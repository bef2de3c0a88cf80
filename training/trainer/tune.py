"""A grid of settings: train each combination, and compare them on the validation split.

Every combination and seed is a run of `training.trainer.run.train` in its own folder, named by its settings.
A finished run has `results.json`; any other continues from its checkpoint. The same call, repeated
after a crash, does what is left.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import re
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError
from rich.console import Console

from training.common.atomic import write_text
from training.common.errors import DataError, RecipeError, RecoquestError
from training.common.frozen import Frozen
from training.common.manifest import MANIFEST_NAME, read_manifest
from training.recipes.document import parse_value
from training.recipes.load import first_difference, load_recipe, parse_recipe
from training.recipes.schema import Recipe
from training.trainer.optimisation.locked_tower import EncodedByTower
from training.trainer.run import train
from training.trainer.run_state.errors import DivergedError, TrainingError, TrainingInterruptedError
from training.trainer.run_state.folder import RunFolder

Grid = Mapping[str, Sequence[Any]]

RESULTS: Final = "results.json"
_LONGEST_NAME: Final = 150
# Settings that no grid can have, and what to do instead.
_NOT_IN_A_GRID: Final = {
    "train.seed": "give --seeds, which trains every combination with the same seeds",
    "train.select_by": "figures of different kinds can't be compared, so set it for all runs by --set",
}

logger = logging.getLogger(__name__)


class RunResult(Frozen):
    """What a run leaves in `results.json`.

    Attributes:
        recipe: Recipe that it was trained with, before its towers settled anything.
        data: SHA-256 of the manifest.
        figures: Figures of its best checkpoint on the validation split; empty if it failed.
        best_step: Steps after which that checkpoint was written.
        steps: Steps of the run.
        seconds: Seconds that the process that finished it took.
        error: Why there are no figures; empty if there are.
    """

    recipe: dict[str, Any]
    data: str
    figures: dict[str, float] = Field(default_factory=dict)
    best_step: int = 0
    steps: int = 0
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One training: a combination of settings with one seed."""

    settings: Mapping[str, Any]
    recipe: Recipe
    folder: RunFolder


@dataclass(frozen=True, slots=True)
class Combination:
    """The runs of a combination that differ by their seed, and their results."""

    settings: Mapping[str, Any]
    runs: Sequence[Run]
    results: Sequence[RunResult]

    def figures(self, name: str) -> list[float]:
        """Return a figure of each run that has one."""
        return [result.figures[name] for result in self.results if name in result.figures]

    def mean(self, name: str) -> float | None:
        """Return the mean of a figure over the seeds; None if no run has it."""
        return statistics.fmean(figures) if (figures := self.figures(name)) else None

    def standard_error(self, name: str) -> float | None:
        """Return the standard error of that mean; None with fewer than two runs."""
        figures = self.figures(name)
        return statistics.stdev(figures) / math.sqrt(len(figures)) if len(figures) > 1 else None

    @property
    def error(self) -> str:
        """Say why runs failed; empty if none did."""
        failed = [result.error for result in self.results if result.error]
        counted = f"{len(failed)} of {len(self.results)} runs: " if failed and len(self.results) > 1 else ""
        return f"{counted}{failed[0]}" if failed else ""


@dataclass(frozen=True, slots=True)
class Tuning:
    """A finished grid.

    Attributes:
        select_by: Figure that combinations are compared by.
        combinations: Best first; those with a failed run come last.
    """

    select_by: str
    combinations: Sequence[Combination]

    @property
    def runs(self) -> int:
        """Number of trainings."""
        return sum(len(combination.runs) for combination in self.combinations)

    @property
    def seconds(self) -> float:
        """Seconds of all runs together."""
        return sum(result.seconds for one in self.combinations for result in one.results)

    def behind(self, combination: Combination) -> float | None:
        """Return by how much the mean of a combination is worse than that of the best; None if it failed."""
        best, own = self.combinations[0].mean(self.select_by), combination.mean(self.select_by)
        return None if best is None or own is None else abs(best - own)

    def within_a_standard_error(self) -> list[Combination]:
        """Return the combinations that are worse than the best by no more than its standard error."""
        best, *others = self.combinations
        error = best.standard_error(self.select_by)
        gaps = [(one, self.behind(one)) for one in others if not one.error]
        return [one for one, gap in gaps if error is not None and gap is not None and gap <= error]


def parse_grid(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each setting, given as `dotted.key=value,value`; values are YAML.

    Raises:
        RecipeError: A text has another form, or a setting is given twice.
    """
    grid: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise RecipeError(
                f"--grid {text!r} is not of the form dotted.key=value,value, such as optimizer.lr=1e-4,1e-3."
            )
        if key in grid:
            raise RecipeError(
                f"--grid gives {key} twice: give all of its values at once, separated by commas."
            )
        grid[key] = tuple(parse_value(f"[{values}]", f"--grid {text!r}"))
    return grid


def _check(grid: Grid) -> None:
    """Check what no recipe can check.

    Raises:
        RecipeError: There is no setting or no value, a value is there twice, or a setting can't be compared.
    """
    if not grid:
        raise RecipeError("Give a grid, such as --grid optimizer.lr=1e-4,1e-3: the recipe names none.")
    for key, values in grid.items():
        if key in _NOT_IN_A_GRID:
            raise RecipeError(f"{key} can't be in a grid: {_NOT_IN_A_GRID[key]}.")
        if not values:
            raise RecipeError(f"The grid has no value of {key}: give some, such as --grid {key}=VALUE,VALUE.")
        for position, value in enumerate(values):
            if shown(value) in map(shown, values[:position]):
                raise RecipeError(f"The grid has the value {shown(value)} of {key} twice.")


def plan_runs(recipe: str, overrides: Sequence[str], grid: Grid, out: Path, *, seeds: int = 1) -> list[Run]:
    """Return the runs of all combinations, each with so many seeds from the recipe's on.

    Args:
        recipe: Name or path, as `load_recipe` takes it.
        overrides: `dotted.key=value` for all runs.
        grid: Values of each setting.
        out: Folder in which each run has a folder.
        seeds: Runs of each combination.

    Raises:
        RecipeError: The grid is empty, or there is no such setting, or a value doesn't fit.
    """
    _check(grid)
    runs = []
    for values in product(*grid.values()):
        settings = dict(zip(grid, values, strict=True))
        own = [f"{key}={json.dumps(value, default=str)}" for key, value in settings.items()]
        chosen = load_recipe(recipe, [*overrides, *own])
        for seed in range(chosen.train.seed, chosen.train.seed + seeds):
            seeded = chosen.model_copy(update={"train": chosen.train.model_copy(update={"seed": seed})})
            named = settings if seed == chosen.train.seed else {**settings, "train.seed": seed}
            runs.append(Run(settings, seeded, RunFolder(out / folder_name(named))))
    return runs


def folder_name(settings: Mapping[str, Any]) -> str:
    """Return the name of a run's folder: its settings, and a digest where they can't be a file name."""
    plain = ",".join(f"{key}={shown(value)}" for key, value in settings.items())
    name = re.sub(r"[^\w.,=+-]", "_", plain, flags=re.ASCII)
    if name == plain and len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"


def shown(value: Any) -> str:
    """Return a value as it is written in a recipe."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def tune(runs: Sequence[Run], data: Path, *, device: str = "auto", show_progress: bool = True) -> Tuning:
    """Do all runs that aren't finished, and compare them.

    A run whose loss is not a finite number has failed, and so has one that is refused after others were done.
    Locked towers encode each image and text once for all runs.

    Args:
        runs: Runs of `plan_runs`.
        data: Folder of a manifest with a validation split.
        device: A torch device; "auto": the GPU if there is one, otherwise the CPU.
        show_progress: Show bars on standard error, and the time left.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
        TrainingInterruptedError: The user or the system asked to stop; the checkpoint is written.
    """
    manifest = read_manifest(data, max_rejected=runs[0].recipe.data.max_rejected)
    if not manifest.split("val").records:
        raise DataError(
            f"{data} has no validation split, by which a grid is compared: give some images split val."
        )
    digest = hashlib.sha256((data / MANIFEST_NAME).read_bytes()).hexdigest()
    screen = Console(stderr=True, markup=False, highlight=False, quiet=not show_progress)
    encoded: EncodedByTower = {}
    seconds: list[float] = []
    with _locked(runs[0].folder.path.parent):
        results = {run.folder.path: _kept(run, digest) for run in runs}
        for number, run in enumerate(runs, 1):
            path = run.folder.path
            if results[path] is not None:
                continue
            left = sum(result is None for result in results.values())
            # The first run may have prepared what the others find ready.
            typical = statistics.median(seconds[1:] or seconds) if seconds else None
            about = "" if typical is None else f" (about {_duration(typical * left)} left)"
            screen.print(f"{number} of {len(runs)}: {path.name}{about}", soft_wrap=True)
            try:
                result = _finished(run, data, digest, device, encoded, show_progress=show_progress)
            except TrainingInterruptedError:
                raise
            except RecoquestError as error:
                if not any(other is not None and other.figures for other in results.values()):
                    raise
                # Nothing is written, so the next call tries again.
                logger.warning("%s: %s", path.name, error)
                results[path] = RunResult(recipe={}, data=digest, error=str(error))
                continue
            results[path] = result
            seconds.append(result.seconds)
    return _compared(runs, {path: result for path, result in results.items() if result is not None})


def write_tuning(tuning: Tuning, path: Path, **about: Any) -> None:
    """Write all combinations and runs as JSON, best first, whole or not at all; `about` comes first."""
    combinations = [
        {
            "settings": dict(one.settings),
            "figure": one.mean(tuning.select_by),
            "standard_error": one.standard_error(tuning.select_by),
            "behind_best": tuning.behind(one),
            "error": one.error,
            "runs": [
                {
                    "folder": run.folder.path.name,
                    "seed": run.recipe.train.seed,
                    **result.model_dump(exclude={"recipe", "data"}),
                }
                for run, result in zip(one.runs, one.results, strict=True)
            ],
        }
        for one in tuning.combinations
    ]
    budget = {"runs": tuning.runs, "seconds": round(tuning.seconds, 2)}
    content = {**about, "select_by": tuning.select_by, **budget, "combinations": combinations}
    write_text(path, json.dumps(content, indent=2))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others from tuning in the same folder, where the file system has locks.

    Raises:
        TrainingError: Somebody does so already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(f"Another process tunes in {folder}: wait, or give another --out.") from None
        except OSError:
            logger.warning("%s has no locks: run one command at a time in it.", folder)
        yield
    finally:
        os.close(descriptor)


def _kept(run: Run, data: str) -> RunResult | None:
    """Return the result of a run that is finished; None if it isn't.

    Raises:
        TrainingError: The run in this folder is another one.
    """
    path = run.folder.path / RESULTS
    try:
        result = RunResult.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise TrainingError(f"{path} is not a result of a grid: give another folder by --out.") from None
    other = first_difference(run.recipe, parse_recipe(result.recipe, f"The recipe in {path}"))
    if other is None and result.data != data:
        other = "manifest"
    if other is not None:
        raise TrainingError(
            f"The run in {run.folder.path} was trained with another {other}: give the same, or another --out."
        )
    return result


def _finished(
    run: Run, data: Path, digest: str, device: str, encoded: EncodedByTower, *, show_progress: bool
) -> RunResult:
    """Train from where a run was stopped, or from the beginning, and keep its result."""
    folder, select_by, began = run.folder.path, run.recipe.train.select_by, time.monotonic()
    outcome: dict[str, Any] = {}
    try:
        metrics = train(
            run.recipe,
            data,
            folder,
            resume=run.folder.recover(),
            device=device,
            show_progress=show_progress,
            encoded=encoded,
        ).metrics
    except DivergedError as error:
        outcome["error"] = str(error).partition(", so ")[0]
    else:
        outcome["figures"] = {name: value for name, value in metrics.items() if math.isfinite(value)}
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        outcome["steps"] = lines[-1]["step"]
        if select_by in outcome["figures"]:
            measured = {
                line[select_by]: line["step"] for line in reversed(lines) if line["kind"] == "validation"
            }
            outcome["best_step"] = measured[metrics[select_by]]
        else:
            outcome["error"] = f"{select_by} was never a number"
    seconds = round(time.monotonic() - began, 2)
    result = RunResult(recipe=run.recipe.model_dump(mode="json"), data=digest, seconds=seconds, **outcome)
    run.folder.write_results(result.model_dump())
    # Checkpoints to resume from take space, and nothing needs it any more.
    shutil.rmtree(run.folder.checkpoints, ignore_errors=True)
    return result


def _compared(runs: Sequence[Run], results: Mapping[Path, RunResult]) -> Tuning:
    select_by = runs[0].recipe.train.select_by
    by_settings: dict[str, list[Run]] = {}
    for run in runs:
        by_settings.setdefault(json.dumps(run.settings), []).append(run)
    combinations = [
        Combination(some[0].settings, some, [results[run.folder.path] for run in some])
        for some in by_settings.values()
    ]

    def order(combination: Combination) -> tuple[bool, float]:
        mean = combination.mean(select_by)
        return bool(combination.error), math.inf if mean is None else (mean if select_by == "loss" else -mean)

    return Tuning(select_by, sorted(combinations, key=order))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
