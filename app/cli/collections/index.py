"""`recoquest index`: embed a manifest and make it searchable."""

import re
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.errors import stoppable
from app.cli.options import (
    BatchSize,
    Device,
    Home,
    MaxImagePixels,
    MaxRejected,
    SplitName,
    Strict,
    end_strictly,
    first_of,
    indexed,
    name_left_out,
    read_split,
)

if TYPE_CHECKING:
    from app.settings import Settings
    from index.ingest import IngestReport
    from index.views.manager import Choice
    from training.common.manifest import Manifest, Rejections

ChosenView = Literal["auto", "exact", "ivf", "mapped", "gpu"]


def index(
    collection: Annotated[str, typer.Argument(help="Name of the collection; made when it is new.")],
    bundle: Annotated[Path | None, typer.Option("--bundle", help="Folder of the trained encoder.")] = None,
    data: Annotated[Path | None, typer.Option("--data", help="Folder with manifest.jsonl.")] = None,
    split: SplitName = None,
    batch_size: BatchSize = 64,
    max_rejected: MaxRejected = 1.0,
    max_image_pixels: MaxImagePixels = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove images of the collection that the manifest no longer has.")
    ] = False,
    prune_limit: Annotated[
        str | None,
        typer.Option(
            "--prune-limit",
            help="Most images that --prune may remove: a number, or a share such as 50%; by default 10, or "
            "10% of the images if that is more.",
        ),
    ] = None,
    strict: Strict = False,
    home: Home = None,
    device: Device = None,
    view: Annotated[
        ChosenView | None,
        typer.Option("--view", help="Kind of view that is searched; auto: by size and memory."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which view is searched, and why; embeds nothing.")
    ] = False,
) -> None:
    """Embed the images of a manifest into a collection; run again, it goes on or brings it up to date."""
    from app.settings import load_settings

    if view is not None or explain:
        _choose(collection, home, device, view, explain=explain)
        if bundle is None and data is None and not prune:
            return
    if bundle is None or data is None:
        raise typer.BadParameter("--bundle and --data are needed to embed a manifest.")
    with stoppable("Stopped. What is embedded is kept; the same command goes on from there."):
        limit = None if prune_limit is None else _limit(prune_limit)
        manifest = read_split(data, split, max_rejected)
        settings = load_settings(home=home, device=device, max_image_pixels=max_image_pixels)
        rejections = _embed(
            collection, bundle, manifest, settings, batch_size=batch_size, prune=prune, limit=limit
        )
        end_strictly(manifest.rejections, rejections, strict=strict)


def _limit(given: str) -> float:
    """A number of images, or a share of them as a fraction that is no integer by its type."""
    found = re.fullmatch(r"(\d{1,9})|(\d{1,3}(?:\.\d{1,9})?) ?%", given.strip())
    if found is None or (found[2] and float(found[2]) > 100):
        raise typer.BadParameter(
            f"{given!r} is neither a number of images nor a share such as 50%.", param_hint="--prune-limit"
        )
    return int(found[1]) if found[1] else float(found[2]) / 100


def _embed(
    collection: str,
    bundle: Path,
    manifest: "Manifest",
    settings: "Settings",
    *,
    batch_size: int,
    prune: bool,
    limit: float | None,
) -> "Rejections":
    from app.audit.trail import moves_recorded, record_command, removals_recorded, writes_recorded
    from app.collections.names import refuse_gained_roles
    from app.engine import open_engine
    from app.generations.lifecycle.build_generation import finish_swap
    from app.generations.lifecycle.bulk_encoder import load_bulk_encoder
    from index.ingest import ingest_manifest
    from training.common.host import keep_freed_memory

    keep_freed_memory()
    with closing(open_engine(settings)) as engine:
        catalogue = engine.home.catalogue
        with catalogue.read() as session:
            refuse_gained_roles(settings, session, collection)
        started = monotonic()
        encoder = load_bulk_encoder(engine.home, bundle, settings.device)
        seconds = monotonic() - started
        report = ingest_manifest(
            engine,
            collection,
            encoder,
            manifest,
            batch_size=batch_size,
            limits=settings.image_limits,
            keep_metadata=settings.keep_metadata,
            preload_s=settings.refresh_s + seconds,
            prune=prune,
            prune_limit=limit,
            record=writes_recorded(settings, catalogue, collection, "index"),
            record_pruned=removals_recorded(settings, catalogue, collection, "index --prune"),
            record_moved=moves_recorded(settings, catalogue, collection, "index"),
        )
        # Its images are named by the events of its batches.
        record_command(
            settings,
            catalogue,
            "create",
            "index",
            collection=collection,
            added=report.added,
            updated=report.updated,
            moved=len(report.moved),
            pruned=report.pruned,
        )
        _say(collection, report)
        if report.took_over is not None:
            finish_swap(engine, settings, report.took_over)
    return report.rejections


