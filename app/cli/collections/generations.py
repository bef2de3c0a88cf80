"""`recoquest generations`, `reindex`, `activate` and `rollback`: the embeddings of a collection."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from app.cli.errors import stoppable
from app.cli.options import BatchSize, Device, Home, indexed
from app.edge.observability.console import console

if TYPE_CHECKING:
    from app.settings import Settings
    from index.catalogue.collections import Generation
    from index.engine import SearchEngine
    from index.writes.embedder import ImageEncoder

Collection = Annotated[str, typer.Argument(help="Name of the collection.")]


def generations(
    collection: Collection,
    drop: Annotated[
        int | None, typer.Option("--drop", help="Remove this generation, which is not searched.")
    ] = None,
    home: Home = None,
) -> None:
    """List the generations of a collection: state, model, counts, times, comparison."""
    from app.generations.lifecycle.build_generation import print_comparison
    from app.settings import load_settings
    from index.generations.activation import drop_generation
    from index.generations.models import list_generations

    with indexed(load_settings(home=home)) as engine:
        if drop is not None:
            drop_generation(engine.home, collection, drop)
        found = list_generations(engine.home, collection)
    table = Table("Number", "State", "Model", "Images", "Texts", "Missing", "Created", "Activated")
    for one in found:
        counts = (f"{one.images:,}", f"{one.texts:,}", f"{one.missing:,}")
        times = ("" if time is None else time[:19].replace("T", " ") for time in (one.created, one.activated))
        table.add_row(str(one.number), one.state, f"{one.model} {one.digest[:12]}", *counts, *times)
    table.caption = "Times are in UTC"
    console().print(table)
    for one in found:
        if one.comparison is not None:
            print_comparison(one.comparison, one.number)


def reindex(
    collection: Collection,
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
    from app.generations.lifecycle.build_generation import build_generation, open_generation
    from app.settings import load_settings
    from index.generations.models import find_model
    from training.common.host import keep_freed_memory

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
        build_generation(engine, found, encoder, batch_size, activated=activate)
        if activate:
            _swap_to(engine, settings, (found, encoder, seconds), batch_size, "reindex")


def activate(
    collection: Collection,
    number: Annotated[int, typer.Argument(min=1, help="Number of the generation.")],
    batch_size: BatchSize = 64,
    home: Home = None,
    device: Device = None,
) -> None:
    """Search in another generation; what it lacks is embedded before."""
    _swap(collection, number, batch_size, home, device)


def rollback(
    collection: Collection, batch_size: BatchSize = 64, home: Home = None, device: Device = None
) -> None:
    """Search again in the generation that was active before; what was written since is embedded before."""
    _swap(collection, None, batch_size, home, device)


def _swap(collection: str, number: int | None, batch_size: int, home: Home, device: Device) -> None:
    from app.generations.lifecycle.build_generation import open_generation
    from app.settings import load_settings
    from index.errors import IncompleteGenerationError
    from index.generations.activation import generation_before, require_complete

    settings = load_settings(home=home, device=device)
    with indexed(settings) as engine, stoppable("Stopped. Nothing has changed but what was embedded."):
        if number is None:
            with engine.home.catalogue.read() as session:
                number = generation_before(session, collection).id
        generation, encoder, seconds = open_generation(engine, settings, collection, None, number)
        try:
            with engine.home.catalogue.read() as session:
                require_complete(session, generation, texts="text" in encoder.modalities)
        except IncompleteGenerationError as error:
            typer.echo(f"{str(error).partition(' To embed')[0]} They are embedded first.", err=True)
        _swap_to(engine, settings, (generation, encoder, seconds), batch_size, "activate")


def _swap_to(
    engine: "SearchEngine",
    settings: "Settings",
    opened: "tuple[Generation, ImageEncoder, float]",
    batch_size: int,
    command: str,
) -> None:
    """Make a generation the one that is searched, and note it in the audit trail."""
    from app.audit.trail import record_command
    from app.generations.lifecycle.build_generation import swap_to

    generation = opened[0]
    swap_to(engine, settings, *opened, batch_size)
    record_command(
        settings,
        engine.home.catalogue,
        "activate",
        command,
        collection=generation.collection,
        model=generation.digest,
        generation=generation.id,
    )
