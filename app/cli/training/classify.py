"""`recoquest classify`: texts, images by their labels, and questions about images by their answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.errors import resumable
from app.cli.options import Device, Processes, Resume, Sets, Track, chosen_device
from app.edge.observability.console import console

if TYPE_CHECKING:
    from training.classification.images.config import ImageRecipe
    from training.classification.images.scores import Scores
    from training.classification.questions.config import QuestionRecipe
    from training.classification.texts.config import TextRecipe


def classify(
    recipe: Annotated[
        str,
        typer.Argument(help="Recipe, such as glue-bert-base::rte, or a YAML file."),
    ],
    data: Annotated[
        Path,
        typer.Option("--data", help="Folder with manifest.jsonl; of a GLUE task, with train.tsv; of VQA v2."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the run; results go to OUT/results.json.")],
    overrides: Sets = None,
    resume: Resume = False,
    device: Device = None,
    processes: Processes = 1,
    track: Track = None,
) -> None:
    """Train a classifier: labels of images behind an encoder, a task of GLUE, or answers to questions.

    Started by torchrun, as on several machines, it is one of the processes that train together.
    """
    from app.jobs.launch import process_count, train_together
    from training.classification.images.config import ImageRecipe
    from training.classification.images.run import classify_images
    from training.classification.load import load_classification_recipe
    from training.classification.questions.config import QuestionRecipe
    from training.classification.questions.run import answer_questions
    from training.classification.texts.run import classify_texts
    from training.tasks.opening import RunOptions
    from training.trainer.run_state.processes import one_voice

    with one_voice() as speaks, resumable(out):
        resolved = load_classification_recipe(recipe, overrides or [])
        options = RunOptions(out, resume=resume, device=chosen_device(device), trackers=tuple(track or ()))
        count = process_count(processes, resolved, out, resume=resume, device=options.device)
        if count > 1:
            train_together(count, "classify", recipe, data, overrides or [], options)
            return
        if isinstance(resolved, ImageRecipe):
            of_images = classify_images(resolved, data, options)
            rejected, what, checkpoint = of_images.rejected, "lines or images", of_images.checkpoint
            tables = [_label_table(of_images.test), _image_table(resolved, of_images.test)]
        elif isinstance(resolved, QuestionRecipe):
            of_questions = answer_questions(resolved, data, options)
            rejected, what, checkpoint = of_questions.rejected, "questions or images", of_questions.checkpoint
            tables = [_answer_table(resolved, of_questions.metrics)]
        else:
            of_texts = classify_texts(resolved, data, options)
            rejected, what, checkpoint = of_texts.rejected, "lines", of_texts.checkpoint
            tables = [_text_table(resolved, of_texts.metrics)]
    if not speaks:
        return
    if rejected:
        typer.echo(f"Left out: {rejected:,} {what} that cannot be used.")
    console().print(*tables, sep="\n")
    typer.echo(f"Checkpoint: {checkpoint}")


def _label_table(scores: "Scores") -> Table:
    """The AUC of each label in percent; of those that cannot be measured, a dash."""
    table = Table("Label", "Images with it", "AUC")
    for label, count in scores.positives.items():
        area = scores.auc.get(label)
        table.add_row(label, f"{count:,} of {scores.images:,}", "–" if area is None else f"{100 * area:.2f}")
    return table


def _image_table(recipe: "ImageRecipe", scores: "Scores") -> Table:
    """The mean in percent, beside the rows of ReCo's table 2 for the same protocol and share."""
    from training.classification.images.published import published

    table = Table("Test images", "Mean AUC", "Labels")
    table.add_row("this run", f"{100 * scores.mean:.2f}", str(len(scores.auc)))
    for row, figure in published(recipe).items():
        table.add_row(f"published, {row}", f"{figure:.2f}", "8")
    return table


def _text_table(recipe: "TextRecipe", metrics: Mapping[str, float]) -> Table:
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


def _answer_table(recipe: "QuestionRecipe", metrics: Mapping[str, float]) -> Table:
    """The score in percent, beside RECLAIM's table 11."""
    from training.classification.questions.run import published

    table = Table("Validation questions", "VQA score", "Best that the answers allow")
    table.add_row("this run", *(f"{100 * value:.2f}" for value in metrics.values()))
    for row, figure in published(recipe).items():
        table.add_row(f"published, {row}", f"{figure:.2f}")
    return table
