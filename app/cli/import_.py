"""`recoquest import`: turn a published data set's layout into a manifest."""

from pathlib import Path
from typing import Annotated

import typer


def import_data(
    layout: Annotated[str, typer.Argument(help="karpathy, mimic-cxr or chexpert.")],
    source: Annotated[Path, typer.Argument(help="Folder of the data set as published.")],
    out: Annotated[Path, typer.Argument(help="Folder to write manifest.jsonl into.")],
) -> None:
    """Read Flickr30K or MS-COCO (karpathy), MIMIC-CXR-JPG (mimic-cxr) or CheXpert into a manifest."""
    from training.data.readers import import_layout

    typer.echo(import_layout(layout, source, out))
