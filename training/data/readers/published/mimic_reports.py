"""MIMIC-CXR's reports as files, and images in the folders of their studies."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from training.data.readers.common.image_files import is_image, walk_files
from training.data.readers.common.report_sections import read_report
from training.data.readers.common.reports import Report
from training.data.readers.common.splits import draw_split
from training.data.readers.listing import Listing
from training.data.readers.report import Tally
from training.data.readers.tables.encodings import decode_text
from training.data.record import Record
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

# Published is files/p10/p10000032/s50414267.txt, with images in s50414267/. Copies lack letters or folders.
_PATIENT: Final = re.compile(r"p(\d{3,})|(\d{8})", re.IGNORECASE)
_STUDY: Final = re.compile(r"s(\d+)|(\d{8})", re.IGNORECASE)
_NAMED: Final = re.compile(r"(s\d+)(?:[_. -].*)?|(\d{8})", re.IGNORECASE)
_PLACES: Final = ("files", "mimic-cxr-reports/files", "mimic-cxr-reports", "")
_LARGEST: Final = 1 << 20
TAKEN: Final = "taken"
WITHOUT_TEXT: Final = "reports without a part that describes the image"
_UNREADABLE: Final = "reports that cannot be read or are several of a study"


def find_study(path: str) -> tuple[str, str] | None:
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


class ReportFiles:
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
            if path.lower().endswith(".txt") and (place := find_study(path)) is not None:
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
        return tally_reports(str(self.folder), found, self._asked)

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
        self._asked[name] = TAKEN if report.text is not None else WITHOUT_TEXT
        return report


def tally_reports(source: str, found: int, asked: Mapping[str, str]) -> Tally:
    """Count the reports of a source.

    Args:
        source: What holds them, for messages.
        found: Number of reports.
        asked: What became of those of images, by their names.
    """
    counts = Counter(asked.values())
    reasons = {"reports without an image": found - len(asked), _UNREADABLE: counts[_UNREADABLE]}
    if counts[WITHOUT_TEXT]:
        first = next(name for name, became in asked.items() if became == WITHOUT_TEXT)
        reasons[f"{WITHOUT_TEXT}, {first} first"] = counts[WITHOUT_TEXT]
    left_out = {reason: count for reason, count in reasons.items() if count}
    return Tally(source, "report", found, counts[TAKEN], 0, left_out)


def find_reports(source: Path) -> Path | None:
    """The folder with p10 to p19 in `source`, if reports lie in it; else `source`, if any lie below."""
    for place in _PLACES:
        folder = source / place
        if next(folder.glob("p[0-9][0-9]/p*/s*.txt"), None) is not None:
            return folder
    texts = (path for path in walk_files(source) if path.lower().endswith(".txt"))
    return source if any(map(find_study, texts)) else None


def list_mimic_reports(reports: Path, images: Path, encoding: str | None = None) -> Listing:
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
    files = ReportFiles(reports, encoding)
    for path in walk_files(images):
        place = find_study(path)
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
    beside = [LeftOut(reason, count) for reason, count in left_out.items() if count]
    return Listing(images, images, len(found), _read(found, files), "image", beside)


def _is_named_in_full(path: str, place: tuple[str, str]) -> bool:
    """Whether a path has a study's name with its letter; eight digits alone may be anything."""
    return any(f"/{place[1]}{end}" in f"/{path.lower()}" for end in "/._- ")


def _read(found: list[tuple[str, str, str]], reports: ReportFiles) -> Iterator[Record | Rejection | Tally]:
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
            id=name if find_study(f"{name}.jpg") == ("", study) else f"{study}-{name}",
            image=path,
            split=draw_split(patient or study),
            texts=report.sentences,
            group=patient or study,
            report=report.text,
            metadata={"study": study},
            line=number,
            drawn=True,
        )
    yield reports.tally()
