"""`recoquest index`, `generations`, `reindex`, `activate` and `rollback`: embed images to be searched."""

import re
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from app.cli.errors import stoppable
from app.cli.options import (
    BatchSize,
    Bundle,
    Collection,
    Device,
    Home,
    Installation,
    MaxImagePixels,
    MaxRejected,
    SplitName,
    Strict,
    end_strictly,
    first_of,
    name_left_out,
    opened,
    print_table,
    read_split,
    shown_time,
)
from index.errors import IncompleteGenerationError
from training.common.host import keep_freed_memory

if TYPE_CHECKING:
    from index.catalogue.collections import Generation
    from index.ingest import IngestReport
    from index.writes.vectors import ImageEncoder

# Images a forward pass, of the few that a generation may lack when it is activated.
_BATCH_SIZE: Final = 64
ChosenView = Literal["auto", "exact", "ivf", "mapped", "gpu"]


def index(
    collection: Annotated[str, typer.Argument(help="Name of the collection; made when it is new.")],
    bundle: Bundle = None,
    data: Annotated[Path | None, typer.Option(help="Folder with manifest.jsonl.")] = None,
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
            help="Most images that --prune may remove: a number, or a share such as 50%; by default 10, or "
            "10% of the images if that is more."
        ),
    ] = None,
    strict: Strict = False,
    home: Home = None,
    device: Device = None,
    view: Annotated[
        ChosenView | None, typer.Option(help="Kind of view that is searched; auto: by size and memory.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which view is searched, and why; embeds nothing.")
    ] = False,
) -> None:
    """Embed the images of a manifest into a collection; run it again to continue or update."""
    if view is not None or explain:
        _choose(collection, view, explain=explain, home=home, device=device)
        if bundle is None and data is None and not prune:
            return
    if bundle is None or data is None:
        raise typer.BadParameter("--bundle and --data are needed to embed a manifest.")
    with stoppable("Stopped. What is embedded is kept; the same command continues from there."):
        from app.audit.trail import ImageChanges
        from app.collections.names import refuse_gained_roles
        from app.generations.build import finish_swap, load_bulk_encoder
        from index.ingest import ingest_manifest

        limit = None if prune_limit is None else _limit(prune_limit)
        manifest = read_split(data, split, max_rejected)
        keep_freed_memory()
        with opened(create=True, home=home, device=device, max_image_pixels=max_image_pixels) as installation:
            settings, engine = installation.settings, installation.engine
            catalogue = installation.catalogue
            with catalogue.read() as session:
                refuse_gained_roles(settings, session, collection)
            changes = ImageChanges(settings, catalogue, collection, "index")
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
                record=changes.written,
                record_pruned=ImageChanges(settings, catalogue, collection, "index --prune").removed,
                record_moved=changes.moved,
            )
            # Its images are named by the events of its batches.
            installation.record(
                "create",
                "index",
                collection=collection,
                added=report.added,
                updated=report.updated,
                moved=len(report.moved),
                pruned=report.pruned,
            )
            _tell_report(collection, report)
            if report.took_over is not None:
                finish_swap(engine, settings, report.took_over)
        end_strictly(manifest.rejections, report.rejections, strict=strict)


def _limit(text: str) -> float:
    """A number of images (int), or a share of them (float)."""
    match = re.fullmatch(r"(\d{1,9})|(\d{1,3}(?:\.\d{1,9})?) ?%", text.strip())
    if match is None or (match[2] and float(match[2]) > 100):
        raise typer.BadParameter(
            f"{text!r} is neither a number of images nor a share such as 50%.", param_hint="--prune-limit"
        )
    return int(match[1]) if match[1] else float(match[2]) / 100


