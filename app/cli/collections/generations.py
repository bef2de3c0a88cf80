"""`recoquest generations`, `activate` and `rollback`: which embedding of a collection is searched."""

from typing import Annotated

import typer
from rich.table import Table

from app.cli.errors import stoppable
from app.cli.options import BatchSize, Device, Home, indexed
from app.observability.console import console

Collection = Annotated[str, typer.Argument(help="Name of the collection.")]


def generations(
    collection: Collection,
    drop: Annotated[
        int | None, typer.Option("--drop", help="Remove this generation, which is not searched.")
    ] = None,
    home: Home = None,
) -> None:
    """List the generations of a collection: state, model, counts, times, comparison."""
    from app.lifecycle.build_generation import print_comparison
    from app.settings import load_settings
    from index.generations.models import list_generations
    from index.generations.retention import drop_generation

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
    from app.audit.trail import record_command
    from app.lifecycle.build_generation import open_generation, swap_to
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
        swap_to(engine, settings, generation, encoder, seconds, batch_size)
        record_command(
            settings,
            engine.home.catalogue,
            "activate",
            "activate",
            collection=collection,
            model=generation.digest,
            generation=generation.id,
        )
