"""Reports that tests read from files."""

from pathlib import Path
from typing import Any

from tests.training.clinical.reports.documents import KEY
from training.clinical.reports.study_report import StudyReport
from training.importing.reports import ReadReport, read_reports


def read_all(path: Path, **options: Any) -> list[StudyReport | str]:
    """The reports of a source, and the reasons of those that were not taken."""
    return [
        own.report
        if isinstance(own, ReadReport) and isinstance(own.report, StudyReport)
        else str(own.report if isinstance(own, ReadReport) else own.reason)
        for own in read_reports(path, KEY, **options)
    ]


def read_one(path: Path) -> StudyReport:
    (report,) = read_all(path)
    assert isinstance(report, StudyReport), report
    return report


def texts_of(report: StudyReport) -> dict[str, str]:
    return {section.heading: section.text for section in report.sections}
