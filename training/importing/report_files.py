"""Files and folders of reports in any of the formats, one report at a time."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from training.clinical.reports.fhir import read_resource
from training.clinical.reports.hl7 import parse_message, read_message, split_messages
from training.clinical.reports.structured import is_structured_report, read_structured
from training.clinical.reports.study_report import (
    LONGEST,
    NoReportError,
    ReportError,
    SourceReport,
    StudyReport,
    deidentified,
    is_uid,
)
from training.common.errors import DataError
from training.common.tables.encodings import decode_text
from training.imaging.formats import SIGNATURE_BYTES, is_dicom
from training.importing.report_tables import read_table

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


@dataclass(frozen=True, slots=True)
class ReadReport:
    """A report and its place.

    Attributes:
        place: Number of the file in `ORDER`, and line or number in it: names of files are names of people.
        report: The report; for one that cannot be taken, the reason.
    """

    place: str
    report: StudyReport | ReportError


@dataclass(frozen=True, slots=True)
class LeftOutFile:
    """A file without reports that can be read, and why it was passed over."""

    place: str
    reason: str


def read_reports(
    source: Path, key: bytes, format: Format | None = None, encoding: str | None = None
) -> Iterator[ReadReport | LeftOutFile]:
    """Read a file, or all files of a folder in the order of their names, which are not said.

    Args:
        source: The file or folder.
        key: Secret of the home folder, for keyed hashes.
        format: Format of all files; None: by their endings and beginnings.
        encoding: Of texts and tables that are not UTF-8.

    Raises:
        DataError: The source cannot be read.
    """
    if not source.exists():
        raise DataError("The source of the reports is not there: give a file or a folder.")
    for number, path in _files(source):
        place = f"File {number}"
        try:
            if path.stat().st_size > _LONGEST_FILE:
                raise ReportError(f"it has more than {_LONGEST_FILE >> 20} MiB")
            own = format or _format(path)
            if own is None:
                yield LeftOutFile(place, f"{_ending(path)}: not known as a format of reports")
                continue
            if own == "sr" and format is None and not is_structured_report(path):
                yield LeftOutFile(place, "DICOM files that are no structured reports")
                continue
            for inside, report in _read(path, own, encoding):
                if isinstance(report, NoReportError):
                    yield LeftOutFile(f"{place}{inside}", str(report))
                else:
                    yield ReadReport(f"{place}{inside}", _kept(report, key))
        except NoReportError as error:
            yield LeftOutFile(place, str(error))
        except ReportError as error:
            yield ReadReport(place, error)
        except OSError as error:
            yield ReadReport(place, ReportError(f"it cannot be read: {error.strerror or 'input error'}"))
        except DataError as error:
            if path == source:
                raise
            yield ReadReport(place, ReportError(str(error).rstrip(".")))


def _kept(report: SourceReport | ReportError, key: bytes) -> StudyReport | ReportError:
    if isinstance(report, ReportError):
        return report
    try:
        return deidentified(report, key)
    except ReportError as error:
        return error


def _files(source: Path) -> Iterator[tuple[int, Path]]:
    """Give the files with their numbers; hidden ones are counted and passed over."""
    if not source.is_dir():
        yield 1, source
        return
    found = []
    for folder, folders, names in os.walk(os.fsencode(source)):
        links = [name for name in folders if Path(os.fsdecode(folder), os.fsdecode(name)).is_symlink()]
        found += [os.path.join(folder, name) for name in (*names, *links)]  # noqa: PTH118 - in any encoding
    for number, name in enumerate(sorted(found), 1):
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
    """Give reports with their places in a file.

    Raises:
        ReportError: The file has no report.
        DataError: A table cannot be read.
    """
    if format == "text":
        yield "", _text_file(path, encoding)
    elif format == "csv":
        for line, report in read_table(path, encoding):
            yield f", line {line}", report
    elif format == "fhir":
        yield from _fhir_file(path, encoding)
    elif format == "hl7":
        yield from _hl7_file(path)
    else:
        yield "", read_structured(path)


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
    lines = content.splitlines()
    is_lines = path.suffix.lower() in (".ndjson", ".jsonl")
    parts = (
        [(f", line {number}", line) for number, line in enumerate(lines, 1)] if is_lines else [("", content)]
    )
    for place, part in parts:
        if not part.strip():
            continue
        try:
            for number, report in enumerate(read_resource(part), 1):
                yield f"{place}, report {number}", report
        except ReportError as error:
            yield place, error


def _hl7_file(path: Path) -> Iterator[tuple[str, SourceReport | ReportError]]:
    messages = split_messages(path.read_bytes())
    if not messages:
        raise ReportError("it has no message that begins with MSH")
    for number, content in enumerate(messages, 1):
        place = f", message {number}"
        try:
            for report in read_message(parse_message(content)):
                yield place, report
        except ReportError as error:
            yield place, error
