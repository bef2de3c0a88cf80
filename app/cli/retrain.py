"""`recoquest retrain`: train a collection's model further on its own images, texts and feedback."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.endings import stoppable
from app.cli.options import BatchSize, Device, Home, indexed
from app.cli.reindex import build_generation, open_generation, swap_to

if TYPE_CHECKING:
    from app.retraining import Judgement
    from app.settings import Settings
    from index.engine import SearchEngine
    from training.models.bundle import BundleInfo
    from training.recipes.schema import Recipe


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
        str | None, typer.Option("--metric", help="What has to rise; without it rsum or precision_at_10.")
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
) -> None:
    """Train the model that a collection is searched with further, and let it take over if it is better."""
    from app.retraining import Outcome
    from app.settings import load_settings
    from training.host import keep_freed_memory

    keep_freed_memory()
    settings = load_settings(home=home, device=device)
    with (
        indexed(settings) as engine,
        stoppable(f"Stopped. The same command goes on from there, in {out}."),
    ):
        base = _searched_with(engine, collection)
        new = _trained(engine, settings, collection, out, _recipe(out, base, recipe, overrides or []))
        judgement = _judged(out, base, new, metric, gain, settings.device, batch_size)
        rejected = judgement is not None and not judgement.passed
        generation = None if rejected else _embedded(engine, settings, collection, new, batch_size)
        passed = judgement is not None and judgement.passed
        if generation is not None and passed and promote:
            _promoted(engine, settings, collection, generation, batch_size)
    outcome = Outcome(
        verdict="rejected" if rejected else "promoted" if passed and promote else "waiting",
        collection=collection,
        generation=generation,
        bundle=new.digest,
        judgement=judgement,
    )
    _write(out / "result.json", outcome.model_dump_json(indent=2))
    if outcome.verdict == "waiting":
        typer.echo(f"It waits for a person: recoquest activate {collection} {generation}")


def _searched_with(engine: "SearchEngine", collection: str) -> "BundleInfo":
    from index.bundles import registered_bundle
    from index.generations import require_active

    with engine.catalogue.read() as session:
        generation, _ = require_active(session, collection)
    return registered_bundle(generation, engine.bundles_folder)


def _recipe(out: Path, base: "BundleInfo", recipe: str | None, overrides: list[str]) -> "Recipe":
    """The recipe of the retraining, as it was when it began."""
    from app.retraining import continued_recipe
    from training.recipes.load import dump_recipe, load_recipe

    kept = _kept_recipe(out)
    if kept.is_file():
        return load_recipe(str(kept))
    resolved = continued_recipe(base, recipe, overrides)
    out.mkdir(parents=True, exist_ok=True)
    _write(kept, dump_recipe(resolved))
    return resolved


def _kept_recipe(out: Path) -> Path:
    return out / "recipe.yaml"


def _trained(
    engine: "SearchEngine", settings: "Settings", collection: str, out: Path, recipe: "Recipe"
) -> "BundleInfo":
    """The new model, trained on the collection as it was when the retraining began."""
    from app.processes.together import process_count, train_together
    from index.export import export_collection
    from training.models.bundle import read_bundle
    from training.trainer.run import train
    from training.trainer.run_folder import RunFolder

    data, run = out / "data", RunFolder(out / "run")
    if not data.exists():
        feedback = recipe.data.text_unit == "sentence"
        found = export_collection(engine, collection, data, feedback=feedback)
        typer.echo(
            f"{collection}: {found.images:,} images, {found.left_out:,} left out; from feedback "
            f"{found.liked:,} pairs of a text and an image, and {found.disliked:,} that do not go together."
        )
    if not run.bundle.exists():
        resume, device = run.recover(), settings.device
        count = process_count(settings.train_processes, recipe, run.path, resume=resume, device=device)
        if count > 1:
            train_together(count, str(_kept_recipe(out)), data, run.path, [], resume=resume, device=device)
        else:
            train(recipe, data, run.path, resume=resume, device=device)
    return read_bundle(run.bundle)


def _judged(
    out: Path,
    base: "BundleInfo",
    new: "BundleInfo",
    metric: str | None,
    gain: float,
    device: str,
    batch_size: int,
) -> "Judgement | None":
    """The new model against the one that was searched when it was judged first."""
    from app.retraining import Judgement, judge
    from training.data.manifest import read_manifest
    from training.evaluation.evaluate import label_template_of

    kept = out / "judgement.json"
    if kept.is_file():
        found: Judgement | None = Judgement.model_validate_json(kept.read_bytes())
    else:
        found = judge(
            base,
            new,
            read_manifest(out / "data"),
            gain=gain,
            metric=metric,
            label_template=label_template_of(new.recipe),
            device=device,
            batch_size=batch_size,
        )
    if found is None:
        typer.echo("Nothing is held out (split test or val) to judge the new model by.")
        return None
    _write(kept, found.model_dump_json(indent=2))
    verdict = "passes" if found.passed else "does not pass"
    if new.digest == base.digest:
        typer.echo("No epoch made the model better on the images for validation: it stays as it is.")
    typer.echo(
        f"{found.metric} on {found.images:,} images held out ({found.held_out}): {found.before:.2f} before, "
        f"{found.after:.2f} after: the new model {verdict}."
    )
    return found


def _embedded(
    engine: "SearchEngine", settings: "Settings", collection: str, new: "BundleInfo", batch_size: int
) -> int:
    """The number of the generation by the new model, which lacks nothing."""
    generation, encoder, _ = open_generation(engine, settings, collection, new.folder, None)
    build_generation(engine, generation, encoder, batch_size)
    return generation.id


def _promoted(
    engine: "SearchEngine", settings: "Settings", collection: str, number: int, batch_size: int
) -> None:
    """Search in a generation, unless that is what is done already."""
    if engine.active(collection).generation != number:
        generation, encoder, seconds = open_generation(engine, settings, collection, None, number)
        swap_to(engine, settings, generation, encoder, seconds, batch_size)


def _write(path: Path, content: str) -> None:
    from training.atomic import atomic_file

    with atomic_file(path) as file:
        file.write(content.encode() + b"\n")
