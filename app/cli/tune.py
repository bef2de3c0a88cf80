"""`recoquest tune`: which of a grid's settings find most on the validation split."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.errors import stoppable
from app.cli.options import Data, Device, Sets, chosen_device
from training.common.progress import console

if TYPE_CHECKING:
    from training.trainer.tune import Tuning


def tune(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (see `recoquest recipes`) or a YAML file.")],
    data: Data,
    out: Annotated[
        Path, typer.Option(help="Folder of the runs, one folder each; the table goes to OUT/tune.json.")
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            help="key=value,value, such as optimizer.lr=1e-4,1e-3; may be repeated, for all combinations. "
            "Without it the grid that the recipe was tuned with.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Runs of each combination, with seeds from the recipe's on.")
    ] = 1,
    overrides: Sets = None,
    heads: Annotated[
        bool,
        typer.Option(
            "--heads",
            help="Train heads alone: pretrained towers encode each image and text once for all runs.",
        ),
    ] = False,
    device: Device = None,
) -> None:
    """Train a recipe with each combination of some settings, and compare them on the validation split.

    If it is stopped, run the same command again: finished runs are kept, others resume from checkpoints.
    """
    from training.recipes.load import load_recipe

    overrides = [*(overrides or []), *(["train.heads=true"] if heads else [])]
    tuned = load_recipe(recipe, overrides).tuned
    device = chosen_device(device)
    # A wrong setting is named before torch is imported.
    from training.trainer.tune import parse_grid, plan_runs, write_tuning
    from training.trainer.tune import tune as run_grid

    values = parse_grid(grid or []) if grid or tuned is None else tuned.grid
    runs = plan_runs(recipe, overrides, values, out, seeds=seeds)
    with stoppable(f"Stopped. Run the same command again to continue the runs in {out}."), _warned_once():
        tuning = run_grid(runs, data, device=device)
    write_tuning(
        tuning,
        out / "tune.json",
        recipe=recipe,
        data=str(data),
        set=overrides,
        grid={key: list(some) for key, some in values.items()},
        seeds=[run.recipe.train.seed for run in tuning.combinations[0].runs],
    )
    _print(tuning, data, out)


@contextmanager
def _warned_once() -> Iterator[None]:
    """Show a warning of a run only the first time, since other runs have the same data and towers."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        before = len(seen)
        seen.add(record.getMessage())
        return len(seen) > before

    handlers = [handler for handler in (*logging.getLogger().handlers, logging.lastResort) if handler]
    for handler in handlers:
        handler.addFilter(is_new)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_new)


def _print(tuning: "Tuning", data: Path, out: Path) -> None:
    """Print a row for each combination, best first, and how much the differences say."""
    from training.trainer.tune import shown

    select_by = tuning.select_by
    best = tuning.combinations[0]
    several = len(best.runs) > 1
    others = [name for name in ("rsum", "precision_at_10") if name != select_by and best.figures(name)]
    failed = any(one.error for one in tuning.combinations)
    table = Table(
        *best.settings,
        select_by,
        *(["standard error"] if several else []),
        *others,
        "best step",
        "steps",
        "seconds",
        *(["failed"] if failed else []),
    )
    for one in tuning.combinations:
        done = [result for result in one.results if not result.error]
        table.add_row(
            *map(shown, one.settings.values()),
            _figure(one.mean(select_by)),
            *([_figure(one.standard_error(select_by))] if several else []),
            *(_figure(one.mean(name)) for name in others),
            ", ".join(f"{result.best_step:,}" for result in done) or "-",
            f"{max(result.steps for result in one.results):,}",
            f"{sum(result.seconds for result in one.results):,.0f}",
            *([one.error] if failed else []),
        )
    screen = console()
    screen.print(table)
    screen.print(
        f"{tuning.runs:,} runs, {tuning.seconds:,.0f} seconds. Table: {out / 'tune.json'}", soft_wrap=True
    )
    for sentence in _verdict(tuning):
        screen.print(sentence, soft_wrap=True)
    if not best.error:
        bundle = best.runs[0].folder.bundle
        screen.print(
            f"Measure the best again: recoquest evaluate {bundle} --data {data} --split test", soft_wrap=True
        )


def _verdict(tuning: "Tuning") -> list[str]:
    """Say how far the order of the table can be trusted."""
    from training.trainer.tune import shown

    best, *others = tuning.combinations
    if best.error:
        return ["No combination could be trained to the end."]
    sentences = [
        f"The best of {len(others) + 1} combinations is chosen by this validation split, so its figure is "
        "optimistic."
    ]
    gaps = [gap for one in others if not one.error and (gap := tuning.behind(one)) is not None]
    if not gaps:
        return sentences
    behind = f"The next {'is' if len(gaps) == 1 else 'are'} behind by {', '.join(map(_figure, gaps[:3]))}"
    error = best.standard_error(tuning.select_by)
    if error is None:
        return [*sentences, f"{behind}; --seeds 3 shows whether that is more than chance."]
    close = [
        ", ".join(
            f"{key}={shown(value)}" for key, value in one.settings.items() if value != best.settings[key]
        )
        for one in tuning.within_a_standard_error()
    ]
    named = f"{'; '.join(close)}, which may be as good" if close else "none of them"
    return [*sentences, f"{behind}. Within the standard error of the best, {_figure(error)}: {named}."]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
