"""`recoquest classify`: classify texts, with and without RECLAIM's term."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.endings import stoppable
from app.cli.options import TorchDevice


def classify(
    recipe: Annotated[str, typer.Argument(help="Such as glue-cola-bert-reclaim, or a YAML file.")],
    data: Annotated[Path, typer.Option("--data", help="Folder of a GLUE task, with train.tsv and dev.tsv.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the run; results go to OUT/results.json.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, such as train.epochs=1; may be repeated.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    device: TorchDevice = "auto",
) -> None:
    """Fine-tune a text classifier on a task of GLUE and measure it on the development set."""
    from training.classification.load import load_classification_recipe
    from training.classification.run import classify as run_classification

    resolved = load_classification_recipe(recipe, overrides or [])
    with stoppable(f"Stopped. The same command with --resume goes on from the last checkpoint in {out}."):
        result = run_classification(resolved, data, out, resume=resume, device=device)
    if result.rejected:
        typer.echo(f"Left out: {result.rejected:,} lines that cannot be used.")
    for name, value in result.metrics.items():
        typer.echo(f"{name}: {value:.4g}")
    typer.echo(f"Checkpoint: {result.checkpoint}")
