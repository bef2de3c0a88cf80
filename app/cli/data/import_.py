"""`recoquest import`: turn a folder of images or a published data set's layout into a manifest."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.options import MaxRejected, name_left_out
from training.data.readers.layouts import Layout


def import_data(
    layout: Annotated[
        Layout,
        typer.Argument(
            help="folder: images of your own; karpathy: Flickr8K, Flickr30K or MS-COCO with Karpathy's "
            "dataset_*.json; the others: as published, or as these programs save it (docs/layouts.md)."
        ),
    ],
    source: Annotated[Path, typer.Argument(help="Folder of your images, or of the data set as published.")],
    out: Annotated[
        Path | None, typer.Argument(help="Folder to write manifest.jsonl into; without it the source.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option("--images", help="Folder of the images, where it is not the usual one.")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option("--table", help="Table (CSV) with the texts of a folder's images."),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding",
            help="Encoding of the table, of texts beside images, or of MIMIC-CXR's reports, if it is not "
            "UTF-8: windows-1252.",
        ),
    ] = None,
    keep_unknown_texts: Annotated[
        bool,
        typer.Option(
            "--keep-unknown-texts", help="Keep texts of the table such as 'nan', 'None' and 'NULL'."
        ),
    ] = False,
    leave_out: Annotated[
        Path | None,
        typer.Option("--leave-out", help="CheXpert only: a table of patients to leave out of train."),
    ] = None,
    max_rejected: MaxRejected = 0.01,
) -> None:
    """Turn a folder of images, or a data set in the layout in which it is downloaded, into a manifest."""
    from training.data.readers.importing import import_data_set

    report = import_data_set(
        layout,
        source,
        out,
        images=images,
        table=table,
        leave_out=leave_out,
        encoding=encoding,
        keep_unknown_texts=keep_unknown_texts,
        max_rejected=max_rejected,
    )
    name_left_out(report.rejections)
    for sentence in report.sentences():
        typer.echo(sentence)
    records = "record" if report.records == 1 else "records"
    typer.echo(f"Wrote {report.records:,} {records} to {report.folder / 'manifest.jsonl'}.")
