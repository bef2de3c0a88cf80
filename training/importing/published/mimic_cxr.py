"""MIMIC-CXR-JPG with its split, metadata and label tables, and MIMIC-CXR's reports."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Final

from training.clinical.reports.report_text import Report, make_report, read_report
from training.common.errors import DataError
from training.common.record import LineError, MetadataValue, Record, Split
from training.common.rejections import LeftOut, Rejection
from training.common.tables.encodings import decode_text
from training.common.tables.rows import (
    count_rows,
    find_table,
    need_table,
    read_records,
    read_table,
)
from training.importing.image_files import image_paths, is_image, walk_files
from training.importing.listing import Listing
from training.importing.report import Tally

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
# Published is files/p10/p10000032/s50414267.txt, with images in s50414267/. Copies lack letters or folders.
_PATIENT: Final = re.compile(r"p(\d{3,})|(\d{8})", re.IGNORECASE)
_STUDY: Final = re.compile(r"s(\d+)|(\d{8})", re.IGNORECASE)
_NAMED: Final = re.compile(r"(s\d+)(?:[_. -].*)?|(\d{8})", re.IGNORECASE)
_PLACES: Final = ("files", "mimic-cxr-reports/files", "mimic-cxr-reports", "")
_LARGEST: Final = 1 << 20
_TAKEN: Final = "taken"
_WITHOUT_TEXT: Final = "reports without a part that describes the image"
_UNREADABLE: Final = "reports that cannot be read or are several of a study"


def list_mimic_cxr(source: Path, images: Path | None = None, encoding: str | None = None) -> Listing:
    """Find the tables or the reports in `source`; the images lie below `files` there or in `images`.

    With mimic-cxr-2.0.0-split.csv, each of its lines is an image: mimic-cxr-2.0.0-metadata.csv gives the
    view, and mimic_cxr_sectioned.csv the texts, or else the reports as files/p10/p10000032/s50414267.txt.
    Tables may end in .gz. Labels are taken from mimic-cxr-2.0.0-chexpert.csv if it is there: those marked 1,
    not the uncertain ones marked -1. Without the split table, the images of the reports' studies are found
    by their folders; see `_list_reports`.

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
    reports = _find_reports(source) if split is None or sections is None else None
    if split is None:
        if reports is None:
            raise DataError(
                f"There is no {_SPLIT}.csv or {_SPLIT}.csv.gz in {source}, and no report such as "
                f"files/p10/p10000032/s50414267.txt{_way_out(source)}."
            )
        return _list_reports(reports, images or source, encoding)
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

    def items() -> Iterator[Record | Rejection | LeftOut | Tally]:
        """Give one record for each line of the split table, with the texts and labels of its study."""
        views = {
            row["dicom_id"]: row["ViewPosition"]
            for _, row in read_table(metadata, ("dicom_id", "ViewPosition"), "dicom_id")
        }
        texts = _ReportFiles(reports or source, encoding) if sections is None else _Sections(sections)
        findings = _labels(labels) if labels else {}

        def record(row: Mapping[str, str]) -> Record:
            dicom, study, subject = row["dicom_id"], row["study_id"], row["subject_id"]
            if not (dicom and study.isdigit() and subject.isdigit()) or row["split"] not in _SPLITS:
                raise LineError("dicom_id, study_id, subject_id or split is missing or wrong")
            report = texts.read(f"p{subject}", f"s{study}")
            known: dict[str, MetadataValue] = {"study": f"s{study}"}
            if views.get(dicom):
                known["view"] = views[dicom]
            return Record(
                id=dicom,
                image=f"{_IMAGES}/p{subject[:2]}/p{subject}/s{study}/{dicom}.jpg",
                split=_SPLITS[row["split"]],
                texts=report.sentences,
                group=f"p{subject}",
                labels=findings.get(study, ()),
                report=report.text,
                metadata=known,
            )

        yield from read_records(split, _COLUMNS, record)
        yield texts.tally()

    root = images or source
    return Listing(split, root, count_rows(split, _COLUMNS), items(), files=image_paths(root, [_IMAGES]))


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
    """Reports in the table of sections, as `_ReportFiles` has those in files."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._known = {
            row["study"]: make_report(
                {"FINDINGS": row["findings"], "IMPRESSION": row["impression"]}, row["last_paragraph"]
            )
            for _, row in read_table(table, ("study", "impression", "findings", "last_paragraph"), "study")
        }
        self._asked: dict[str, str] = {}

    def read(self, _patient: str, study: str) -> Report:
        report = self._known.get(study, Report())
        if study in self._known:
            self._asked[study] = _WITHOUT_TEXT if report.text is None else _TAKEN
        return report

    def tally(self) -> Tally:
        """Count the rows, and what became of them."""
        return _tally(str(self._table), len(self._known), self._asked)


def _labels(path: Path) -> dict[str, tuple[str, ...]]:
    return {
        row["study_id"]: tuple(
            name for name, value in row.items() if name not in _KEYS and value in _POSITIVE
        )
        for _, row in read_table(path, ("subject_id", "study_id"), "study_id")
    }


def _find_study(path: str) -> tuple[str, str] | None:
    """Patient ("" without one) and study that a path names, as p10000032 and s50414267; None without a study.

    The study is the name of the file itself or of the last folder that may be one, the patient one above.
    """
    *folders, name = path.split("/")
    named = _NAMED.fullmatch(name.rpartition(".")[0])
    study = f"s{(named[1] or f's{named[2]}')[1:]}" if named else ""
    above = len(folders)
    while not study and above:
        above -= 1
        found = _STUDY.fullmatch(folders[above])
        study = f"s{found[1] or found[2]}" if found else ""
    if not study:
        return None
    patients = (_PATIENT.fullmatch(folder) for folder in reversed(folders[:above]))
    patient = next((f"p{found[1] or found[2]}" for found in patients if found), "")
    return ("" if patient[1:] == study[1:] else patient), study


class _ReportFiles:
    """Reports in a folder and below; each is read when it is asked for.

    Args:
        folder: That folder.
        encoding: Of reports without a byte order mark; UTF-8 without it.
    """

    def __init__(self, folder: Path, encoding: str | None = None) -> None:
        self.folder = folder
        self._encoding = encoding
        self._last: tuple[tuple[str, str], Report] = (("", ""), Report())
        # Reports that were asked for: whether each could be read, and gave a text.
        self._asked: dict[str, str] = {}

    @cached_property
    def paths(self) -> dict[str, dict[str, list[str]]]:
        """Paths of all reports, by study and patient; one named after its study goes before any other."""
        found: dict[str, dict[str, list[str]]] = {}
        for path in walk_files(self.folder):
            if path.lower().endswith(".txt") and (place := _find_study(path)) is not None:
                patient, study = place
                found.setdefault(study, {}).setdefault(patient, []).append(path)
        for study, by_patient in found.items():
            for paths in by_patient.values():
                own = [path for path in paths if PurePosixPath(path).stem.lower() in (study, study[1:])]
                paths[:] = own or paths
        return found

    def read(self, patient: str, study: str) -> Report:
        """The report of a study; an empty one where it has none.

        Raises:
            DataError: There are several, or the file cannot be read.
        """
        if self._last[0] != (patient, study):
            self._last = ((patient, study), self._read(patient, study))
        return self._last[1]

    def tally(self) -> Tally:
        """Count the reports found, and what became of them."""
        found = sum(map(len, self.paths.values()))
        return _tally(str(self.folder), found, self._asked)

    def has(self, patient: str, study: str) -> bool:
        """Whether a study has a report."""
        return bool(self._paths_of(patient, study))

    def _paths_of(self, patient: str, study: str) -> list[str]:
        by_patient = self.paths.get(study, {})
        if patient in by_patient:
            return by_patient[patient]
        # If one of both has no folder of its patient, the number of the study tells it.
        others = by_patient.values() if not patient else [by_patient.get("", [])]
        return [path for paths in others for path in paths]

    def _read(self, patient: str, study: str) -> Report:
        names = self._paths_of(patient, study)
        if not names:
            return Report()
        if len(names) > 1:
            self._asked[names[0]] = _UNREADABLE
            raise DataError(f"the study {study} has several reports: {names[0]} and {names[1]}")
        name = names[0]
        self._asked[name] = _UNREADABLE
        path = self.folder / name
        try:
            if path.stat().st_size > _LARGEST:
                raise DataError(f"the report {name} has over {_LARGEST >> 20} MiB")
            report = read_report(decode_text(path.read_bytes(), f"the report {name}", self._encoding))
        except OSError as error:
            raise DataError(f"the report {name} cannot be read: {error.strerror or error}") from error
        self._asked[name] = _TAKEN if report.text is not None else _WITHOUT_TEXT
        return report


def _tally(source: str, found: int, asked: Mapping[str, str]) -> Tally:
    """Count the reports of a source.

    Args:
        source: What holds them, for messages.
        found: Number of reports.
        asked: What became of those of images, by their names.
    """
    counts = Counter(asked.values())
    reasons = {"reports without an image": found - len(asked), _UNREADABLE: counts[_UNREADABLE]}
    if counts[_WITHOUT_TEXT]:
        first = next(name for name, became in asked.items() if became == _WITHOUT_TEXT)
        reasons[f"{_WITHOUT_TEXT}, {first} first"] = counts[_WITHOUT_TEXT]
    left_out = {reason: count for reason, count in reasons.items() if count}
    return Tally(source, "report", found, counts[_TAKEN], 0, left_out)


def _find_reports(source: Path) -> Path | None:
    """The folder with p10 to p19 in `source`, if reports lie in it; else `source`, if any lie below."""
    for place in _PLACES:
        folder = source / place
        if next(folder.glob("p[0-9][0-9]/p*/s*.txt"), None) is not None:
            return folder
    texts = (path for path in walk_files(source) if path.lower().endswith(".txt"))
    return source if any(map(_find_study, texts)) else None


def _list_reports(reports: Path, images: Path, encoding: str | None = None) -> Listing:
    """List the images in the folders of studies, each with the report of its study.

    Images lie in folders such as p10000032/s50414267, or are named s50414267; those of a study without a
    report have no texts. The split is drawn by patient, or by study where no folder names the patient.

    Args:
        reports: Folder that holds p10 and its like, or any of the reports.
        images: Folder of the images; what lies above the folders of patients does not matter.
        encoding: Of the reports, where they are not UTF-8.

    Raises:
        DataError: There is no image of a study.
    """
    left_out = Counter[str]()
    found: list[tuple[str, str, str]] = []
    files = _ReportFiles(reports, encoding)
    for path in walk_files(images):
        place = _find_study(path)
        if place is not None and is_image(path) and (files.has(*place) or _is_named_in_full(path, place)):
            found.append((path, *place))
        elif is_image(path):
            left_out["images outside of the folder of a study"] += 1
        elif place is not None and not path.lower().endswith(".txt"):
            left_out[f"{Path(path).suffix} files of studies"] += 1
    if not found:
        raise DataError(
            f"There are reports in {reports} and no image such as p10/p10000032/s50414267/NAME.jpg in "
            f"{images}; give the folder of the images with --images."
        )
    # A study's images, one after the other, wherever they lie: its report is read once.
    found.sort(key=lambda item: (item[1], item[2], item[0]))
    return Listing(images, images, len(found), _read(found, files), "image", left_out)


def _is_named_in_full(path: str, place: tuple[str, str]) -> bool:
    """Whether a path has a study's name with its letter; eight digits alone may be anything."""
    return any(f"/{place[1]}{end}" in f"/{path.lower()}" for end in "/._- ")


def _read(found: list[tuple[str, str, str]], reports: _ReportFiles) -> Iterator[Record | Rejection | Tally]:
    counts = Counter((patient, study, Path(path).stem) for path, patient, study in found)
    for number, (path, patient, study) in enumerate(found, 1):
        name = Path(path).stem
        if counts[patient, study, name] > 1:
            yield Rejection(number, f"the study {study} has several images {name!r}: {path}")
            continue
        try:
            report = reports.read(patient, study)
        except DataError as error:
            yield Rejection(number, str(error))
            continue
        yield Record(
            id=name if _find_study(f"{name}.jpg") == ("", study) else f"{study}-{name}",
            image=path,
            texts=report.sentences,
            group=patient or study,
            report=report.text,
            metadata={"study": study},
            line=number,
        )
    yield reports.tally()
