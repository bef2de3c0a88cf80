"""MIMIC-CXR-JPG with its split, metadata and label tables, and MIMIC-CXR's reports."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Final

from training.clinical.text.report_text import Report, make_report, read_report
from training.common.encodings import read_text
from training.common.errors import DataError
from training.common.record import LineError, MetadataValue, Record, Split
from training.common.rejections import LeftOut, Rejection
from training.common.tables import count_rows, find_table, need_table, read_records, read_table
from training.importing.files import image_paths, is_image, walk_files
from training.importing.layouts import Layout, Source
from training.importing.listing import Listing
from training.importing.report import Tally

_SPLIT: Final = "mimic-cxr-2.0.0-split"
_IMAGES: Final = "files"
_SECTIONS: Final = "mimic_cxr_sectioned"
_SPLITS: Final[dict[str, Split]] = {"train": "train", "validate": "val", "test": "test"}
_COLUMNS: Final = ("dicom_id", "study_id", "subject_id", "split")
_KEYS: Final = frozenset({"subject_id", "study_id"})
_POSITIVE: Final = frozenset({"1", "1.0"})
# Published is files/p10/p10000032/s50414267.txt, with images in s50414267/. Copies lack letters or folders.
_PATIENT: Final = re.compile(r"p(\d{3,})|(\d{8})", re.IGNORECASE)
_STUDY: Final = re.compile(r"s(\d+)|(\d{8})", re.IGNORECASE)
_NAMED: Final = re.compile(r"(s\d+)(?:[_. -].*)?|(\d{8})", re.IGNORECASE)
_FOLDERS: Final = ("files", "mimic-cxr-reports/files", "mimic-cxr-reports", "")
_TAKEN: Final = "taken"
_WITHOUT_TEXT: Final = "reports without a part that describes the image"
_UNREADABLE: Final = "reports that cannot be read or are several of a study"


def list_mimic_cxr(source: Source) -> Listing:
    """Find the tables or the reports, and the images below `files` in the source or in `images`.

    With mimic-cxr-2.0.0-split.csv, each of its lines is an image: mimic-cxr-2.0.0-metadata.csv gives the
    view, and mimic_cxr_sectioned.csv the texts, or else the reports as files/p10/p10000032/s50414267.txt.
    Tables may end in .gz. Labels are taken from mimic-cxr-2.0.0-chexpert.csv if it is there: those marked 1,
    not the uncertain ones marked -1. Without the split table, the images of the reports' studies are found
    by their folders; see `_list_reports`.
    """
    folder, root, encoding = source.path, source.images or source.path, source.encoding
    split = find_table(folder, _SPLIT)
    sections = find_table(folder, _SECTIONS)
    # A tree of a quarter of a million folders is searched only for what no table has.
    reports = _find_reports(folder) if split is None or sections is None else None
    if split is None:
        if reports is None:
            raise DataError(
                f"There is no {_SPLIT}.csv or {_SPLIT}.csv.gz in {folder}, and no report such as "
                f"files/p10/p10000032/s50414267.txt{_way_out(folder)}."
            )
        return _list_reports(_report_files(reports, encoding), root)
    if sections is not None and encoding is not None:
        raise DataError(f"Texts are in {sections}, which has to be UTF-8: convert it, without an encoding.")
    metadata = need_table(folder, "mimic-cxr-2.0.0-metadata")
    labels = find_table(folder, "mimic-cxr-2.0.0-chexpert")
    if sections is None and reports is None:
        raise DataError(
            f"There is no {_SECTIONS}.csv in {folder}, and no report such as "
            "files/p10/p10000032/s50414267.txt: unpack mimic-cxr-reports.zip there, or make the table with "
            "create_section_files.py of the MIMIC-CXR code repository."
        )

    def items() -> Iterator[Record | Rejection | LeftOut | Tally]:
        views = {
            row["dicom_id"]: row["ViewPosition"]
            for _, row in read_table(metadata, ("dicom_id", "ViewPosition"), "dicom_id")
        }
        texts = _report_files(reports or folder, encoding) if sections is None else _sections(sections)
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

    return Listing(split, root, count_rows(split, _COLUMNS), items(), files=image_paths(root, [_IMAGES]))


MIMIC_CXR: Final = Layout(
    "mimic-cxr",
    "MIMIC-CXR-JPG's tables, or MIMIC-CXR's reports with images",
    list_mimic_cxr,
    frozenset({"images", "encoding"}),
)


def _way_out(source: Path) -> str:
    """The command that reads a folder which is no copy of MIMIC-CXR, where it can be told."""
    if (table := next(source.rglob(f"{_SPLIT}.csv*"), None)) is not None:
        return f"; the table is in {table.parent}: `recoquest import mimic-cxr {quote(str(table.parent))}`"
    if next(source.rglob("*.[tT][xX][tT]"), None) is not None:
        return (
            "; for images with their texts in files of the same name: "
            f"`recoquest import folder {quote(str(source))}`"
        )
    return ""


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
        match = _STUDY.fullmatch(folders[above])
        study = f"s{match[1] or match[2]}" if match else ""
    if not study:
        return None
    patients = (_PATIENT.fullmatch(folder) for folder in reversed(folders[:above]))
    patient = next((f"p{match[1] or match[2]}" for match in patients if match), "")
    return ("" if patient[1:] == study[1:] else patient), study


class _Reports:
    """Reports of studies, and what became of those that were asked for.

    Args:
        source: Table or folder that has them.
        names: Names of reports by study and patient, "" where none is named.
        load: Reads the report of a name; raises a DataError where it cannot be read.
    """

    def __init__(
        self, source: Path, names: Mapping[str, Mapping[str, list[str]]], load: Callable[[str], Report]
    ) -> None:
        self.source = source
        self._names = names
        # Images of a study come one after the other.
        self._load = lru_cache(maxsize=1)(load)
        self._asked: dict[str, str] = {}

    def names_of(self, patient: str, study: str) -> list[str]:
        """Names of the reports of a study."""
        by_patient = self._names.get(study, {})
        if patient in by_patient:
            return by_patient[patient]
        # If one of both has no folder of its patient, the number of the study tells it.
        others = by_patient.values() if not patient else [by_patient.get("", [])]
        return [name for names in others for name in names]

    def read(self, patient: str, study: str) -> Report:
        """The report of a study, if there are not several; an empty one where it has none."""
        names = self.names_of(patient, study)
        if not names:
            return Report()
        self._asked[names[0]] = _UNREADABLE
        if len(names) > 1:
            raise DataError(f"the study {study} has several reports: {names[0]} and {names[1]}")
        report = self._load(names[0])
        self._asked[names[0]] = _WITHOUT_TEXT if report.text is None else _TAKEN
        return report

    def tally(self) -> Tally:
        """Count the reports, and what became of them."""
        total = sum(len(names) for by_patient in self._names.values() for names in by_patient.values())
        counts = Counter(self._asked.values())
        reasons = {"reports without an image": total - len(self._asked), _UNREADABLE: counts[_UNREADABLE]}
        if counts[_WITHOUT_TEXT]:
            first = next(name for name, became in self._asked.items() if became == _WITHOUT_TEXT)
            reasons[f"{_WITHOUT_TEXT}, {first} first"] = counts[_WITHOUT_TEXT]
        left_out = {reason: count for reason, count in reasons.items() if count}
        return Tally(str(self.source), "report", total, counts[_TAKEN], 0, left_out)


def _sections(table: Path) -> _Reports:
    """Reports in the table of sections."""
    columns = ("study", "impression", "findings", "last_paragraph")
    reports = {
        row["study"]: make_report(
            {"FINDINGS": row["findings"], "IMPRESSION": row["impression"]}, row["last_paragraph"]
        )
        for _, row in read_table(table, columns, "study")
    }
    return _Reports(table, {study: {"": [study]} for study in reports}, reports.__getitem__)


def _report_files(folder: Path, encoding: str | None) -> _Reports:
    """Reports in a folder and below; one that is named after its study goes before any other."""
    names: dict[str, dict[str, list[str]]] = {}
    for path in walk_files(folder):
        if path.lower().endswith(".txt") and (named := _find_study(path)) is not None:
            patient, study = named
            names.setdefault(study, {}).setdefault(patient, []).append(path)
    for study, by_patient in names.items():
        for paths in by_patient.values():
            own = [path for path in paths if PurePosixPath(path).stem.lower() in (study, study[1:])]
            paths[:] = own or paths

    def load(name: str) -> Report:
        return read_report(read_text(folder / name, f"the report {name}", encoding))

    return _Reports(folder, names, load)


def _find_reports(source: Path) -> Path | None:
    """The folder with p10 to p19 in `source`, if it has reports; otherwise `source`, if any are below."""
    for inside in _FOLDERS:
        folder = source / inside
        if next(folder.glob("p[0-9][0-9]/p*/s*.txt"), None) is not None:
            return folder
    texts = (path for path in walk_files(source) if path.lower().endswith(".txt"))
    return source if any(map(_find_study, texts)) else None


def _list_reports(reports: _Reports, images: Path) -> Listing:
    """List the images in the folders of studies, each with the report of its study.

    Images are in folders such as p10000032/s50414267, or are named s50414267; those of a study without a
    report have no texts. The split is drawn by patient, or by study where no folder names the patient.

    Raises:
        DataError: There is no image of a study.
    """
    left_out = Counter[str]()
    files: list[tuple[str, str, str]] = []
    for path in walk_files(images):
        named = _find_study(path)
        if (
            named is not None
            and is_image(path)
            and (reports.names_of(*named) or _is_named_in_full(path, named))
        ):
            files.append((path, *named))
        elif is_image(path):
            left_out["images outside of the folder of a study"] += 1
        elif named is not None and not path.lower().endswith(".txt"):
            left_out[f"{Path(path).suffix} files of studies"] += 1
    if not files:
        raise DataError(
            f"There are reports in {reports.source} and no image such as p10/p10000032/s50414267/NAME.jpg in "
            f"{images}; give the folder of the images with --images."
        )
    # A study's images, one after the other, wherever they are: its report is read once.
    files.sort(key=lambda item: (item[1], item[2], item[0]))
    counts = Counter((patient, study, Path(path).stem) for path, patient, study in files)

    def items() -> Iterator[Record | Rejection | Tally]:
        for number, (path, patient, study) in enumerate(files, 1):
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

    return Listing(images, images, len(files), items(), "image", left_out)


def _is_named_in_full(path: str, named: tuple[str, str]) -> bool:
    """Whether a path has a study's name with its letter; eight digits alone may be anything."""
    return any(f"/{named[1]}{end}" in f"/{path.lower()}" for end in "/._- ")
