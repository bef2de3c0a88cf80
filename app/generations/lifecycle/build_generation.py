"""A new generation of a collection: opened, embedded, compared with the active one, activated."""

from pathlib import Path
from time import monotonic

import typer
from rich.table import Table

from app.edge.observability.console import console
from app.generations.lifecycle.bulk_encoder import load_bulk_encoder
from app.settings import Settings
from index.catalogue.collections import Generation, find_generation
from index.engine import SearchEngine
from index.files.bundles import registered_bundle
from index.generations.activation import generation_of, old_by_hand, try_drop_old_generations
from index.generations.comparison import Comparison, compare
from index.generations.reindex import generation_for, swap
from index.generations.reindex import reindex as embed
from index.writes.embedder import ImageEncoder


def open_generation(
    engine: SearchEngine, settings: Settings, collection: str, bundle: Path | None, number: int | None
) -> tuple[Generation, ImageEncoder, float]:
    """The generation of a bundle or a number, its encoder, and the seconds that loading this took."""
    if number is not None:
        with engine.home.catalogue.read() as session:
            found = generation_of(session, collection, number)
        bundle = registered_bundle(found, engine.home.bundles_folder).folder
    assert bundle is not None
    started = monotonic()
    encoder = load_bulk_encoder(engine.home, bundle, settings.device)
    seconds = monotonic() - started
    if number is None:
        found = generation_for(engine.home, collection, encoder)
    return found, encoder, seconds


def swap_to(
    engine: SearchEngine,
    settings: Settings,
    generation: Generation,
    encoder: ImageEncoder,
    load_seconds: float,
    batch_size: int,
    instead_of: str | None = None,
) -> None:
    """Make a generation the one that is searched, and drop those that are too old to roll back to.

    Raises:
        ActiveChangedError: The active generation is of another model than `instead_of`.
    """
    embedded = swap(
        engine,
        generation,
        encoder,
        preload_s=settings.refresh_s + load_seconds,
        batch_size=batch_size,
        instead_of=instead_of,
    )
    if embedded:
        typer.echo(f"Images that it lacked and that were embedded first: {embedded:,}.")
    finish_swap(engine, settings, generation)


def finish_swap(engine: SearchEngine, settings: Settings, generation: Generation) -> None:
    """Say that a generation is searched now, and drop those that are too old to roll back to."""
    typer.echo(
        f"{generation.collection} is now searched in generation {generation.id} by {generation.model}."
    )
    dropped = try_drop_old_generations(engine.home, generation.collection, settings.keep_generations)
    if dropped:
        typer.echo(f"Dropped: generation {', '.join(map(str, dropped))}.")
    name_kept(engine, generation.collection, settings.keep_generations)


def name_kept(engine: SearchEngine, collection: str, keep: int) -> None:
    """Say which old generations stay, since a person has activated them, and how they are dropped."""
    for number in old_by_hand(engine.home, collection, keep):
        typer.echo(
            f"{collection}: old generation {number} stays, since a person activated it. To drop it: "
            f"recoquest generations {collection} --drop {number}"
        )


def build_generation(
    engine: SearchEngine,
    generation: Generation,
    encoder: ImageEncoder,
    batch_size: int,
    *,
    activated: bool = False,
) -> None:
    """Embed what a generation lacks, and compare it with the one that is searched.

    Args:
        engine: Engine of the home.
        generation: Complete afterwards.
        encoder: Of its model.
        batch_size: Images a forward pass.
        activated: The caller makes it the one that is searched, so nobody has to be told how.
    """
    embedded = embed(engine, generation, encoder, batch_size=batch_size)
    typer.echo(
        f"{generation.collection}: generation {generation.id} by {generation.model} is complete; "
        f"{embedded:,} images were embedded."
    )
    with engine.home.catalogue.read() as session:
        active = find_generation(session, generation.collection_id, "active")
    if active is None or active.id == generation.id:
        return
    comparison = compare(engine.home, active, generation)
    if comparison is not None:
        print_comparison(comparison, generation.id)
    if not activated:
        typer.echo(f"To search in it: recoquest activate {generation.collection} {generation.id}", err=True)


def print_comparison(comparison: Comparison, number: int) -> None:
    """Show how a generation compares with the one that was active."""
    table = Table(
        f"Generation {number} against {comparison.against}", "Queries", "Before", "After", "Same of first 10"
    )
    texts, images = comparison.text_to_image, comparison.image_to_image
    if texts is not None:
        for k in texts.active:
            same = f"{texts.overlap:.1f} %" if k == 10 else ""
            before, after = f"{texts.active[k]:.1f} %", f"{texts.new[k]:.1f} %"
            table.add_row(f"text to image, recall@{k}", f"{texts.queries:,}", before, after, same)
    if images is not None:
        table.add_row("image to image", f"{images.queries:,}", "", "", f"{images.overlap:.1f} %")
        if images.active is not None and images.new is not None:
            before, after = f"{images.active:.1f} %", f"{images.new:.1f} %"
            table.add_row("same label, precision@10", f"{images.labelled:,}", before, after, "")
    table.caption = f"Held-out images: {comparison.held_out}; searched among {comparison.candidates:,} images"
    console().print(table)
