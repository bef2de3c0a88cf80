"""`recoquest import`: turn a folder of images or a published data set's layout into a manifest."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from app.cli.errors import stoppable
from app.cli.options import (
    Home,
    MaxImagePixels,
    MaxRejected,
    Strict,
    end_strictly,
    name_left_out,
    print_table,
    radiology_settings,
    say_refused,
)
from index.keys.home_secret import patient_key


class ImportCommand(TyperCommand):
    """The command, whose help lists the layouts, those of other packages as well."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, then the layouts."""
        from rich.markup import escape

        from training.importing.layouts import describe_layouts

        super().format_help(ctx, formatter)
        rows = [(name, escape(about)) for name, about in describe_layouts()]
        print_table("Layout", "What it reads (docs/guides/data.md)", rows=rows)


def _known_layout(name: str) -> str:
    from training.importing.layouts import layout_names

    if name not in layout_names():
        raise typer.BadParameter(f"{name!r} is none of {', '.join(layout_names())}.")
    return name


def import_data(
    layout: Annotated[
        str, typer.Argument(callback=_known_layout, help="A layout, such as folder for images of your own.")
    ],
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of your images, or of the data set as published; for dicom also a file, "
            "a zip archive or a DICOMDIR."
        ),
    ],
    out: Annotated[
        Path | None, typer.Argument(help="Folder to write manifest.jsonl into; without it the source.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the images, where it is not the usual one.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Table (CSV) with the texts of a folder's images.")
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            help="Encoding of the table, of texts next to images, or of MIMIC-CXR's reports, if it is not "
            "UTF-8: windows-1252."
        ),
    ] = None,
    keep_unknown_texts: Annotated[
        bool,
        typer.Option(
            "--keep-unknown-texts", help="Keep texts of the table such as 'nan', 'None' and 'NULL'."
        ),
    ] = False,
    leave_out: Annotated[
        Path | None, typer.Option(help="CheXpert only: a table of patients to leave out of train.")
    ] = None,
    modality: Annotated[
        list[str] | None,
        typer.Option(help="dicom only: a modality to take in addition to films, such as CT; repeatable."),
    ] = None,
    take_quarantined: Annotated[
        Path | None,
        typer.Option(
            help="dicom only: a file of SOP Instance UIDs that a person has looked at, such as a part of "
            "quarantine.csv."
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(help="dicom only: file or folder of reports for the studies."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Decode every image, not only 2,000 of them, and refuse those that are damaged."
        ),
    ] = False,
    max_rejected: MaxRejected = 1.0,
    strict: Strict = False,
    max_image_pixels: MaxImagePixels = None,
    home: Home = None,
) -> None:
    """Turn a folder of images, or a data set in the layout in which it is downloaded, into a manifest."""
    from app.settings import load_settings
    from training.importing.layouts import Source, find_layout, import_data_set
    from training.importing.listing import MOST_DECODED

    chosen = find_layout(layout)
    settings = (radiology_settings if chosen.pseudonymizes else load_settings)(
        home=home, max_image_pixels=max_image_pixels
    )
    key = b""
    if chosen.pseudonymizes:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A synchronisation with an archive also makes pseudonyms with this key.
        key = patient_key(settings.home)
    data = Source(
        source,
        out,
        images=images,
        table=table,
        encoding=encoding,
        keep_unknown_texts=keep_unknown_texts,
        leave_out=leave_out,
        modality=frozenset(modality or ()),
        take_quarantined=take_quarantined,
        reports=reports,
        key=key,
        keep_dates=settings.keep_dates,
        limits=settings.image_limits,
    )
    resume_hint = "Stopped. The same command continues where this one ended."
    with stoppable(resume_hint) if chosen.writes_images else nullcontext():
        report = import_data_set(
            chosen, data, max_rejected=max_rejected, most_decoded=sys.maxsize if check else MOST_DECODED
        )
    report_sentences: Sequence[str] = ()
    if reports is not None:
        from training.importing.reports import attach_source

        attached = attach_source(report.folder, reports, key)
        say_refused(attached.refused, in_folder=reports.is_dir())
        attached.contents.doubts.update(report.contents.doubts)
        report = replace(report, contents=attached.contents)
        report_sentences = attached.sentences
    name_left_out(report.rejections)
    for sentence in (*report.sentences(), *report_sentences):
        typer.echo(sentence)
    records = "record" if report.records == 1 else "records"
    typer.echo(f"Wrote {report.records:,} {records} to {report.folder / 'manifest.jsonl'}.")
    end_strictly(report.rejections, strict=strict)
