"""Reports brought to the records of a manifest, by study or accession number."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from training.data.manifest import read_manifest, write_manifest
from training.data.record import Record
from training.data.reports.current import CurrentReport, current_report
from training.data.reports.reading import LeftOutFile, read_reports
from training.data.reports.study_report import ReportError, StudyReport

STATUS_FIELD: Final = "report_status"


@dataclass(frozen=True, slots=True)
class Attached:
    """Records with their reports.

    Attributes:
        records: All records, in their order.
        matched: Number of reports whose study has a record.
        waiting: Number of reports whose study has none.
        differing: Number of reports of a study whose records are of another patient.
    """

    records: tuple[Record, ...]
    matched: int
    waiting: int
    differing: int


@dataclass(frozen=True, slots=True)
class AttachedSource:
    """Counts of the reports of a source: found is the sum of matched, unmatched, refused and left out.

    Attributes:
        matched: Number of those whose study has a record.
        unmatched: Number of those whose study has none, or records of another patient.
        refused: Place and reason of each that cannot be taken.
        left_out: Number of files of other kinds.
    """

    matched: int
    unmatched: int
    refused: tuple[str, ...]
    left_out: int

    @property
    def sentence(self) -> str:
        """The counts for people."""
        found = self.matched + self.unmatched + len(self.refused) + self.left_out
        return (
            f"Reports: {found:,} found = {self.matched:,} matched + {self.unmatched:,} without an image + "
            f"{len(self.refused):,} refused + {self.left_out:,} left out."
        )


def attach_source(folder: Path, source: Path, key: bytes) -> AttachedSource:
    """Give the records of a manifest the reports of a file or folder, and write the manifest anew.

    Args:
        folder: Folder of the manifest.
        source: File or folder of reports in any format.
        key: Secret of the home folder, for keyed hashes.

    Raises:
        DataError: The manifest or the source cannot be read.
    """
    reports: list[StudyReport] = []
    refused: list[str] = []
    left_out = 0
    for read in read_reports(source, key):
        if isinstance(read, LeftOutFile):
            left_out += 1
        elif isinstance(read.report, ReportError):
            refused.append(f"{read.place}: {read.report}.")
        else:
            reports.append(read.report)
    attached = attach_reports(read_manifest(folder, max_rejected=0).records, reports)
    write_manifest(folder, attached.records)
    return AttachedSource(attached.matched, attached.waiting + attached.differing, tuple(refused), left_out)


def attach_reports(records: Sequence[Record], reports: Iterable[StudyReport]) -> Attached:
    """Give records the texts, the report and the labels of the reports of their studies.

    Args:
        records: Records whose metadata has `study`, `accession` or both.
        reports: Reports in the order in which they came.
    """
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for place, record in enumerate(records):
        for key in keys_of(record):
            by_key[key].append(place)
    received: defaultdict[int, list[StudyReport]] = defaultdict(list)
    matched = waiting = differing = 0
    for report in reports:
        places = next((by_key[key] for key in report.keys if key in by_key), [])
        same = [place for place in places if is_same_patient(report, records[place])]
        matched += bool(same)
        waiting += not places
        differing += bool(places) and not same
        for place in same:
            received[place].append(report)
    changed = list(records)
    for place, own in received.items():
        current = current_report(own)
        if current is not None:
            changed[place] = with_report(records[place], current)
    return Attached(tuple(changed), matched, waiting, differing)


def keys_of(record: Record) -> tuple[str, ...]:
    """Return the keys by which a record's reports find it."""
    names = ("study", "accession")
    return tuple(f"{name}:{record.metadata[name]}" for name in names if record.metadata.get(name))


def is_same_patient(report: StudyReport, record: Record) -> bool:
    """Tell whether a report may be of a record's patient: both are the same, or one is not given."""
    patient = record.metadata.get("patient")
    return patient is None or report.patient is None or patient == report.patient


def with_report(record: Record, current: CurrentReport) -> Record:
    """Return a record with what it gets of the report of its study."""
    details = {name: value for name, value in record.metadata.items() if name != STATUS_FIELD}
    if current.status is not None:
        details[STATUS_FIELD] = current.status
    return replace(
        record,
        texts=current.sentences,
        report=current.text,
        labels=current.labels_of(record.labels),
        metadata=details,
    )
