"""Reports brought to the records of a manifest, by study or accession number."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from training.clinical.pseudonyms import PATIENT_FIELDS
from training.clinical.reports.current import CurrentReport, current_report
from training.clinical.reports.study_report import ReportError, StudyReport
from training.common.manifest import read_manifest, write_manifest
from training.common.record import Record
from training.importing.examples import Examples
from training.importing.report import Contents
from training.importing.report_files import LeftOutFile, read_reports

STATUS_FIELD: Final = "report_status"
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Attached:
    """Records with their reports.

    Attributes:
        records: All records, in their order.
        matched: Number of reports whose study has a record.
        waiting: Number of reports whose study has none.
        mismatched: Places, among the given ones, of reports of a study whose records are of another patient.
        without_text: Places of matched reports that have no text which describes the image.
    """

    records: tuple[Record, ...]
    matched: int
    waiting: int
    mismatched: tuple[int, ...]
    without_text: tuple[int, ...]

    @property
    def differing(self) -> int:
        """Number of reports of a study whose records are of another patient."""
        return len(self.mismatched)


@dataclass(frozen=True, slots=True)
class AttachedSource:
    """Counts of the reports of a source: found is the sum of matched, unmatched, refused and left out.

    Attributes:
        matched: Number of those whose study has a record.
        unmatched: Number of those whose study has none.
        refused: Place and reason of each that cannot be taken.
        differing: Number of refused ones whose study has records of another patient.
        left_out: Number of files of other kinds, by reason.
        without_text: Places of matched reports that have no text which describes the image.
        contents: Texts and labels of all records.
    """

    matched: int
    unmatched: int
    refused: tuple[str, ...]
    differing: int
    left_out: Counter[str]
    without_text: tuple[str, ...]
    contents: Contents

    @property
    def sentence(self) -> str:
        """The counts for people."""
        left_out = self.left_out.total()
        found = self.matched + self.unmatched + len(self.refused) + left_out
        return (
            f"Reports: {found:,} found = {self.matched:,} matched + {self.unmatched:,} without an image + "
            f"{len(self.refused):,} refused + {left_out:,} left out."
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
    places: list[str] = []
    left_out = Counter[str]()
    for read in read_reports(source, key):
        if isinstance(read, LeftOutFile):
            left_out[read.reason] += 1
        elif isinstance(read.report, ReportError):
            refused.append(f"{read.place}: {read.report}.")
        else:
            reports.append(read.report)
            places.append(read.place)
    attached = attach_reports(read_manifest(folder, max_rejected=0).records, reports)
    write_manifest(folder, attached.records)
    refused += (f"{places[at]}: {reports[at].mismatch}." for at in attached.mismatched)
    contents = Contents()
    for record in attached.records:
        contents.add(record)
    # Reports without a text are told of by their places.
    contents.fragments = Examples()
    bare = tuple(places[at] for at in attached.without_text)
    differing, unmatched = len(attached.mismatched), attached.waiting
    return AttachedSource(attached.matched, unmatched, tuple(refused), differing, left_out, bare, contents)


def remarks(left_out: Mapping[str, int], differing: int, without_text: Sequence[str]) -> Iterator[str]:
    """Give sentences on reports that are left out, of another patient, or, by their places, without text."""
    for reason, count in sorted(left_out.items()):
        yield f"Left out: {count:,} files ({reason})."
    if differing:
        yield f"Of another patient than the images of their study: {differing:,} of the refused reports."
    if without_text:
        shown = "; ".join([*without_text[:_SHOWN], *(["..."] if len(without_text) > _SHOWN else [])])
        yield f"Matched, without text that describes the image: {len(without_text):,} reports ({shown})."


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
    matched = waiting = 0
    mismatched, without_text = list[int](), list[int]()
    for number, report in enumerate(reports):
        places = next((by_key[key] for key in report.study_keys if key in by_key), [])
        patients = {place: _patients(records[place]) for place in places}
        same = [place for place in places if report.may_be_of(patients[place], patients.values())]
        matched += bool(same)
        waiting += not places
        if places and not same:
            mismatched.append(number)
        if same and not report.describes:
            without_text.append(number)
        for place in same:
            received[place].append(report)
    changed = list(records)
    for place, own in received.items():
        current = current_report(own)
        if current is not None:
            changed[place] = with_report(records[place], current)
    return Attached(tuple(changed), matched, waiting, tuple(mismatched), tuple(without_text))


def keys_of(record: Record) -> tuple[str, ...]:
    """Return the keys by which a record's reports find it."""
    names = ("study", "accession")
    return tuple(f"{name}:{record.metadata[name]}" for name in names if record.metadata.get(name))


def _patients(record: Record) -> tuple[str, ...]:
    """Return the keyed hashes of a record's patient, the first of which is that of its Patient ID."""
    given = (record.metadata.get(name, ()) for name in PATIENT_FIELDS)
    return tuple(str(own) for one in given for own in (one if isinstance(one, tuple) else (one,)))


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
