"""`recoquest index`: embed a manifest and make it searchable."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.endings import stoppable
from app.cli.options import BatchSize, Data, Device, Home, MaxRejected, SplitName, read_split

_SHOWN = 5


def index(
    collection: Annotated[str, typer.Argument(help="Name of the collection; made when it is new.")],
    bundle: Annotated[Path, typer.Option("--bundle", help="Folder of the trained encoder.")],
    data: Data,
    split: SplitName = None,
    batch_size: BatchSize = 64,
    max_rejected: MaxRejected = 0.01,
    home: Home = None,
    device: Device = None,
) -> None:
    """Embed the images of a manifest into a collection; run again, it goes on or brings it up to date."""
    from app.engine import open_engine
    from app.settings import load_settings
    from index.ingest import ingest_manifest
    from training.host import keep_freed_memory
    from training.models.encoder import load_encoder

    keep_freed_memory()
    settings = load_settings(home=home, device=device)
    manifest = read_split(data, split, max_rejected)
    encoder = load_encoder(bundle, settings.device)
    engine = open_engine(settings)
    try:
        with stoppable("Stopped. What is embedded is kept; the same command goes on from there."):
            report = ingest_manifest(
                engine, collection, encoder, manifest, batch_size=batch_size, max_rejected=max_rejected
            )
    finally:
        engine.close()
    typer.echo(
        f"{collection}: {report.added:,} added, {report.updated:,} updated, {report.unchanged:,} unchanged, "
        f"{report.rejected:,} left out."
    )
    for left_out in report.rejections[:_SHOWN]:
        typer.echo(f"Line {left_out.line}: {left_out.reason}", err=True)
    if report.rejected > _SHOWN:
        typer.echo(f"And {report.rejected - _SHOWN:,} more.", err=True)
