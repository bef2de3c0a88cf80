"""A report of a study: as its source has it, and as it is kept."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Literal

from training.data.dicom.pseudonyms import keyed_hash, shift_days
from training.data.reports.sections import Section, clinical_sections, is_addendum

Status = Literal["preliminary", "final", "amended", "corrected", "withdrawn"]
# Characters of a report; longer texts are logs or whole records.
LONGEST: Final = 200_000
_UID: Final = re.compile(r"[0-2](?:\.(?:0|[1-9][0-9]*)){3,}")
_LONGEST_UID: Final = 64
_FEWEST_LETTERS: Final = 2


class ReportError(Exception):
    """Reason why a report cannot be taken, without its place and without a word of it."""


class OwnResultError(ReportError):
    """It is no report, but the result of a search that recoquest wrote."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A report as its source has it; it identifies people, and stays in memory.

    Attributes:
        text: The whole text with its headings.
        studies: Study Instance UIDs that it may belong to.
        accessions: Accession numbers that it may belong to, the likeliest first.
        patient: Id of the patient, as images have it; "" where it is not given.
        identity: Id of the report, which its versions share; "" where it is not given.
        status: What its author says of it.
        issued: When this version was issued.
        names: Names and numbers of people, which are taken out of the text.
    """

    text: str
    studies: tuple[str, ...] = ()
    accessions: tuple[str, ...] = ()
    patient: str = ""
    identity: str = ""
    status: Status = "final"
    issued: datetime | None = None
    names: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class StudyReport:
    """A report as it is kept, without what identifies people.

    Attributes:
        keys: Keys of the study, such as "study:1.2.3" and "accession:" with a keyed hash, the likeliest
            first.
        patient: Keyed hash of the patient's id; None where it is not given.
        identity: Keyed hash of the report's id, which its versions share; None where it is not given.
        status: What its author says of it.
        issued: When this version was issued, moved back by days that are secret and the same for a study.
        sections: Clinical sections.
    """

    keys: tuple[str, ...]
    patient: str | None
    identity: str | None
    status: Status
    issued: str | None
    sections: tuple[Section, ...]

    @property
    def is_addendum(self) -> bool:
        """True if the report only adds to another one."""
        return bool(self.sections) and all(map(is_addendum, self.sections))

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: the same report given again has the same."""
        whole = (self.keys, self.patient, self.identity, self.status, self.issued, tuple(self.sections))
        return sha256(repr(whole).encode()).hexdigest()


def deidentified(report: SourceReport, key: bytes) -> StudyReport:
    """Return a report without names, ids, dates and everything outside of its clinical sections.

    Args:
        report: The report as its source has it.
        key: Secret of the home folder, for keyed hashes.

    Raises:
        ReportError: It names no study, is too long, or nothing clinical is left of it.
    """
    studies = [uid for uid in dict.fromkeys(report.studies) if is_uid(uid)]
    accessions = [own for own in dict.fromkeys(one.strip() for one in report.accessions) if own]
    keys = (
        *map(study_key, studies),
        *(f"accession:{keyed_hash(key, 'accession', own)}" for own in accessions),
    )
    if not keys:
        raise ReportError("it names neither a study nor an accession number")
    if len(report.text) > LONGEST:
        raise ReportError(f"it has more than {LONGEST:,} characters")
    sections: Sequence[Section] = ()
    if report.status != "withdrawn":
        ids = (report.patient, *accessions, *studies)
        sections = clinical_sections(report.text, (*report.names, *ids))
        if sum(sign.isalpha() for section in sections for sign in section.text) < _FEWEST_LETTERS:
            raise ReportError("no clinical section was found in it")
    patient, identity = report.patient.strip(), report.identity.strip()
    return StudyReport(
        keys=keys,
        patient=keyed_hash(key, "patient", patient) if patient else None,
        identity=keyed_hash(key, "report", identity) if identity else None,
        status=report.status,
        issued=_moved(report.issued, key, keys[0]),
        sections=tuple(sections),
    )


def study_key(uid: str) -> str:
    """Return the key of a study by its Study Instance UID."""
    return f"study:{uid}"


def is_uid(text: str) -> bool:
    """Tell whether a text has the form of a DICOM UID."""
    return len(text) <= _LONGEST_UID and _UID.fullmatch(text) is not None


def _moved(issued: datetime | None, key: bytes, study: str) -> str | None:
    """Return a time that keeps the order of a study's reports and tells nobody the day."""
    if issued is None:
        return None
    try:
        plain = issued if issued.tzinfo is None else issued.astimezone().replace(tzinfo=None)
        return (plain - timedelta(days=shift_days(key, study))).isoformat(timespec="seconds")
    except OverflowError:
        return None
