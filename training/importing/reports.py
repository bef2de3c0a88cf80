"""Reports of hospitals in files of any of their formats, and how they get to the records of a manifest."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from training.clinical.pseudonyms import PATIENT_FIELDS
from training.clinical.reports.current import CurrentReport, current_report
from training.clinical.reports.fhir import read_resource
from training.clinical.reports.hl7 import parse_message, read_message, split_messages
from training.clinical.reports.structured import is_structured_report, parse_structured
from training.clinical.reports.study_report import (
    LONGEST,
    NoReportError,
    ReportError,
    SourceReport,
    StudyReport,
    deidentified,
    is_uid,
    parse_status,
    parse_time,
)
from training.common.encodings import decode_text
from training.common.errors import DataError
from training.common.manifest import read_manifest, write_manifest
from training.common.record import Record
from training.common.rejections import Rejection
from training.common.tables import Row, Table, open_table
from training.imaging.formats import SIGNATURE_BYTES, is_dicom
from training.importing.report import Contents, Examples

Format = Literal["text", "csv", "fhir", "hl7", "sr"]
_BY_ENDING: Final[dict[str, Format]] = {
    ".txt": "text",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "fhir",
    ".ndjson": "fhir",
    ".jsonl": "fhir",
    ".hl7": "hl7",
    ".oru": "hl7",
    ".er7": "hl7",
    ".dcm": "sr",
}
# Other endings may be a part of anybody's name.
_OTHERS: Final = (
    *(".pdf", ".doc", ".docx", ".rtf", ".odt", ".xml", ".html", ".xls", ".xlsx", ".zip", ".jpg", ".png"),
)
_HIDDEN: Final = (".", "@", "__MACOSX", "$")
_LONGEST_FILE: Final = 256 * 2**20
# How files of a folder are counted, for messages.
ORDER: Final = "find SOURCE ! -type d | LC_ALL=C sort"
_COLUMNS: Final = {
    "study": "study studyuid studyinstanceuid studyiuid",
    "accession": "accession accessionnumber accessionno acc accno auftragsnummer",
    "patient": "patient patientid mrn subjectid",
    "identity": "reportid reportnumber",
    "status": "status reportstatus resultstatus befundstatus",
    "issued": "issued date reportdate issuedate reportdatetime befunddatum datum",
    "text": "report reporttext text narrative fullreport befundtext bericht",
    "findings": "findings finding befund",
    "impression": "impression impressions conclusion beurteilung",
    "addendum": "addendum addenda nachtrag",
    "indication": "indication history clinicalhistory clinicalinformation klinik fragestellung",
    "technique": "technique technik",
    "comparison": "comparison vergleich",
    "name": "name patientname lastname firstname familyname givenname radiologist physician "
    "referringphysician dictatedby signedby author patientbirthdate birthdate dob",
}
_ROLES: Final = {name: role for role, names in _COLUMNS.items() for name in names.split()}
_SECTIONS: Final = ("indication", "technique", "comparison", "findings", "impression", "addendum")
_STATUS_FIELD: Final = "report_status"
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class ReadReport:
    """A report and its location.

    Attributes:
        location: Number of the file in `ORDER`, and line or number in it: names of files are names of people.
        report: The report; for one that cannot be taken, the reason.
    """

    location: str
    report: StudyReport | ReportError


@dataclass(frozen=True, slots=True)
class LeftOutFile:
    """A file without reports that can be read, and why it was passed over."""

    location: str
    reason: str


def read_reports(
    source: Path, key: bytes, format: Format | None = None, encoding: str | None = None
) -> Iterator[ReadReport | LeftOutFile]:
    """Read a file, or all files of a folder in the order of their names, which are not said.

    The `key` is the secret of the home folder, for keyed hashes. Without a `format`, endings and beginnings
    of files tell it; `encoding` is that of texts and tables that are not UTF-8.

    Raises:
        DataError: The source cannot be read.
    """
    if not source.exists():
        raise DataError("The source of the reports is not there: give a file or a folder.")
    for number, path in _files(source):
        location = f"File {number}"
        try:
            if path.stat().st_size > _LONGEST_FILE:
                raise ReportError(f"it has more than {_LONGEST_FILE >> 20} MiB")
            own = format or _format(path)
            if own is None:
                raise NoReportError(f"{_ending(path)}: not known as a format of reports")
            if own == "sr" and format is None and not is_structured_report(path):
                raise NoReportError("DICOM files that are no structured reports")
            for inside, report in _read(path, own, encoding):
                if isinstance(report, SourceReport):
                    try:
                        yield ReadReport(f"{location}{inside}", deidentified(report, key))
                    except ReportError as error:
                        yield ReadReport(f"{location}{inside}", error)
                elif isinstance(report, NoReportError):
                    yield LeftOutFile(f"{location}{inside}", str(report))
                else:
                    yield ReadReport(f"{location}{inside}", report)
        except NoReportError as error:
            yield LeftOutFile(location, str(error))
        except ReportError as error:
            yield ReadReport(location, error)
        except OSError as error:
            yield ReadReport(location, ReportError(f"it cannot be read: {error.strerror or 'input error'}"))
        except DataError as error:
            if path == source:
                raise
            yield ReadReport(location, ReportError(str(error).rstrip(".")))


def _files(source: Path) -> Iterator[tuple[int, Path]]:
    """Give the files with their numbers; hidden ones are counted and passed over."""
    if not source.is_dir():
        yield 1, source
        return
    paths = []
    for folder, folders, names in os.walk(os.fsencode(source)):
        links = [name for name in folders if Path(os.fsdecode(folder), os.fsdecode(name)).is_symlink()]
        paths += [os.path.join(folder, name) for name in (*names, *links)]  # noqa: PTH118 - in any encoding
    for number, name in enumerate(sorted(paths), 1):
        path = Path(os.fsdecode(name))
        parts = path.relative_to(source).parts
        if path.is_file() and not any(part.startswith(_HIDDEN) for part in parts):
            yield number, path


def _ending(path: Path) -> str:
    ending = path.suffix.lower()
    return ending if ending in _OTHERS else "files of other endings" if ending else "files without an ending"


def _format(path: Path) -> Format | None:
    with path.open("rb") as file:
        start = file.read(SIGNATURE_BYTES)
    if is_dicom(start):
        return "sr"
    if start.lstrip(b"\x0b\xef\xbb\xbf\r\n ").startswith((b"MSH|", b"FHS|", b"BHS|")):
        return "hl7"
    return _BY_ENDING.get(path.suffix.lower())


def _read(
    path: Path, format: Format, encoding: str | None
) -> Iterator[tuple[str, SourceReport | ReportError]]:
    """Give reports with their locations in a file.

    Raises:
        ReportError: The file has no report.
        DataError: A table cannot be read.
    """
    if format == "text":
        yield "", _text_file(path, encoding)
    elif format == "csv":
        for line, report in _table_file(path, encoding):
            yield f", line {line}", report
    elif format == "fhir":
        yield from _fhir_file(path, encoding)
    elif format == "hl7":
        yield from _hl7_file(path)
    else:
        yield "", parse_structured(path.read_bytes())


def _text_file(path: Path, encoding: str | None) -> SourceReport:
    if path.stat().st_size > 4 * LONGEST:
        raise ReportError(f"it has more than {LONGEST:,} characters")
    text, name = _decoded(path, encoding), path.stem.strip()
    # The name says which study it is; "." and "_" around it say nothing.
    return SourceReport(text, studies=(name,)) if is_uid(name) else SourceReport(text, accessions=(name,))


def _decoded(path: Path, encoding: str | None) -> str:
    try:
        return decode_text(path.read_bytes(), "it", encoding)
    except DataError:
        # Its sentence shows what is not UTF-8, such as letters of a name.
        raise ReportError("it is not UTF-8 or not of the given `--encoding`, or no text") from None


def _fhir_file(path: Path, encoding: str | None) -> Iterator[tuple[str, SourceReport | ReportError]]:
    content = _decoded(path, encoding)
    parts = [("", content)]
    if path.suffix.lower() in (".ndjson", ".jsonl"):
        parts = [(f", line {number}", line) for number, line in enumerate(content.splitlines(), 1)]
    for location, part in parts:
        try:
            for number, report in enumerate(read_resource(part) if part.strip() else (), 1):
                yield f"{location}, report {number}", report
        except ReportError as error:
            yield location, error


def _hl7_file(path: Path) -> Iterator[tuple[str, SourceReport | ReportError]]:
    messages = split_messages(path.read_bytes())
    if not messages:
        raise ReportError("it has no message that begins with MSH")
    for number, content in enumerate(messages, 1):
        location = f", message {number}"
        try:
            for report in read_message(parse_message(content)):
                yield location, report
        except ReportError as error:
            yield location, error


class _UnfitTableError(DataError):
    """A table that lacks a column."""


def _table_file(path: Path, encoding: str | None) -> Iterator[tuple[int, SourceReport | ReportError]]:
    """Give the line of each row of a table with its report; only columns of known names are read."""
    try:
        yield from _rows(open_table(path, lambda name: _role(name) is not None, encoding))
    except _UnfitTableError:
        raise
    except DataError:
        # The sentences of tables show names of columns, and what is not UTF-8.
        raise DataError(
            "The table cannot be read: its first line names each column once, and its text is UTF-8 or of "
            "the given `--encoding`."
        ) from None


def _rows(table: Table) -> Iterator[tuple[int, SourceReport | ReportError]]:
    roles = [_role(name) for name in table.columns]
    if not {"study", "accession"}.intersection(roles):
        raise _UnfitTableError("The table has no column for the study: name one study_uid or accession.")
    if not {"text", *_SECTIONS}.intersection(roles):
        raise _UnfitTableError(
            "The table has no column with reports: name one report, or findings and impression."
        )
    for row in table.rows():
        if isinstance(row, Rejection):
            yield row.line, ReportError(row.reason)
        elif isinstance(row, Row):
            values = [(role, value.strip()) for role, value in zip(roles, row.values, strict=True)]
            yield row.line, _report_in(values)


def _role(name: str) -> str | None:
    return _ROLES.get(re.sub(r"[\s_\-.]+", "", name).lower())


def _report_in(values: list[tuple[str | None, str]]) -> SourceReport | ReportError:
    first = {role: value for role, value in reversed(values) if role is not None and value}
    status = parse_status(first.get("status", "final"))
    if status is None:
        return ReportError("its status is none of preliminary, final, amended, corrected and withdrawn")
    issued = None
    if "issued" in first and (issued := parse_time(first["issued"])) is None:
        return ReportError("its date is none; write 2026-01-31 or 2026-01-31T14:05")
    sections = [f"{name.upper()}: {first[name]}" for name in _SECTIONS if name in first]
    return SourceReport(
        text="\n\n".join([*filter(None, [first.get("text")]), *sections]),
        studies=tuple(filter(None, [first.get("study")])),
        accessions=tuple(filter(None, [first.get("accession")])),
        patients=tuple(value for role, value in values if role == "patient"),
        identity=first.get("identity", ""),
        status=status,
        issued=issued,
        names=tuple(value for role, value in values if role == "name"),
    )


@dataclass(frozen=True, slots=True)
class Attached:
    """Records with their reports.

    Attributes:
        matched: Number of reports whose study has a record.
        waiting: Number of reports whose study has none.
        mismatched: Indices, among the given ones, of reports of a study whose records are of another patient.
        without_text: Indices of matched reports that have no text which describes the image.
    """

    records: tuple[Record, ...]
    matched: int
    waiting: int
    mismatched: tuple[int, ...]
    without_text: tuple[int, ...]


def attach_reports(records: Sequence[Record], reports: Iterable[StudyReport]) -> Attached:
    """Give records the texts, the report and the labels of the reports of their studies.

    Records have `study`, `accession` or both in their metadata; reports are in the order in which they came.
    """
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for position, record in enumerate(records):
        for name in ("study", "accession"):
            if value := record.metadata.get(name):
                by_key[f"{name}:{value}"].append(position)
    received: defaultdict[int, list[StudyReport]] = defaultdict(list)
    matched = waiting = 0
    mismatched, without_text = list[int](), list[int]()
    for number, report in enumerate(reports):
        positions = next((by_key[key] for key in report.study_keys if key in by_key), [])
        patients = {position: _patients(records[position]) for position in positions}
        same = [position for position in positions if report.may_be_of(patients[position], patients.values())]
        matched += bool(same)
        waiting += not positions
        if positions and not same:
            mismatched.append(number)
        if same and not report.describes:
            without_text.append(number)
        for position in same:
            received[position].append(report)
    changed = list(records)
    for position, own in received.items():
        current = current_report(own)
        if current is not None:
            changed[position] = with_report(records[position], current)
    return Attached(tuple(changed), matched, waiting, tuple(mismatched), tuple(without_text))


def _patients(record: Record) -> tuple[str, ...]:
    """Return the keyed hashes of a record's patient, the first of which is that of its Patient ID."""
    given = (record.metadata.get(name, ()) for name in PATIENT_FIELDS)
    return tuple(str(own) for one in given for own in (one if isinstance(one, tuple) else (one,)))


