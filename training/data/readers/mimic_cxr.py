"""MIMIC-CXR-JPG with its split, metadata and label tables, and the sections of MIMIC-CXR's reports."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from training.data.readers.listing import Listing
from training.data.readers.sentences import report_sentences
from training.data.readers.tables import count_rows, find_table, need_table, read_rows, read_table
from training.data.record import MetadataValue, Record, Split
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

_SECTIONS: Final = "mimic_cxr_sectioned"
_SPLITS: Final[dict[str, Split]] = {"train": "train", "validate": "val", "test": "test"}
_KEYS: Final = frozenset({"subject_id", "study_id"})
_POSITIVE: Final = frozenset({"1", "1.0"})


@dataclass(frozen=True)
class _Report:
    text: str
    sentences: tuple[str, ...]


def list_mimic_cxr(source: Path, images: Path | None = None) -> Listing:
    """Find the tables in `source`; the images lie below `files` there unless `images` says otherwise.

    Needed are mimic-cxr-2.0.0-split.csv, mimic-cxr-2.0.0-metadata.csv and mimic_cxr_sectioned.csv, each also
    with .gz. Labels are taken from mimic-cxr-2.0.0-chexpert.csv if it is there: those marked 1, not the
    uncertain ones marked -1.

    Args:
        source: Folder of the tables.
        images: Folder that holds `files`.

    Raises:
        DataError: A table is missing or of another layout.
    """
    split = need_table(source, "mimic-cxr-2.0.0-split")
    metadata = need_table(source, "mimic-cxr-2.0.0-metadata")
    labels = find_table(source, "mimic-cxr-2.0.0-chexpert")
    sections = find_table(source, _SECTIONS)
    if sections is None:
        raise DataError(
            f"There is no {_SECTIONS}.csv in {source}; make it from the reports with "
            "create_section_files.py of the MIMIC-CXR code repository."
        )
    return Listing(
        split, images or source, count_rows(split), read_mimic_cxr(split, metadata, sections, labels)
    )


def read_mimic_cxr(
    split: Path, metadata: Path, sections: Path, labels: Path | None = None
) -> Iterator[Record | Rejection | LeftOut]:
    """Give one record for each line of the split table, with the texts and labels of its study."""
    views = _views(metadata)
    reports = _reports(sections)
    findings = _labels(labels) if labels else {}
    for item in read_rows(split, ("dicom_id", "study_id", "subject_id", "split")):
        if not isinstance(item, tuple):
            yield item
            continue
        line, row = item
        dicom, study, subject = row["dicom_id"], row["study_id"], row["subject_id"]
        if not (dicom and study.isdigit() and subject.isdigit()) or row["split"] not in _SPLITS:
            yield Rejection(line, "dicom_id, study_id, subject_id or split is missing or wrong")
            continue
        report = reports.get(f"s{study}", _Report("", ()))
        known: dict[str, MetadataValue] = {"study": f"s{study}"}
        if views.get(dicom):
            known["view"] = views[dicom]
        yield Record(
            id=dicom,
            image=f"files/p{subject[:2]}/p{subject}/s{study}/{dicom}.jpg",
            split=_SPLITS[row["split"]],
            texts=report.sentences,
            group=f"p{subject}",
            labels=findings.get(study, ()),
            report=report.text or None,
            metadata=known,
            line=line,
        )


def _views(path: Path) -> dict[str, str]:
    return {row["dicom_id"]: row["ViewPosition"] for _, row in read_table(path, ("dicom_id", "ViewPosition"))}


def _reports(path: Path) -> dict[str, _Report]:
    return {
        row["study"]: _to_report(row)
        for _, row in read_table(path, ("study", "impression", "findings", "last_paragraph"))
    }


def _to_report(row: dict[str, str]) -> _Report:
    named = {"FINDINGS": row["findings"].strip(), "IMPRESSION": row["impression"].strip()}
    sections = {name: text for name, text in named.items() if text}
    if not sections and row["last_paragraph"].strip():
        return _Report(row["last_paragraph"].strip(), report_sentences([row["last_paragraph"]]))
    text = "\n\n".join(f"{name}: {section}" for name, section in sections.items())
    return _Report(text, report_sentences(sections.values()))


def _labels(path: Path) -> dict[str, tuple[str, ...]]:
    return {
        row["study_id"]: tuple(
            name for name, value in row.items() if name not in _KEYS and value in _POSITIVE
        )
        for _, row in read_table(path, ("subject_id", "study_id"))
    }
