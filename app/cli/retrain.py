"""`recoquest retrain`: train a collection's model further on its own images, texts and feedback."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.errors import stoppable
from app.cli.options import BatchSize, Collection, Device, Home, Sets, Track, opened
from training.common.atomic import write_text
from training.common.errors import DataError
from training.common.host import keep_freed_memory
from training.common.progress import PROGRESS_VARIABLE
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.tracking import check_trackers

if TYPE_CHECKING:
    from index.engine import SearchEngine
    from index.feedback import ExportReport
    from training.recipes.schema import Recipe


def retrain(
    collection: Collection,
    out: Annotated[Path, typer.Option(help="Folder of the retraining; repeat the command to continue.")],
    recipe: Annotated[
        str | None, typer.Option(help="Name or YAML file; without it the model's own recipe.")
    ] = None,
    overrides: Sets = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric that has to rise; rsum or precision_at_10 if none.")
    ] = None,
    gain: Annotated[
        float, typer.Option(help="By how much it has to rise; below 0: how much it may fall.")
    ] = 0.0,
    promote: Annotated[
        bool, typer.Option("--promote/--no-promote", help="Search with the new model if it passes.")
    ] = False,
    batch_size: BatchSize = 64,
    home: Home = None,
    device: Device = None,
    track: Track = None,
) -> None:
    """Train the model that a collection is searched with further, and let it take over if it is better."""
    from app.generations.retraining import Retrained, decide
    from app.jobs.launch import process_count, train_together
    from app.jobs.queue import refuse_second_retraining
    from index.catalogue.collections import require_collection
    from training.models.bundle import read_bundle
    from training.trainer.opening import RunOptions
    from training.trainer.run import train
    from training.trainer.run_state.folder import RunFolder

    trackers = track or ()
    check_trackers(trackers)
    keep_freed_memory()
    with (
        opened(home=home, device=device) as installation,
        stoppable(f"Stopped. The same command continues from there, in {out}."),
    ):
        engine, settings = installation.engine, installation.settings
        # For a job, this was checked when it was submitted.
        if PROGRESS_VARIABLE not in os.environ:
            with installation.catalogue.write() as session:
                require_collection(session, collection)
                refuse_second_retraining(session, [collection])
        resolved = _recipe(engine, collection, out, recipe, overrides or [])
        data, run = out / "data", RunFolder(out / "run")
        if not run.bundle.exists():
            resume, chosen = run.recover(), settings.device
            count = process_count(settings.train_processes, resolved, run.path, resume=resume, device=chosen)
            if count > 1:
                kept_recipe, where = str(out / "recipe.yaml"), json.dumps(resolved.data.cache_images)
                sets = [f"data.cache_images={where}"]
                options = RunOptions(run.path, resume=resume, device=chosen, trackers=tuple(trackers))
                train_together(count, "train", kept_recipe, data, sets, options)
            else:
                train(resolved, data, run.path, resume=resume, device=chosen, trackers=trackers)
        new = read_bundle(run.bundle)
        retrained = Retrained(collection, out, new, metric, gain, promote)
        outcome = decide(engine, settings, retrained, batch_size)
    write_text(out / "result.json", outcome.model_dump_json(indent=2))
    if outcome.verdict == "waiting":
        typer.echo(f"It waits for a person: recoquest activate {collection} {outcome.generation}")


def _recipe(
    engine: "SearchEngine", collection: str, out: Path, recipe: str | None, overrides: list[str]
) -> "Recipe":
    """Return the recipe of the retraining; the first time, also export the collection."""
    from app.generations import retraining
    from app.jobs.launch import without_copies
    from index.feedback import export_collection
    from index.files.bundles import install_bundle
    from training.common.manifest import read_manifest
    from training.models.bundle import read_bundle
    from training.recipes.load import dump_recipe, first_difference, load_recipe

    kept_recipe, data = out / "recipe.yaml", out / "data"
    if kept_recipe.is_file():
        # Earlier releases kept images on the disk.
        begun = without_copies(load_recipe(str(kept_recipe)), overrides)
        if recipe is not None or overrides:
            base = read_bundle(Path(begun.train.start_from or ""))
            requested = retraining.continued_recipe(base, recipe, overrides, begun.name)
            settled = retraining.settled_settings(base, recipe, overrides)
            requested, _ = retraining.fit_recipe(requested, read_manifest(data), settled)
            if key := first_difference(requested, begun):
                raise TrainingError(
                    f"The retraining in {out} was begun with another {key}: leave --recipe and --set out to "
                    "continue with it, or name another folder by --out."
                )
        return begun
    # A copy: the collection may come to be searched with others, and drop this one, before the training ends.
    copies = out.absolute() / "base"
    _, base = retraining.searched_with(engine.home, collection)
    name = retraining.version_name(base, {model.name for model in engine.models()})
    copied = replace(base, folder=copies / base.digest)
    resolved = retraining.continued_recipe(copied, recipe, overrides, name)
    install_bundle(base, copies)
    exported = not data.exists()
    if exported:
        learned, sentences = resolved.data.text_unit == "sentence", resolved.data.label_sentences
        export_report = export_collection(
            engine.home, collection, data, feedback=learned, label_sentences=sentences
        )
        _tell_export(collection, export_report, learned=learned)
    try:
        manifest = read_manifest(data)
        settled = retraining.settled_settings(base, recipe, overrides)
        fitted, changes = retraining.fit_recipe(resolved, manifest, settled)
    except DataError:
        if exported:
            # The next try exports again, with judgements made meanwhile.
            shutil.rmtree(data)
        raise
    for sentence in (retraining.describe_held_out(manifest), *changes):
        typer.echo(sentence)
    write_text(kept_recipe, dump_recipe(fitted))
    return fitted


def _tell_export(collection: str, exported: "ExportReport", *, learned: bool) -> None:
    typer.echo(
        f"{collection}: {exported.images:,} images, {exported.left_out:,} left out; from feedback "
        f"{exported.liked:,} pairs of a text and an image, and {exported.disliked:,} that do not go together."
    )
    judged = exported.judged
    if not learned:
        reasons = [(judged.all, "the recipe takes all texts of an image as one report")]
    else:
        reasons = [
            (judged.held_out, "of images that are not for training (split train)"),
            (judged.without_text, "of searches by images only"),
            (judged.several_parts, "of hits that were not relevant to several things at once"),
            (
                exported.alone,
                "of hits that were not relevant, whose image has no text or whose text has no image",
            ),
        ]
    if count := sum(count for count, _ in reasons):
        parts = ", ".join(f"{count:,} {why}" for count, why in reasons if count)
        typer.echo(f"{count:,} of {judged.all:,} judgements are not learned from: {parts}.")
