"""The report of a study that counts, of all that were received: the newest final one, with its addenda.

One that describes the image counts before any without a text that does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from training.clinical.findings.chexpert import CHEXPERT_LABELS, chexpert_labels
from training.clinical.reports.study_report import Status, StudyReport
from training.clinical.text.report_text import make_report
from training.clinical.text.sections import DESCRIBING, Section, is_addendum


@dataclass(frozen=True, slots=True)
class CurrentReport:
    """Report, sentences and labels that a study's images get.

    Attributes:
        text: The whole report, with headings, addenda behind it; None: it was withdrawn.
        sentences: Sentences that describe the image.
        labels: Labels of CheXpert that are present.
        status: Status of the report; None: it was withdrawn.
    """

    text: str | None
    sentences: tuple[str, ...]
    labels: tuple[str, ...]
    status: Status | None

    def labels_of(self, before: Sequence[str]) -> tuple[str, ...]:
        """Return the labels of an image that had others: those of CheXpert are replaced."""
        return (*(label for label in before if label not in CHEXPERT_LABELS), *self.labels)


# Of a study whose reports are gone.
NO_REPORT: Final = CurrentReport(None, (), (), None)


def current_report(received: Sequence[StudyReport]) -> CurrentReport | None:
    """Return the report that counts, of those of a study in the order in which they came; None of addenda."""
    in_order = sorted(received, key=lambda report: report.issued or "")
    valid: list[StudyReport] = []
    withdrawn = False
    for report in in_order:
        if report.status == "withdrawn":
            withdrawn = True
            valid = [
                one
                for one in valid
                if report.identity is not None and one.identity not in (None, report.identity)
            ]
        else:
            valid.append(report)
    whole = [report for report in valid if not report.is_addendum]
    whole = [report for report in whole if report.describes] or whole
    final = [report for report in whole if report.status != "preliminary"]
    newest = (final or whole)[-1:]
    addenda = [section for one in (*newest, *valid) for section in one.sections if is_addendum(section)]
    addenda = addenda if newest or not withdrawn else []
    sections = [section for one in newest for section in one.sections if not is_addendum(section)]
    kept = list({section.text: section for section in (*sections, *_own(addenda, valid, newest))}.values())
    if not kept:
        return NO_REPORT if withdrawn else None
    text = "\n\n".join(_written(section) for section in kept)
    described = {f"{place}": section.text for place, section in enumerate(kept) if section.kind in DESCRIBING}
    labels = tuple(label for label, state in chexpert_labels(text).items() if state == "present")
    status = newest[0].status if newest else valid[-1].status
    return CurrentReport(text, make_report(described).sentences, labels, status)


def _own(
    addenda: Sequence[Section], valid: Sequence[StudyReport], newest: Sequence[StudyReport]
) -> list[Section]:
    """Return the addenda of the report that counts, and those that came alone."""
    alone = {section.text for report in valid if report.is_addendum for section in report.sections}
    own = {section.text for report in newest for section in report.sections}
    return [section for section in addenda if section.text in alone | own]


def _written(section: Section) -> str:
    return f"{section.heading}: {section.text}" if section.heading else section.text
