"""MIMIC-CXR's reports as files, and images in the folders of their studies."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from training.data.readers.common.image_files import is_image, walk_files
from training.data.readers.common.report_sections import read_report
from training.data.readers.common.reports import Report
from training.data.readers.common.splits import draw_split
from training.data.readers.listing import Listing
from training.data.readers.tables.encodings import decode_text
from training.data.record import Record
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

# files/p10/p10000032/s50414267.txt, and images in s50414267/ or named s50414267.
_REPORT: Final = re.compile(r"(?:.*/)?(p\d+)/(s\d+)\.txt")
_IMAGE: Final = re.compile(r"(?:.*/)?(p\d+)/(s\d+)(?:/[^/]+)?\.\w+")
_PLACES: Final = ("files", "mimic-cxr-reports/files", "mimic-cxr-reports", "")
_LARGEST: Final = 1 << 20


class ReportFiles:
    """Reports in a folder that holds p10 and its like; each is read when it is asked for.

    Args:
        folder: That folder.
        encoding: Of reports without a byte order mark; UTF-8 without it.
    """

    def __init__(self, folder: Path, encoding: str | None = None) -> None:
        self.folder = folder
        self._encoding = encoding
        self._last: tuple[str, Report] = ("", Report())

    def read(self, patient: str, study: str) -> Report:
        """The report of a study; an empty one where it has none.

        Raises:
            DataError: The file cannot be read.
        """
        name = f"{patient[:3]}/{patient}/{study}.txt"
        if self._last[0] != name:
            self._last = (name, self._read(name))
        return self._last[1]

    def _read(self, name: str) -> Report:
        path = self.folder / name
        try:
            if path.stat().st_size > _LARGEST:
                raise DataError(f"the report {name} has over {_LARGEST >> 20} MiB")
            return read_report(decode_text(path.read_bytes(), f"the report {name}", self._encoding))
        except FileNotFoundError:
            return Report()
        except OSError as error:
            raise DataError(f"the report {name} cannot be read: {error.strerror or error}") from error


def find_reports(source: Path) -> Path | None:
    """The folder with p10 to p19 in `source`, if reports lie in it."""
    for place in _PLACES:
        folder = source / place
        if next(folder.glob("p[0-9][0-9]/p*/s*.txt"), None) is not None:
            return folder
    return None


def list_mimic_reports(reports: Path, images: Path, encoding: str | None = None) -> Listing:
    """List the images in the folders of studies, each with the report of its study.

    Images lie in folders such as p10000032/s50414267, or are named s50414267; those of a study without a
    report have no texts. The split is drawn by patient.

    Args:
        reports: Folder that holds p10 and its like.
        images: Folder of the images; what lies above the folders of patients does not matter.
        encoding: Of the reports, where they are not UTF-8.

    Raises:
        DataError: There is no image of a study.
    """
    left_out = Counter[str]()
    found: list[tuple[str, str, str]] = []
    for path in walk_files(images):
        place = _IMAGE.fullmatch(path)
        if place is not None and is_image(path):
            found.append((path, place[1], place[2]))
        elif is_image(path):
            left_out["images outside of the folder of a study"] += 1
        elif place is not None and not path.endswith(".txt"):
            left_out[f"{Path(path).suffix} files of studies"] += 1
    if not found:
        raise DataError(
            f"There are reports in {reports} and no image such as p10/p10000032/s50414267/NAME.jpg in "
            f"{images}; give the folder of the images with --images."
        )
    # A study's images, one after the other, wherever they lie: its report is read once.
    found.sort(key=lambda item: (item[1], item[2], item[0]))
    studies = {(patient, study) for _, patient, study in found}
    written = {(match[1], match[2]) for path in walk_files(reports) if (match := _REPORT.fullmatch(path))}
    left_out["reports without an image"] += len(written - studies)
    beside = [LeftOut(reason, count) for reason, count in left_out.items() if count]
    return Listing(images, images, len(found), _read(found, ReportFiles(reports, encoding)), "image", beside)


def _read(found: list[tuple[str, str, str]], reports: ReportFiles) -> Iterator[Record | Rejection]:
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
            id=name if name == study else f"{study}-{name}",
            image=path,
            split=draw_split(patient),
            texts=report.sentences,
            group=patient,
            report=report.text,
            metadata={"study": study},
            line=number,
        )
