"""`recoquest train`: train an encoder by a recipe."""

import os
from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import resumable
from app.cli.options import Data, Device, Processes, Resume, Sets, Track, chosen_device


def train(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (see `recoquest recipes`) or a YAML file.")],
    data: Data,
    out: Annotated[Path, typer.Option("--out", help="Folder of the run; the encoder goes to OUT/bundle.")],
    overrides: Sets = None,
    heads: Annotated[
        bool,
        typer.Option(
            "--heads",
            help="Train heads alone: pretrained towers stay as they are and encode each image and text once.",
        ),
    ] = False,
    resume: Resume = False,
    device: Device = None,
    processes: Processes = 1,
    track: Track = None,
) -> None:
    """Train encoders of images and of texts or sounds in one space, and write the best as a bundle.

    Started by torchrun, as on several machines, it is one of the processes that train together.
    """
    from app.jobs.launch import process_count, train_together, without_copies
    from training.classification.load import shipped as of_classification
    from training.common.errors import RecipeError
    from training.common.progress import PROGRESS_VARIABLE
    from training.language_models.config import shipped as of_language_models
    from training.recipes.load import load_recipe
    from training.tasks.opening import RunOptions
    from training.trainer.run import train as run_training
    from training.trainer.run_state.processes import one_voice

    overrides = [*(overrides or []), *(["train.heads=true"] if heads else [])]
    with one_voice() as speaks, resumable(out):
        if of_classification().has(recipe):
            raise RecipeError(f"{recipe} is a recipe of classification: give it to `recoquest classify`.")
        if of_language_models().has(recipe):
            raise RecipeError(f"{recipe} is a language model: give it to `recoquest language-model`.")
        resolved = load_recipe(recipe, overrides)
        if PROGRESS_VARIABLE in os.environ:
            # A worker has started this process.
            resolved = without_copies(resolved, overrides)
        place = chosen_device(device)
        count = process_count(processes, resolved, out, resume=resume, device=place)
        if count > 1:
            options = RunOptions(out, resume=resume, device=place, trackers=tuple(track or ()))
            train_together(count, "train", recipe, data, overrides, options)
            return
        result = run_training(resolved, data, out, resume=resume, device=place, trackers=track or ())
    if not speaks:
        return
    if result.rejections:
        typer.echo(f"Left out: {result.rejected:,} lines or images that cannot be used.")
    for name, value in result.metrics.items():
        typer.echo(f"{name.replace('_', ' ')}: {value:.4g}")
    typer.echo(f"Encoder: {result.bundle}")