def _say(collection: str, report: "IngestReport") -> None:
    name_left_out(report.rejections)
    lines, images = report.refused_lines, len(report.rejections)
    moved = f"{len(report.moved):,} moved, " if report.moved else ""
    typer.echo(
        f"{collection}: {report.found:,} lines found = {report.taken:,} taken ({report.added:,} added, "
        f"{moved}{report.updated:,} updated, {report.unchanged:,} unchanged) + {lines + images:,} refused "
        f"(lines: {lines:,}, images: {images:,}) + {report.left_out:,} left out (other splits)."
    )
    moves = [f"{former} to {name}" for former, name in sorted(report.moved.items())]
    for names, why, also in (
        (moves, "Moved, since the manifest has their files under other ids", ""),
        (report.replaced, "Removed, since their files are gone and moved files have their ids", ""),
        (
            report.ambiguous,
            "Taken as new, since several images that are gone had the same file",
            "; judgements and cases stay with the former ids",
        ),
        (report.outdated, "Refused, and in the collection as they were before", ""),
    ):
        if names:
            typer.echo(f"{why}: {len(names):,} ({first_of(names)}){also}.")
    if report.truncated:
        typer.echo(f"Texts longer than the encoder reads, found by their beginning: {report.truncated:,}.")
    if report.pruned:
        typer.echo(
            f"Removed, since the manifest no longer has them: {report.pruned:,} ({first_of(report.absent)})."
        )
    elif report.absent:
        typer.echo(
            f"In the collection and not in the manifest: {len(report.absent):,} ({first_of(report.absent)}); "
            "--prune removes them."
        )


def _choose(
    collection: str, home: Path | None, device: str | None, view: ChosenView | None, *, explain: bool
) -> None:
    """Set the view of a collection that is there, or say which one it has."""
    from app.settings import load_settings

    with indexed(load_settings(home=home, device=device)) as engine:
        if view is not None:
            engine.set_view(collection, None if view == "auto" else view)
            engine.save_snapshot(collection)
        weighed = explain or (view == "gpu" and engine.collection(collection).generation is not None)
        choices = engine.explain_views(collection) if weighed else []
        point = engine.operating_point(collection) if explain else None
    if view == "gpu":
        _name_refusal(collection, choices)
    if explain:
        _print(choices)
    if point is not None:
        typer.echo(
            f"recall@10 of {point.queries:,} calibration queries: {point.recall:.3f} on the mean, "
            f"{point.lowest:.1f} of the lowest; {point.lists:,} lists and {point.candidates:,} candidates"
        )


def _name_refusal(collection: str, choices: "list[Choice]") -> None:
    """Say why a collection is not searched on the GPU here, if it is not; elsewhere it may be."""
    chosen = next((choice for choice in choices if choice.chosen), None)
    if chosen is not None and chosen.name != "gpu":
        reason = next(choice.reason for choice in choices if choice.name == "gpu")
        typer.echo(
            f"The choice is kept, but on this machine {collection!r} is searched by the view "
            f"{chosen.name!r}: {reason}.",
            err=True,
        )


def _print(choices: "list[Choice]") -> None:
    for choice in choices:
        mark = "*" if choice.chosen else " "
        typer.echo(f"{mark} {choice.name:6} {choice.bytes / 1024**2:10,.1f} MiB  {choice.reason}")
