"""Reports brought to the records of a manifest, by study or accession number."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from training.data.record import Record
from training.data.reports.current import CurrentReport, current_report
from training.data.reports.study_report import StudyReport

STATUS_FIELD = "report_status"


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