def with_report(record: Record, current: CurrentReport) -> Record:
    """Return a record with what it gets of the report of its study."""
    metadata = {name: value for name, value in record.metadata.items() if name != _STATUS_FIELD}
    if current.status is not None:
        metadata[_STATUS_FIELD] = current.status
    return replace(
        record,
        texts=current.sentences,
        report=current.text,
        labels=current.labels_of(record.labels),
        metadata=metadata,
    )


@dataclass(frozen=True, slots=True)
class AttachedSource:
    """What became of the reports of a source.

    Attributes:
        refused: Location and reason of each that cannot be taken.
        sentences: The counts, found = matched + without an image + refused + left out, and remarks.
    """

    refused: tuple[str, ...]
    sentences: tuple[str, ...]
    contents: Contents


def attach_source(folder: Path, source: Path, key: bytes) -> AttachedSource:
    """Give the records of a folder's manifest the reports of a file or folder, and write it anew.

    Raises:
        DataError: The manifest or the source cannot be read.
    """
    reports: list[StudyReport] = []
    locations: list[str] = []
    refused: list[str] = []
    left_out = Counter[str]()
    for read in read_reports(source, key):
        if isinstance(read, LeftOutFile):
            left_out[read.reason] += 1
        elif isinstance(read.report, ReportError):
            refused.append(f"{read.location}: {read.report}.")
        else:
            reports.append(read.report)
            locations.append(read.location)
    attached = attach_reports(read_manifest(folder, max_rejected=0).records, reports)
    write_manifest(folder, attached.records)
    refused += (f"{locations[at]}: {reports[at].mismatch}." for at in attached.mismatched)
    contents = Contents()
    for record in attached.records:
        contents.add(record)
    # Reports without a text are named by their locations.
    contents.fragments = Examples()
    total = attached.matched + attached.waiting + len(refused) + left_out.total()
    counts = (
        f"Reports: {total:,} found = {attached.matched:,} matched + {attached.waiting:,} without an image + "
        f"{len(refused):,} refused + {left_out.total():,} left out."
    )
    bare = [locations[at] for at in attached.without_text]
    said = (counts, *remarks(left_out, len(attached.mismatched), bare))
    return AttachedSource(tuple(refused), said, contents)


def remarks(left_out: Mapping[str, int], differing: int, without_text: Sequence[str]) -> Iterator[str]:
    """Give sentences on reports that are left out, of another patient, or, by location, without text."""
    for reason, count in sorted(left_out.items()):
        yield f"Left out: {count:,} files ({reason})."
    if differing:
        yield f"Of another patient than the images of their study: {differing:,} of the refused reports."
    if without_text:
        shown = "; ".join([*without_text[:_SHOWN], *(["..."] if len(without_text) > _SHOWN else [])])
        yield f"Matched, without text that describes the image: {len(without_text):,} reports ({shown})."
