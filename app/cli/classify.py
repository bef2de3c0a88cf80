"""`recoquest classify`: classify texts, with and without RECLAIM's term."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.endings import stoppable
from app.cli.options import TorchDevice
from app.cli.output import console

if TYPE_CHECKING:
    from training.classification.texts.config import TextRecipe


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
    from training.classification.texts.run import classify_texts

    resolved = load_classification_recipe(recipe, overrides or [])
    with stoppable(f"Stopped. The same command with --resume goes on from the last checkpoint in {out}."):
        result = classify_texts(resolved, data, out, resume=resume, device=device)
    if result.rejected:
        typer.echo(f"Left out: {result.rejected:,} lines that cannot be used.")
    console().print(_table(resolved, result.metrics))
    typer.echo(f"Checkpoint: {result.checkpoint}")


def _table(recipe: "TextRecipe", metrics: Mapping[str, float]) -> Table:
    """The figures in percent, beside those that RECLAIM's paper has for the same share of the data."""
    from training.classification.texts.published import published

    names, rows = published(recipe)
    table = Table("Development set", *metrics)
    table.add_row("this run", *(f"{100 * value:.2f}" for value in metrics.values()))
    for row in rows:
        for label, figures in ((row.backbone, row.base), (f"{row.backbone} + RECLAIM", row.reclaim)):
            found = dict(zip(names, figures, strict=True))
            cells = [f"{found[name]:.2f}" if name in found else "" for name in metrics]
            table.add_row(f"published, {label}", *cells)
    return table
