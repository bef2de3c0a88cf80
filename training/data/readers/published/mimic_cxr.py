"""MIMIC-CXR-JPG with its split, metadata and label tables, and MIMIC-CXR's reports."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final

from training.data.readers.common.image_files import image_paths
from training.data.readers.common.reports import Report, make_report
from training.data.readers.listing import Listing
from training.data.readers.published.mimic_reports import (
    TAKEN,
    WITHOUT_TEXT,
    ReportFiles,
    find_reports,
    list_mimic_reports,
    tally_reports,
)
from training.data.readers.report import Tally
from training.data.readers.tables import count_rows, find_table, need_table, read_rows, read_table
from training.data.record import MetadataValue, Record, Split
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

_SPLIT: Final = "mimic-cxr-2.0.0-split"
_IMAGES: Final = "files"
_SECTIONS: Final = "mimic_cxr_sectioned"
# Downloads lie in folders such as physionet.org/files/mimic-cxr-jpg/2.0.0.
_DEEPEST: Final = 5
_MOST_FOLDERS: Final = 20
_SPLITS: Final[dict[str, Split]] = {"train": "train", "validate": "val", "test": "test"}
_COLUMNS: Final = ("dicom_id", "study_id", "subject_id", "split")
_KEYS: Final = frozenset({"subject_id", "study_id"})
_POSITIVE: Final = frozenset({"1", "1.0"})


def list_mimic_cxr(source: Path, images: Path | None = None, encoding: str | None = None) -> Listing:
    """Find the tables or the reports in `source`; the images lie below `files` there or in `images`.

    With mimic-cxr-2.0.0-split.csv, each of its lines is an image: mimic-cxr-2.0.0-metadata.csv gives the
    view, and mimic_cxr_sectioned.csv the texts, or else the reports as files/p10/p10000032/s50414267.txt.
    Tables may end in .gz. Labels are taken from mimic-cxr-2.0.0-chexpert.csv if it is there: those marked 1,
    not the uncertain ones marked -1. Without the split table, the images of the reports' studies are found
    by their folders; see `list_mimic_reports`.

    Args:
        source: Folder of the tables or of the reports.
        images: Folder that holds `files`.
        encoding: Of single reports, where they are not UTF-8.

    Raises:
        DataError: A table is missing or of another layout.
    """
    split = find_table(source, _SPLIT)
    sections = find_table(source, _SECTIONS)
    # A tree of a quarter of a million folders is searched only for what no table has.
    reports = find_reports(source) if split is None or sections is None else None
    if split is None:
        if reports is None:
            raise DataError(
                f"There is no {_SPLIT}.csv or {_SPLIT}.csv.gz in {source}, and no report such as "
                f"files/p10/p10000032/s50414267.txt{_way_out(source)}."
            )
        return list_mimic_reports(reports, images or source, encoding)
    if sections is not None and encoding is not None:
        raise DataError(f"Texts are in {sections}, which has to be UTF-8: convert it, without an encoding.")
    metadata = need_table(source, "mimic-cxr-2.0.0-metadata")
    labels = find_table(source, "mimic-cxr-2.0.0-chexpert")
    if sections is None and reports is None:
        raise DataError(
            f"There is no {_SECTIONS}.csv in {source}, and no report such as "
            "files/p10/p10000032/s50414267.txt: unpack mimic-cxr-reports.zip there, or make the table with "
            "create_section_files.py of the MIMIC-CXR code repository."
        )
    items = _read(split, metadata, labels, partial(_report_source, sections, reports, encoding))
    root = images or source
    return Listing(split, root, count_rows(split, _COLUMNS), items, files=image_paths(root, [_IMAGES]))


def _way_out(source: Path) -> str:
    """The command that reads a folder which is no copy of MIMIC-CXR, where it can be told."""
    for place, folders, files in os.walk(source):
        depth = len(Path(place).relative_to(source).parts)
        folders[:] = [] if depth >= _DEEPEST else sorted(folders)[:_MOST_FOLDERS]
        if any(name.startswith(f"{_SPLIT}.csv") for name in files):
            return f"; the table lies in {place}: `recoquest import mimic-cxr {quote(place)}`"
        if any(name.lower().endswith(".txt") for name in files):
            return (
                "; for images with their texts in files of the same name: "
                f"`recoquest import folder {quote(str(source))}`"
            )
    return ""


class _Sections:
    """Reports in the table of sections, as `ReportFiles` has those in files."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._known = _reports(table)
        self._asked: dict[str, str] = {}

    def read(self, _patient: str, study: str) -> Report:
        report = self._known.get(study, Report())
        if study in self._known:
            self._asked[study] = WITHOUT_TEXT if report.text is None else TAKEN
        return report

    def tally(self) -> Tally:
        """Count the rows, and what became of them."""
        return tally_reports(str(self._table), len(self._known), self._asked)


def _report_source(
    sections: Path | None, folder: Path | None, encoding: str | None
) -> ReportFiles | _Sections:
    """The table of sections, or else single reports."""
    if sections is not None:
        return _Sections(sections)
    assert folder is not None
    return ReportFiles(folder, encoding)


def _read(
    split: Path,
    metadata: Path,
    labels: Path | None,
    report_source: Callable[[], ReportFiles | _Sections],
) -> Iterator[Record | Rejection | LeftOut | Tally]:
    """Give one record for each line of the split table, with the texts and labels of its study."""
    views = _views(metadata)
    reports = report_source()
    findings = _labels(labels) if labels else {}
    for item in read_rows(split, _COLUMNS):
        if not isinstance(item, tuple):
            yield item
            continue
        line, row = item
        dicom, study, subject = row["dicom_id"], row["study_id"], row["subject_id"]
        if not (dicom and study.isdigit() and subject.isdigit()) or row["split"] not in _SPLITS:
            yield Rejection(line, "dicom_id, study_id, subject_id or split is missing or wrong")
            continue
        try:
            report = reports.read(f"p{subject}", f"s{study}")
        except DataError as error:
            yield Rejection(line, str(error))
            continue
        known: dict[str, MetadataValue] = {"study": f"s{study}"}
        if views.get(dicom):
            known["view"] = views[dicom]
        yield Record(
            id=dicom,
            image=f"{_IMAGES}/p{subject[:2]}/p{subject}/s{study}/{dicom}.jpg",
            split=_SPLITS[row["split"]],
            texts=report.sentences,
            group=f"p{subject}",
            labels=findings.get(study, ()),
            report=report.text,
            metadata=known,
            line=line,
        )
    yield reports.tally()


def _views(path: Path) -> dict[str, str]:
    return {
        row["dicom_id"]: row["ViewPosition"]
        for _, row in read_table(path, ("dicom_id", "ViewPosition"), "dicom_id")
    }


def _reports(path: Path) -> dict[str, Report]:
    return {
        row["study"]: _to_report(row)
        for _, row in read_table(path, ("study", "impression", "findings", "last_paragraph"), "study")
    }


def _to_report(row: dict[str, str]) -> Report:
    named = {"FINDINGS": row["findings"], "IMPRESSION": row["impression"]}
    return make_report(named, row["last_paragraph"])


def _labels(path: Path) -> dict[str, tuple[str, ...]]:
    return {
        row["study_id"]: tuple(
            name for name, value in row.items() if name not in _KEYS and value in _POSITIVE
        )
        for _, row in read_table(path, ("subject_id", "study_id"), "study_id")
    }
