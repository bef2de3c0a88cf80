"""The table of a teaching file: what teaches, and nothing by which a film or a person is found again."""

import csv
import io
import re
from collections.abc import Mapping
from datetime import date
from typing import Final, NamedTuple

from app.metadata_values import age_band, day_of, text_of
from index.search.grouping import PATIENT
from index.search.results import FoundImage
from training.clinical.findings import STATES
from training.common.manifest import MetadataValue

COLUMNS: Final = (
    "number", "file", "patient", "days", "view", "laterality", "age", "sex", "modality", "body_part",
    "findings", "report", "note",
)  # fmt: skip
# Codes of DICOM and words like them: other texts may be anything that somebody wrote.
_CODE: Final = re.compile(r"[A-Za-z0-9 _]{1,16}")
# A spreadsheet takes cells for formulas that begin so, some also behind spaces.
_FORMULA: Final = re.compile(r"[\s\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


class Case(NamedTuple):
    """An image of a teaching file.

    Attributes:
        image: The image, with its metadata.
        report: Its report.
        note: The note on it.
    """

    image: FoundImage
    report: str | None
    note: str


class CaseTable:
    """Rows of a CSV file, of numbered images and numbered patients."""

    def __init__(self) -> None:
        self._text = io.StringIO()
        self._writer = csv.writer(self._text)
        self._writer.writerow(COLUMNS)
        self._patients: dict[str, int] = {}
        self._rows: list[tuple[Case, str]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, case: Case, file: str) -> None:
        """Add an image that is in a file of the zip."""
        self._rows.append((case, file))

    def as_csv(self) -> bytes:
        """Return the table: UTF-8 with a mark at its beginning, by which spreadsheets know it."""
        first = self._first_days()
        for number, (case, file) in enumerate(self._rows, 1):
            self._writer.writerow([number, file, *(_plain(cell) for cell in self._cells(case, first))])
        return self._text.getvalue().encode("utf-8-sig")

    def _cells(self, case: Case, first: Mapping[str, date]) -> list[str]:
        known = case.image.metadata
        patient, day = text_of(known, PATIENT), day_of(known)
        number = days = ""
        if patient is not None:
            number = str(self._patients.setdefault(patient, len(self._patients) + 1))
            days = "" if day is None else str((day - first[patient]).days)
        findings = [f"{name}: {state}" for state in STATES for name in case.image.findings[state]]
        report = "\n".join(case.image.texts) if case.report is None else case.report
        return [
            number,
            days,
            _code(known, "view"),
            _code(known, "laterality"),
            age_band(known) or "",
            _code(known, "sex"),
            _code(known, "modality"),
            _code(known, "body_part"),
            "; ".join(findings),
            report,
            case.note,
        ]

    def _first_days(self) -> dict[str, date]:
        """Return the day of each patient's first film."""
        first: dict[str, date] = {}
        for case, _ in self._rows:
            patient, day = text_of(case.image.metadata, PATIENT), day_of(case.image.metadata)
            if patient is not None and day is not None:
                first[patient] = min(day, first.get(patient, day))
        return first


def _code(metadata: Mapping[str, MetadataValue], name: str) -> str:
    text = text_of(metadata, name) or ""
    return text if _CODE.fullmatch(text) else ""


def _plain(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if _FORMULA.match(cell) else cell