def _tell_report(collection: str, report: "IngestReport") -> None:
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
        (report.copies, "Taken as new, as copies of files that moved", ""),
        (
            report.ambiguous,
            "Taken as new, since several removed images, or several new ones, have the same file",
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


def _choose(collection: str, view: ChosenView | None, *, explain: bool, **options: Any) -> None:
    """Set the view of a collection that is there, or say which one it has."""
    with opened(**options) as installation:
        engine = installation.engine
        if view is not None:
            engine.set_view(collection, None if view == "auto" else view)
            engine.save_snapshot(collection)
        weighed = explain or (view == "gpu" and engine.collection(collection).generation is not None)
        choices = engine.explain_views(collection) if weighed else []
        point = engine.operating_point(collection) if explain else None
    chosen = next((choice for choice in choices if choice.chosen), None)
    if view == "gpu" and chosen is not None and chosen.name != "gpu":
        reason = next(choice.reason for choice in choices if choice.name == "gpu")
        typer.echo(
            f"The choice is kept, but on this machine {collection!r} is searched by the view "
            f"{chosen.name!r}: {reason}.",
            err=True,
        )
    if explain:
        for choice in choices:
            mark = "*" if choice.chosen else " "
            typer.echo(f"{mark} {choice.name:6} {choice.bytes / 1024**2:10,.1f} MiB  {choice.reason}")
    if point is not None:
        typer.echo(
            f"recall@10 of {point.queries:,} calibration queries: {point.recall:.3f} on the mean, "
            f"{point.lowest:.1f} of the lowest; {point.lists:,} lists and {point.candidates:,} candidates"
        )


def generations(
    collection: Collection,
    drop: Annotated[int | None, typer.Option(help="Remove this generation, which is not searched.")] = None,
    home: Home = None,
) -> None:
    """List the generations of a collection: state, model, counts, times, comparison."""
    from app.generations.build import print_comparison
    from index.generations.activation import drop_generation
    from index.generations.models import list_generations

    with opened(home=home) as installation:
        if drop is not None:
            drop_generation(installation.engine.home, collection, drop)
        infos = list_generations(installation.engine.home, collection)
    columns = ("Number", "State", "Model", "Images", "Texts", "Missing", "Created", "Activated")
    rows = [
        (
            str(one.number),
            one.state,
            f"{one.model} {one.digest[:12]}",
            *(f"{count:,}" for count in (one.images, one.texts, one.missing)),
            *map(shown_time, (one.created, one.activated)),
        )
        for one in infos
    ]
    print_table(*columns, rows=rows, utc=True)
    for one in infos:
        if one.comparison is not None:
            print_comparison(one.comparison, one.number)


def reindex(
    collection: Collection,
    bundle: Bundle = None,
    model: Annotated[
        str | None, typer.Option(help="Instead of a bundle: a registered model, by digest or name.")
    ] = None,
    generation: Annotated[
        int | None, typer.Option(help="Instead of a bundle: embed what this generation still lacks.")
    ] = None,
    activate: Annotated[
        bool, typer.Option("--activate/--no-activate", help="Search in it as soon as it is complete.")
    ] = False,
    batch_size: BatchSize = 64,
    home: Home = None,
    device: Device = None,
) -> None:
    """Embed a collection from its stored images with another bundle; run it again to continue."""
    from app.generations.build import build_generation, open_generation
    from index.generations.models import find_model

    if [bundle, model, generation].count(None) != 2:
        raise typer.BadParameter("give exactly one of --bundle, --model and --generation.")
    keep_freed_memory()
    with (
        opened(home=home, device=device) as installation,
        stoppable("Stopped. What is embedded is kept; the same command continues from there."),
    ):
        settings, engine = installation.settings, installation.engine
        if model is not None:
            with installation.catalogue.read() as session:
                bundle = engine.home.bundles_folder / find_model(session, model).digest
        generation_row, encoder, seconds = open_generation(engine, settings, collection, bundle, generation)
        build_generation(engine, generation_row, encoder, batch_size, activated=activate)
        if activate:
            _swap_to(installation, (generation_row, encoder, seconds), batch_size, "reindex")


def activate(
    collection: Collection,
    number: Annotated[int, typer.Argument(min=1, help="Number of the generation.")],
    home: Home = None,
    device: Device = None,
) -> None:
    """Search in another generation; images and texts that it lacks are embedded first."""
    _swap(collection, number, home, device)


def rollback(collection: Collection, home: Home = None, device: Device = None) -> None:
    """Search again in the generation that was active before; what was written since is embedded before."""
    _swap(collection, None, home, device)


def _swap(collection: str, number: int | None, home: Home, device: Device) -> None:
    from app.generations.build import open_generation
    from index.generations.activation import generation_before, require_complete

    with (
        opened(home=home, device=device) as installation,
        stoppable("Stopped. Nothing has changed but what was embedded."),
    ):
        settings, engine = installation.settings, installation.engine
        if number is None:
            with installation.catalogue.read() as session:
                number = generation_before(session, collection).id
        generation, encoder, seconds = open_generation(engine, settings, collection, None, number)
        try:
            with installation.catalogue.read() as session:
                require_complete(session, generation, texts="text" in encoder.modalities)
        except IncompleteGenerationError as error:
            typer.echo(f"{str(error).partition(' To embed')[0]} They are embedded first.", err=True)
        _swap_to(installation, (generation, encoder, seconds), _BATCH_SIZE, "activate")


def _swap_to(
    installation: Installation,
    prepared: "tuple[Generation, ImageEncoder, float]",
    batch_size: int,
    command: str,
) -> None:
    from app.generations.build import swap_to

    swap_to(installation.engine, installation.settings, *prepared, batch_size)
    generation = prepared[0]
    installation.record(
        "activate",
        command,
        collection=generation.collection,
        model=generation.digest,
        generation=generation.id,
    )
