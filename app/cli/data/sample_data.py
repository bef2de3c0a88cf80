"""`recoquest sample-data`: generated images with reports and captions, to try everything without data."""

from pathlib import Path
from typing import Annotated

import typer


def sample_data(
    out: Annotated[Path, typer.Argument(help="Folder to write; gets `radiographs` and `scenes`.")],
    images: Annotated[int, typer.Option(min=1, help="Images in each of the two sets.")] = 600,
    seed: Annotated[int, typer.Option(min=0, help="Seed; equal seeds give equal images.")] = 0,
    audio: Annotated[bool, typer.Option("--audio", help="Give each scene a sound of a second.")] = False,
    dicom: Annotated[
        bool, typer.Option("--dicom", help="Write the radiographs as DICOM files, too, into `dicom`.")
    ] = False,
) -> None:
    """Write generated radiographs with reports and scenes with captions."""
    from training.samples import write_sample_data

    write_sample_data(out, images=images, seed=seed, audio=audio, dicom=dicom)
    typer.echo(f"Wrote {out / 'radiographs'} and {out / 'scenes'}, {images:,} images each.")
