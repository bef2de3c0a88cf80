"""`recoquest train`: train an encoder by a recipe."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.endings import stoppable
from app.cli.options import Data
from app.cli.output import console


def train(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (see `recoquest recipes`) or a YAML file.")],
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="Folder of the run; the encoder goes to OUT/bundle.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, such as train.epochs=3; may be repeated.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
) -> None:
    """Train an image and a text encoder in one space, and write the best as a bundle."""
    from training.trainer.run import train as run_training

    from training.recipes.load import load_recipe

    resolved = load_recipe(recipe, overrides or [])
    with stoppable(f"Stopped. The same command with --resume goes on from the last checkpoint in {out}."):
        result = run_training(resolved, data, out, resume=resume)
    print_result(result.bundle, result.metrics, result.rejected)


def print_result(bundle: Path, metrics: dict[str, float] | object, rejected: int) -> None:
    """Say where the bundle is and what validation gave."""
    screen = console()
    if isinstance(metrics, dict):
        figures = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        screen.print(f"Validation: {figures}", soft_wrap=True)
    if rejected:
        screen.print(f"Left out: {rejected:,} lines or images that cannot be used.")
    screen.print(f"Encoder: {bundle}", soft_wrap=True)
