"""The report of a study that counts, of all that were received: the newest final one, with its addenda.

One that describes the image counts before any without a text that does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from training.clinical.findings import CHEXPERT_LABELS, chexpert_labels
from training.clinical.reports.study_report import Status, StudyReport
from training.clinical.text.report_text import make_report
from training.clinical.text.sections import DESCRIBING


@dataclass(frozen=True, slots=True)
class CurrentReport:
    """Report, sentences that describe the image, and present labels of CheXpert that a study's images get.

    The text has headings, and addenda at its end. Text and status are None for a withdrawn report.
    """

    text: str | None
    sentences: tuple[str, ...]
    labels: tuple[str, ...]
    status: Status | None

    def labels_of(self, before: Sequence[str]) -> tuple[str, ...]:
        """Return the labels of an image that had others: those of CheXpert are replaced."""
        return (*(label for label in before if label not in CHEXPERT_LABELS), *self.labels)


# The report of a study whose reports were withdrawn.
NO_REPORT: Final = CurrentReport(None, (), (), None)


def current_report(received: Sequence[StudyReport]) -> CurrentReport | None:
    """Return the report that counts, of those of a study in the order in which they came; None of addenda."""
    valid: list[StudyReport] = []
    withdrawn = False
    for report in sorted(received, key=lambda report: report.issued or ""):
        if report.status == "withdrawn":
            withdrawn = True
            gone = (None, report.identity)
            valid = [one for one in valid if report.identity is not None and one.identity not in gone]
        else:
            valid.append(report)
    whole = [report for report in valid if not report.is_addendum]
    whole = [report for report in whole if report.describes] or whole
    final = [report for report in whole if report.status != "preliminary"]
    newest = (final or whole)[-1:]
    # Its own addenda, and those that came alone, but for a withdrawn report.
    sources = [*newest, *(one for one in valid if one.is_addendum)] if newest or not withdrawn else []
    sections = [section for one in newest for section in one.sections if section.kind != "addendum"]
    sections += [section for one in sources for section in one.sections if section.kind == "addendum"]
    kept = list({section.text: section for section in sections}.values())
    if not kept:
        return NO_REPORT if withdrawn else None
    text = "\n\n".join(f"{one.heading}: {one.text}".removeprefix(": ") for one in kept)
    described = {f"{number}": one.text for number, one in enumerate(kept) if one.kind in DESCRIBING}
    labels = tuple(label for label, state in chexpert_labels(text).items() if state == "present")
    status = newest[0].status if newest else valid[-1].status
    return CurrentReport(text, make_report(described).sentences, labels, status)
