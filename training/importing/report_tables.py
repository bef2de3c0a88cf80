"""Tables (CSV) with a report a row: columns by their names, and no others are read."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from training.clinical.reports.study_report import ReportError, SourceReport, parse_status, parse_time
from training.common.errors import DataError
from training.common.rejections import Rejection
from training.common.tables.table import Row, Table, open_table

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
    "referringphysician dictatedby "
    "signedby author patientbirthdate birthdate dob",
}
_ROLES: Final = {name: role for role, names in _COLUMNS.items() for name in names.split()}
_SECTIONS: Final = ("indication", "technique", "comparison", "findings", "impression", "addendum")


def read_table(path: Path, encoding: str | None) -> Iterator[tuple[int, SourceReport | ReportError]]:
    """Give the line of each row with its report, or the reason why it cannot be taken.

    Raises:
        DataError: The table cannot be read, or lacks a column; nothing of it is said.
    """
    try:
        table = open_table(path, lambda name: _role(name) is not None, encoding)
        yield from _reports(table)
    except _UnfitTableError:
        raise
    except DataError:
        # The sentences of tables show names of columns, and what is not UTF-8.
        raise DataError(
            "The table cannot be read: its first line names each column once, and its text is UTF-8 or of "
            "the given `--encoding`."
        ) from None


class _UnfitTableError(DataError):
    """A table that lacks a column."""


def _reports(table: Table) -> Iterator[tuple[int, SourceReport | ReportError]]:
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
            yield row.line, _report(values)


def _role(name: str) -> str | None:
    return _ROLES.get(re.sub(r"[\s_\-.]+", "", name).lower())


def _report(values: list[tuple[str | None, str]]) -> SourceReport | ReportError:
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
