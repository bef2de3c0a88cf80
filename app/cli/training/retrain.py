"""`recoquest retrain`: train a collection's model further on its own images, texts and feedback."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.errors import stoppable
from app.cli.options import BatchSize, Device, Home, Track, indexed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.settings import Settings
    from index.engine import SearchEngine
    from index.feedback import UsableFeedback
    from training.models.bundle import BundleInfo
    from training.recipes.schema import Recipe
    from training.trainer.run_state.tracking import TrackerName


def retrain(
    collection: Annotated[str, typer.Argument(help="Name of the collection.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the retraining; given again, it goes on.")],
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="Name or YAML file; without it the model's own recipe.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, such as train.epochs=3; may be repeated.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="Metric that has to rise; rsum or precision_at_10 if none.")
    ] = None,
    gain: Annotated[
        float, typer.Option("--gain", help="By how much it has to rise; below 0: how much it may fall.")
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
    from app.generations.lifecycle.takeover import Promotion, write_kept
    from app.settings import load_settings
    from training.common.host import keep_freed_memory
    from training.trainer.run_state.tracking import check_trackers

    check_trackers(track or ())
    keep_freed_memory()
    settings = load_settings(home=home, device=device)
    with (
        indexed(settings) as engine,
        stoppable(f"Stopped. The same command goes on from there, in {out}."),
    ):
        _refuse_beside_a_job(engine, collection)
        kept = _recipe(engine, collection, out, recipe, overrides or [])
        new = _trained(engine, settings, collection, out, kept, track or ())
        outcome = Promotion(
            engine, settings, collection, out, new, metric, gain, promote, batch_size
        ).decide()
    write_kept(out / "result.json", outcome.model_dump_json(indent=2))
    if outcome.verdict == "waiting":
        typer.echo(f"It waits for a person: recoquest activate {collection} {outcome.generation}")


def _refuse_beside_a_job(engine: "SearchEngine", collection: str) -> None:
    """Make sure that no job retrains the collection, but the one that this process may do.

    Raises:
        UnknownCollectionError: No collection has this name.
        JobExistsError: One waits or is under way.
    """
    from app.jobs.queue import refuse_second_retraining
    from index.catalogue.collections import require_collection
    from training.common.progress import PROGRESS_VARIABLE

    if PROGRESS_VARIABLE in os.environ:
        # A worker has started this process: others were looked for when its job was given.
        return
    with engine.home.catalogue.write() as session:
        require_collection(session, collection)
        refuse_second_retraining(session, [collection])


def _recipe(
    engine: "SearchEngine", collection: str, out: Path, recipe: str | None, overrides: list[str]
) -> "Recipe":
    """Return the recipe of the retraining; the first time, export the collection beside it."""
    from app.generations.lifecycle.continued_recipe import (
        continued_recipe,
        fit_recipe,
        settled_settings,
        version_name,
    )
    from app.generations.lifecycle.judge import describe_held_out
    from app.generations.lifecycle.takeover import searched_with, write_kept
    from app.jobs.launch.image_copies import without_copies
    from index.files.bundles import install_bundle
    from training.common.errors import DataError
    from training.common.manifest import read_manifest
    from training.recipes.load import dump_recipe, load_recipe

    kept = out / "recipe.yaml"
    if kept.is_file():
        # Earlier releases kept images on the disk.
        begun = without_copies(load_recipe(str(kept)), overrides)
        if recipe is not None or overrides:
            _refuse_another(out, begun, recipe, overrides)
        return begun
    # A copy: the collection may come to be searched with others, and drop this one, before the training ends.
    copies = out.absolute() / "base"
    _, base = searched_with(engine.home, collection)
    name = version_name(base, {model.name for model in engine.models()})
    resolved = continued_recipe(replace(base, folder=copies / base.digest), recipe, overrides, name)
    install_bundle(base, copies)
    data, settled = out / "data", settled_settings(base, recipe, overrides)
    exported = _export(engine, collection, data, resolved)
    try:
        manifest = read_manifest(data)
        fitted = fit_recipe(resolved, manifest, settled)
    except DataError:
        if exported:
            # The next try exports again, with judgements made meanwhile.
            shutil.rmtree(data)
        raise
    for sentence in (describe_held_out(manifest), *fitted.changes):
        typer.echo(sentence)
    write_kept(kept, dump_recipe(fitted.recipe))
    return fitted.recipe


def _refuse_another(out: Path, begun: "Recipe", recipe: str | None, overrides: list[str]) -> None:
    """Make sure that a retraining goes on with the recipe and the settings that it began with.

    Raises:
        TrainingError: It began with others.
    """
    from app.generations.lifecycle.continued_recipe import continued_recipe, fit_recipe, settled_settings
    from training.common.manifest import read_manifest
    from training.models.bundle import read_bundle
    from training.recipes.load import first_difference
    from training.trainer.run_state.errors import TrainingError

    base = read_bundle(Path(begun.train.start_from or ""))
    asked = continued_recipe(base, recipe, overrides, begun.name)
    if (out / "data").exists():
        settled = settled_settings(base, recipe, overrides)
        asked = fit_recipe(asked, read_manifest(out / "data"), settled).recipe
    if key := first_difference(asked, begun):
        raise TrainingError(
            f"The retraining in {out} was begun with another {key}: leave --recipe and --set out to go "
            "on with it, or name another folder by --out."
        )


def _export(engine: "SearchEngine", collection: str, data: Path, recipe: "Recipe") -> bool:
    """Export the collection for the retraining, unless that was done before; tell if it was done now."""
    from index.feedback import export_collection

    if data.exists():
        return False
    feedback = recipe.data.text_unit == "sentence"
    sentences = recipe.data.label_sentences
    found = export_collection(engine.home, collection, data, feedback=feedback, label_sentences=sentences)
    typer.echo(
        f"{collection}: {found.images:,} images, {found.left_out:,} left out; from feedback "
        f"{found.liked:,} pairs of a text and an image, and {found.disliked:,} that do not go together."
    )
    if unlearned := _unlearned(found.judged, found.alone, learned=feedback):
        typer.echo(unlearned)
    return True


def _unlearned(judged: "UsableFeedback", alone: int, *, learned: bool) -> str:
    """Number of judgements that training cannot use, by reason; empty if all are used."""
    if not learned:
        reasons = [(judged.all, "the recipe takes all texts of an image as one report")]
    else:
        reasons = [
            (judged.held_out, "of images that are not for training (split train)"),
            (judged.without_text, "of searches by images only"),
            (judged.several_parts, "of hits that were not relevant to several things at once"),
            (alone, "of hits that were not relevant, whose image has no text or whose text has no image"),
        ]
    parts = [f"{count:,} {why}" for count, why in reasons if count]
    count = sum(count for count, _ in reasons)
    return (
        f"{count:,} of {judged.all:,} judgements are not learned from: {', '.join(parts)}." if parts else ""
    )


def _trained(
    engine: "SearchEngine",
    settings: "Settings",
    collection: str,
    out: Path,
    recipe: "Recipe",
    trackers: "Sequence[TrackerName]",
) -> "BundleInfo":
    """The new model, trained on the collection as it was when the retraining began."""
    from app.jobs.launch.process_group import process_count, train_together
    from training.models.bundle import read_bundle
    from training.trainer.run import train
    from training.trainer.run_state.folder import RunFolder

    data, run = out / "data", RunFolder(out / "run")
    # An earlier release has written the recipe before it.
    _export(engine, collection, data, recipe)
    if not run.bundle.exists():
        resume, device = run.recover(), settings.device
        count = process_count(settings.train_processes, recipe, run.path, resume=resume, device=device)
        if count > 1:
            kept, where = str(out / "recipe.yaml"), json.dumps(recipe.data.cache_images)
            sets = [f"data.cache_images={where}"]
            train_together(count, kept, data, run.path, sets, resume=resume, device=device, trackers=trackers)
        else:
            train(recipe, data, run.path, resume=resume, device=device, trackers=trackers)
    return read_bundle(run.bundle)
