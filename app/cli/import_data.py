"""`recoquest import`: turn a folder of images or a published data set's layout into a manifest."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from app.cli.errors import stoppable
from app.cli.options import (
    Home,
    MaxImagePixels,
    MaxRejected,
    Strict,
    end_strictly,
    name_left_out,
    radiology_settings,
    say_refused,
)
from index.keys.home_secret import patient_key
from training.common.errors import DataError
from training.importing.layouts import Layout


def import_data(
    layout: Annotated[
        Layout,
        typer.Argument(
            help="folder: images of your own; karpathy: Flickr8K, Flickr30K or MS-COCO with Karpathy's "
            "dataset_*.json; dicom: films of a PACS (docs/dicom.md); the others: as published, or as these "
            "programs save it (docs/layouts.md)."
        ),
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
            help="Encoding of the table, of texts beside images, or of MIMIC-CXR's reports, if it is not "
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
        typer.Option(help="dicom only: a modality to take beside films, such as CT; repeatable."),
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
        typer.Option(help="dicom only: file or folder of reports for the studies (docs/reports.md)."),
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
    from training.importing.listing import MOST_DECODED
    from training.importing.run import import_data_set

    settings = (radiology_settings if layout == "dicom" else load_settings)(
        home=home, max_image_pixels=max_image_pixels
    )
    of_reports: Sequence[str] = ()
    if layout == "dicom":
        if images or table or encoding or keep_unknown_texts or leave_out:
            raise DataError("DICOM files have no table and no texts: of the options, none of these counts.")
        if out is None:
            raise DataError("The films are written out: give a second folder for them and the manifest.")
        from training.importing.attach_reports import attach_source, remarks
        from training.importing.dicom.importing import import_dicom

        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A synchronisation with an archive makes pseudonyms by this key, too.
        key = patient_key(settings.home)
        with stoppable("Stopped. The same command goes on where this one ended."):
            report = import_dicom(
                source,
                out,
                key=key,
                keep_dates=settings.keep_dates,
                modalities=frozenset(name.upper() for name in modality or ()),
                looked_at=take_quarantined,
                limits=settings.image_limits,
                max_rejected=max_rejected,
            )
        if reports is not None:
            attached = attach_source(report.folder, reports, key)
            say_refused(attached.refused, in_folder=reports.is_dir())
            attached.contents.doubts.update(report.contents.doubts)
            report = replace(report, contents=attached.contents)
            sentences = remarks(attached.left_out, attached.differing, attached.without_text)
            of_reports = (attached.sentence, *sentences)
    elif modality or take_quarantined or reports:
        raise DataError("--modality, --take-quarantined and --reports belong to `recoquest import dicom`.")
    else:
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
            most_decoded=sys.maxsize if check else MOST_DECODED,
            limits=settings.image_limits,
        )
    name_left_out(report.rejections)
    for sentence in (*report.sentences(), *of_reports):
        typer.echo(sentence)
    records = "record" if report.records == 1 else "records"
    typer.echo(f"Wrote {report.records:,} {records} to {report.folder / 'manifest.jsonl'}.")
    end_strictly(report.rejections, strict=strict)
