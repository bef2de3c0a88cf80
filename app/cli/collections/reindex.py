"""`recoquest reindex`: embed a collection with another bundle, beside the one that is searched."""

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.collections.generations import print_comparison
from app.cli.errors import stoppable
from app.cli.options import BatchSize, Device, Home, indexed

if TYPE_CHECKING:
    from app.settings import Settings
    from index.catalogue.collections import Generation
    from index.engine import SearchEngine
    from training.models.encoder import Encoder


def reindex(
    collection: Annotated[str, typer.Argument(help="Name of the collection.")],
    bundle: Annotated[Path | None, typer.Option("--bundle", help="Folder of the trained encoder.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Instead of a bundle: a registered model, by digest or name."),
    ] = None,
    generation: Annotated[
        int | None,
        typer.Option("--generation", help="Instead of a bundle: give this generation what it lacks."),
    ] = None,
    activate: Annotated[
        bool, typer.Option("--activate/--no-activate", help="Search in it as soon as it is complete.")
    ] = False,
    batch_size: BatchSize = 64,
    home: Home = None,
    device: Device = None,
) -> None:
    """Embed a collection from its stored images with another bundle; run again, it goes on."""
    from app.settings import load_settings
    from index.generations.models import find_model
    from training.host import keep_freed_memory

    if [bundle, model, generation].count(None) != 2:
        raise typer.BadParameter("give exactly one of --bundle, --model and --generation.")
    keep_freed_memory()
    settings = load_settings(home=home, device=device)
    with (
        indexed(settings) as engine,
        stoppable("Stopped. What is embedded is kept; the same command goes on from there."),
    ):
        if model is not None:
            with engine.home.catalogue.read() as session:
                bundle = engine.home.bundles_folder / find_model(session, model).digest
        found, encoder, seconds = open_generation(engine, settings, collection, bundle, generation)
        build_generation(engine, found, encoder, batch_size)
        if activate:
            swap_to(engine, settings, found, encoder, seconds, batch_size)


def open_generation(
    engine: "SearchEngine", settings: "Settings", collection: str, bundle: Path | None, number: int | None
) -> "tuple[Generation, Encoder, float]":
    """The generation of a bundle or a number, its encoder, and the seconds that loading this took."""
    from index.files.bundles import registered_bundle
    from index.generations.activation import generation_of
    from index.generations.reindex import generation_for
    from training.models.encoder import load_encoder

    if number is not None:
        with engine.home.catalogue.read() as session:
            found = generation_of(session, collection, number)
        bundle = registered_bundle(found, engine.home.bundles_folder).folder
    assert bundle is not None
    started = monotonic()
    encoder = load_encoder(bundle, settings.device)
    seconds = monotonic() - started
    if number is None:
        found = generation_for(engine.home, collection, encoder)
    return found, encoder, seconds


def swap_to(
    engine: "SearchEngine",
    settings: "Settings",
    generation: "Generation",
    encoder: "Encoder",
    load_seconds: float,
    batch_size: int,
    instead_of: str | None = None,
) -> None:
    """Make a generation the one that is searched, and drop those that are too old to roll back to.

    Raises:
        ActiveChangedError: Another model than that with the digest `instead_of` came to be searched with.
    """
    from index.generations.swap import swap

    embedded = swap(
        engine,
        generation,
        encoder,
        settle_s=settings.refresh_s + load_seconds,
        batch_size=batch_size,
        instead_of=instead_of,
    )
    if embedded:
        typer.echo(f"Images that it lacked and that were embedded first: {embedded:,}.")
    finish_swap(engine, settings, generation)


def finish_swap(engine: "SearchEngine", settings: "Settings", generation: "Generation") -> None:
    """Say that a generation is searched now, and drop those that are too old to roll back to."""
    from index.generations.retention import try_drop_old_generations

    typer.echo(
        f"{generation.collection} is now searched in generation {generation.id} by {generation.model}."
    )
    dropped = try_drop_old_generations(engine.home, generation.collection, settings.keep_generations)
    if dropped:
        typer.echo(f"Dropped: generation {', '.join(map(str, dropped))}.")


def build_generation(
    engine: "SearchEngine", generation: "Generation", encoder: "Encoder", batch_size: int
) -> None:
    """Embed what a generation lacks, and compare it with the one that is searched."""
    from index.catalogue.collections import find_generation
    from index.generations.comparison import compare
    from index.generations.reindex import reindex as embed

    report = embed(engine, generation, encoder, batch_size=batch_size)
    typer.echo(
        f"{generation.collection}: generation {generation.id} by {generation.model} is complete; "
        f"{report.images:,} images were embedded."
    )
    with engine.home.catalogue.read() as session:
        active = find_generation(session, generation.collection_id, "active")
    if active is None or active.id == generation.id:
        return
    comparison = compare(engine.home, active, generation)
    if comparison is not None:
        print_comparison(comparison, generation.id)
    typer.echo(f"To search in it: recoquest activate {generation.collection} {generation.id}", err=True)
