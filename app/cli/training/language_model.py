"""`recoquest language-model`: train a variational language model of sentences."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.errors import resumable
from app.cli.options import Device, Processes, Resume, Sets, Track, chosen_device
from app.edge.observability.console import console

if TYPE_CHECKING:
    from training.language_models.config import LanguageModelRecipe

_COUNTED = "active_units"


def language_model(
    recipe: Annotated[str, typer.Argument(help="Recipe, such as lm-ptb-vae, or a YAML file.")],
    data: Annotated[Path, typer.Option("--data", help="Folder with train.txt, valid.txt and test.txt.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the run; results go to OUT/results.json.")],
    overrides: Sets = None,
    resume: Resume = False,
    device: Device = None,
    processes: Processes = 1,
    track: Track = None,
) -> None:
    """Train a variational language model of sentences and measure it: ELBO, perplexity, use of its codes.

    Started by torchrun, as on several machines, it is one of the processes that train together.
    """
    from app.jobs.launch import process_count, train_together
    from training.language_models.config import load_language_recipe
    from training.language_models.run import train_language_model
    from training.tasks.opening import RunOptions
    from training.trainer.run_state.processes import one_voice

    with one_voice() as speaks, resumable(out):
        resolved = load_language_recipe(recipe, overrides or [])
        options = RunOptions(out, resume=resume, device=chosen_device(device), trackers=tuple(track or ()))
        count = process_count(processes, resolved, out, resume=resume, device=options.device)
        if count > 1:
            train_together(count, "language-model", recipe, data, overrides or [], options)
            return
        result = train_language_model(resolved, data, options)
    if not speaks:
        return
    if result.rejected:
        typer.echo(f"Left out: {result.rejected:,} lines that cannot be used.")
    console().print(_table(resolved, result.test))
    typer.echo(f"Checkpoint: {result.checkpoint}")


def _table(recipe: "LanguageModelRecipe", figures: dict[str, float]) -> Table:
    """The figures of the test sentences, beside those of the paper's row that the recipe is named after."""
    from training.language_models.run import published

    table = Table("Test sentences", *(name.replace("_", " ") for name in figures))
    rows = {"this run": figures, "published": published(recipe)}
    for label, found in rows.items():
        if found:
            table.add_row(label, *(_cell(name, found.get(name)) for name in figures))
    return table


def _cell(name: str, figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:.0f}" if name == _COUNTED else f"{figure:.2f}"
