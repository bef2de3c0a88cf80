"""A new generation of a collection: opened, embedded, compared with the active one, activated."""

from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import structlog
import typer
from rich.table import Table
from sqlalchemy import select

from app.jobs.folder import ended_long_ago
from app.jobs.queue import RETRAIN
from app.settings import Settings
from index.catalogue.collections import Generation, find_generation
from index.catalogue.jobs import list_jobs
from index.catalogue.tables import CollectionRow, GenerationRow, ModelRow
from index.engine import SearchEngine
from index.files.bundles import installed_bundle, registered_bundle
from index.generations.activation import drop_generation, generation_of, old_by_hand, try_drop_old_generations
from index.generations.comparison import Comparison, compare
from index.generations.reindex import generation_for, swap
from index.generations.reindex import reindex as embed
from index.home import Home
from index.writes.vectors import ImageEncoder
from training.common.host import cores
from training.common.progress import console
from training.models.bundle import read_bundle
from training.models.onnx import FOLDER, OnnxEncoder, can_export, computes_on_cpu, load_onnx_encoder

if TYPE_CHECKING:
    from training.models.encoder import Encoder

_log = structlog.stdlib.get_logger(__name__)


def load_bulk_encoder(home: Home, bundle: Path, device: str) -> "Encoder | OnnxEncoder":
    """Load a bundle; on a CPU its ONNX graphs are made in its copy under `home`, unless they are there.

    Raises:
        BundleError: The bundle is missing, damaged or of a newer release, or compares pairs.
        RecipeError: The device does not exist.
    """
    info = read_bundle(bundle)
    if computes_on_cpu(device) and can_export(info):
        with installed_bundle(info, home.bundles_folder) as installed:
            return _on_cpu(bundle, installed.folder)
    # The import of torch takes seconds.
    from training.models.encoder import load_encoder

    return load_encoder(bundle, device)


def _on_cpu(bundle: Path, installed: Path) -> "Encoder | OnnxEncoder":
    by_onnx = load_onnx_encoder(bundle, threads=cores(), graphs=installed / FOLDER)
    # Graphs of earlier releases have no regions.
    if by_onnx is not None and by_onnx.regions == read_bundle(bundle).config.regions:
        return by_onnx
    from training.models.encoder import load_encoder
    from training.models.onnx_export import ExportError, export_towers

    encoder = load_encoder(bundle, "cpu")
    try:
        export_towers(encoder, installed)
    except ExportError as error:
        # The encoder of PyTorch gives the same vectors.
        _log.warning("no ONNX graphs could be made", bundle=installed.name, reason=str(error))
    return load_onnx_encoder(bundle, threads=cores(), graphs=installed / FOLDER) or encoder


def open_generation(
    engine: SearchEngine, settings: Settings, collection: str, bundle: Path | None, number: int | None
) -> tuple[Generation, ImageEncoder, float]:
    """The generation of a bundle or a number, its encoder, and the seconds that loading this took."""
    if number is not None:
        with engine.home.catalogue.read() as session:
            generation = generation_of(session, collection, number)
        bundle = registered_bundle(generation, engine.home.bundles_folder).folder
    assert bundle is not None
    started = monotonic()
    encoder = load_bulk_encoder(engine.home, bundle, settings.device)
    seconds = monotonic() - started
    if number is None:
        generation = generation_for(engine.home, collection, encoder)
    return generation, encoder, seconds


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
    if dropped := try_drop_old_generations(engine.home, generation.collection, settings.keep_generations):
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
    """Embed what a generation lacks, and compare it with the one that is searched."""
    embedded = embed(engine, generation, encoder, batch_size=batch_size)
    typer.echo(
        f"{generation.collection}: generation {generation.id} by {generation.model} is complete; "
        f"{embedded:,} images were embedded."
    )
    with engine.home.catalogue.read() as session:
        active = find_generation(session, generation.collection_id, "active")
    if active is None or active.id == generation.id:
        return
    if (comparison := compare(engine.home, active, generation)) is not None:
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


def drop_superseded_generations(settings: Settings, home: Home) -> list[tuple[str, int]]:
    """Drop generations that old retraining jobs left waiting, but for each collection's latest.

    Raises:
        GenerationError: One was activated meanwhile.
    """
    with home.catalogue.read() as session:
        retrainings = [job for job in list_jobs(session) if job.kind == RETRAIN and job.result]
        query = (
            select(CollectionRow.name, GenerationRow.id, ModelRow.digest)
            .join(CollectionRow, CollectionRow.id == GenerationRow.collection_id)
            .join(ModelRow, ModelRow.id == GenerationRow.model_id)
            .where(GenerationRow.state == "building", GenerationRow.activated.is_(None))
        )
        waiting = {(name, number, digest) for name, number, digest in session.execute(query)}
    made = {
        job.id: (job.result["collection"], job.result["generation"], job.result["bundle"])
        for job in retrainings
        if job.result and job.result.get("generation") is not None
    }
    kept = made.keys() - {job.id for job in ended_long_ago(settings, retrainings)}
    latest = {collection: number for number, (collection, _, _) in sorted(made.items())}
    stay = {made[number] for number in kept.union(latest.values())}
    superseded = sorted(waiting.intersection(made.values()) - stay)
    for collection, number, _ in superseded:
        drop_generation(home, collection, number)
    return [(collection, number) for collection, number, _ in superseded]
