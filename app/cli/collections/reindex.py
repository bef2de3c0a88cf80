"""`recoquest reindex`: embed a collection with another bundle, beside the one that is searched."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import stoppable
from app.cli.options import BatchSize, Device, Home, indexed


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
    from app.audit.trail import record_command
    from app.lifecycle.build_generation import build_generation, open_generation, swap_to
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
        build_generation(engine, found, encoder, batch_size, activated=activate)
        if activate:
            swap_to(engine, settings, found, encoder, seconds, batch_size)
            record_command(
                settings,
                engine.home.catalogue,
                "activate",
                "reindex",
                collection=found.collection,
                model=found.digest,
                generation=found.id,
            )
