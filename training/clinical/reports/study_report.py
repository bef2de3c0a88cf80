"""A report of a study: as its source has it, and as it is kept."""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Literal

from training.clinical.findings import find_findings
from training.clinical.pseudonyms import keyed_hash, shift_days
from training.clinical.reports.markup import plain_text
from training.clinical.text.headings import kind_of
from training.clinical.text.sections import DESCRIBING, Section, clinical_sections
from training.clinical.text.vocabulary import has_forms

Status = Literal["preliminary", "final", "amended", "corrected", "withdrawn"]
# Characters of a report; longer texts are logs or whole records.
LONGEST: Final = 200_000
_UID: Final = re.compile(r"[0-2](?:\.(?:0|[1-9][0-9]*)){3,}")
_LONGEST_UID: Final = 64
_FEWEST_LETTERS: Final = 2
_OTHER_PATIENT: Final = "patient:"
_NUMBER: Final = re.compile(r"[<>≤≥=~]{0,2}\s*[+-]?\d[\d.,/ –-]*(?:%|[^\W\d]+[^\W\d.,;]*)?\.?")
# A named value that cannot be read.
UNREAD: Final = re.compile(r"[^\n]*: unknown \(value [^\n]*\)\.")
_MOST_WORDS: Final = 6
# What HL7, FHIR and tables call a status of a report.
_STATUSES: Final[dict[Status, str]] = {
    "preliminary": "preliminary,prelim,p,draft,wet read,vorläufig,registered,partial,unknown,r,s,i",
    "final": "final,f,u,signed,verified,complete,completed,approved,endgültig",
    "amended": "amended,a,addended,appended,modified,revised,ergänzt",
    "corrected": "corrected,c,k,korrigiert",
    "withdrawn": "withdrawn,cancelled,canceled,deleted,entered-in-error,d,x,w,storniert",
}
_TIME: Final = re.compile(
    r"(\d{4})(?:[-/]?(\d\d?))?(?:[-/]?(\d\d?))?(?:[T ]?(\d\d?))?(?::?(\d\d))?(?::?(\d\d))?(?:\.\d+)?"
    r"(Z|[+-]\d\d:?\d\d)?"
)
_GERMAN_DAY: Final = re.compile(r"\A(\d\d?)\.(\d\d?)\.(\d{4})")
# Error conditions of HL7 (table 0357), for acknowledgements.
FIELD_MISSING: Final = "101^Required field missing"
DATA_TYPE_ERROR: Final = "102^Data type error"


class ReportError(Exception):
    """Reason why a report cannot be taken, without its position and without a word of it.

    Attributes:
        condition: Error condition of HL7 (table 0357).
    """

    def __init__(self, reason: str, condition: str = DATA_TYPE_ERROR) -> None:
        super().__init__(reason)
        self.condition = condition


class NoReportError(ReportError):
    """It is not a radiologist's report, but the result of a program, which is left out and counted."""


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A report as its source has it; it identifies people, and stays in memory.

    Attributes:
        text: The whole text with its headings.
        studies: Study Instance UIDs that it may belong to.
        accessions: Accession numbers that it may belong to, the likeliest first.
        patients: Ids of the patient, the likeliest first; images may have any one of them.
        identity: Id of the report, which its versions share; "" where it is not given.
        status: What its author says of it.
        issued: When this version was issued.
        names: Names and numbers of people, which are taken out of the text.
    """

    text: str
    studies: tuple[str, ...] = ()
    accessions: tuple[str, ...] = ()
    patients: tuple[str, ...] = ()
    identity: str = ""
    status: Status = "final"
    issued: datetime | None = None
    names: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class StudyReport:
    """A report as it is kept, without what identifies people.

    Attributes:
        keys: Keys of the study, such as "study:1.2.3" and "accession:" with a keyed hash, the likeliest
            first; behind them "patient:" with a keyed hash for each other id of the patient.
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
        return {section.kind for section in self.sections} == {"addendum"}

    @property
    def study_keys(self) -> tuple[str, ...]:
        """The keys of the study."""
        return tuple(key for key in self.keys if not key.startswith(_OTHER_PATIENT))

    @property
    def describes(self) -> bool:
        """False if no section describes the image, so that it gets no text."""
        return self.status == "withdrawn" or any(section.kind in DESCRIBING for section in self.sections)

    @property
    def mismatch(self) -> str:
        """Why it is not taken where `may_be_of` is false for all images of its study."""
        if self.patient is None:
            return "images of several patients have its study, and it names no patient"
        return "its patient is another one than that of its study's images"

    def may_be_of(self, patient: tuple[str, ...], among: Collection[tuple[str, ...]]) -> bool:
        """Tell whether it may be the report of a patient, of those whose images have its study.

        Args:
            patient: Keyed hashes of the patient's ids, as an image has them; none where it names no patient.
            among: Those of all images of the study.
        """
        if self.patient is None:
            return len({ids[0] for ids in among if ids}) <= 1
        own = {self.patient, *(key.removeprefix(_OTHER_PATIENT) for key in self.keys)}
        return not patient or not own.isdisjoint(patient)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: the same report given again has the same."""
        whole = (self.keys, self.patient, self.identity, self.status, self.issued, tuple(self.sections))
        return sha256(repr(whole).encode()).hexdigest()


def deidentified(report: SourceReport, key: bytes) -> StudyReport:
    """Return a report without names, ids, dates and everything outside of its clinical sections.

    Raises:
        ReportError: It names no study, is too long, or nothing clinical is left of it.
    """
    studies = list(filter(is_uid, dict.fromkeys(report.studies)))
    accessions, patients = (
        list(filter(None, dict.fromkeys(map(str.strip, ids)))) for ids in (report.accessions, report.patients)
    )
    keys = (
        *map(study_key, studies),
        *(f"accession:{keyed_hash(key, 'accession', one)}" for one in accessions),
    )
    if not keys:
        raise ReportError("it names neither a study nor an accession number", FIELD_MISSING)
    hashes = [keyed_hash(key, "patient", one) for one in patients]
    try:
        text = plain_text(report.text[: 10 * LONGEST])
    except ValueError:
        raise ReportError("its HTML cannot be read") from None
    if len(text) > LONGEST:
        raise ReportError(f"it has more than {LONGEST:,} characters")
    sections: Sequence[Section] = ()
    if report.status != "withdrawn":
        sections = clinical_sections(text, (*report.names, *patients, *accessions, *studies))
        readable = "".join(UNREAD.sub("", section.text) for section in sections)
        if sum(map(str.isalpha, readable)) < _FEWEST_LETTERS:
            raise ReportError("no clinical section was found in it", FIELD_MISSING)
    identity, issued = report.identity.strip(), None
    if report.issued is not None:
        # The order of a study's reports stays, and nobody can tell the day.
        with suppress(OverflowError):
            local = report.issued if report.issued.tzinfo is None else report.issued.astimezone()
            shifted = local.replace(tzinfo=None) - timedelta(days=shift_days(key, keys[0]))
            issued = shifted.isoformat(timespec="seconds")
    return StudyReport(
        keys=(*keys, *(f"{_OTHER_PATIENT}{other}" for other in hashes[1:])),
        patient=next(iter(hashes), None),
        identity=keyed_hash(key, "report", identity) if identity else None,
        status=report.status,
        issued=issued,
        sections=tuple(sections),
    )


def named_value(name: str, value: str, *, is_number: bool = False) -> str:
    """Return a coded or measured value as a sentence with its name, such as "Pneumothorax: Absent.".

    A number is no finding, and no value says none: they give a sentence of the form `UNREAD`, which states no
    finding and is not called normal. The name is left out where it is that of a section, or the value is
    running text.
    """
    name, value = name.strip().rstrip(":"), value.strip()
    sentence = value if value.endswith((".", "?", "!")) else f"{value}."
    named = f"{name}: {sentence}"
    if kind_of(name) == "identifying" or (not value and kind_of(name) is not None):
        return ""
    is_number = is_number or (_NUMBER.fullmatch(value) is not None and not has_forms(value))
    if not value or (is_number and find_findings(named)):
        unread = f"{name or 'Unnamed'}: unknown (value {value or 'missing'})."
        return "Unnamed: unknown (value unread)." if find_findings(unread) else unread
    if not name or kind_of(name) is not None or (len(value.split()) > _MOST_WORDS and not has_forms(name)):
        return sentence
    return named


def parse_status(word: str) -> Status | None:
    """Return the status that a word or a letter means; None for any other."""
    return next((status for status, words in _STATUSES.items() if word.lower() in words.split(",")), None)


def parse_time(value: str) -> datetime | None:
    """Return a time as ISO 8601, HL7, DICOM or a German table writes it; None for any other text."""
    match = _TIME.fullmatch(_GERMAN_DAY.sub(r"\3/\2/\1", value.strip()))
    if match is None:
        return None
    *numbers, zone = match.groups()
    year, month, day = (int(part or 1) for part in numbers[:3])
    hour, minute, second = (int(part or 0) for part in numbers[3:])
    try:
        offset = None if zone is None else datetime.strptime(zone, "%z").tzinfo
        return datetime(year, month, day, hour, minute, second, tzinfo=offset)
    except ValueError:
        return None


def study_key(uid: str) -> str:
    """Return the key of a study by its Study Instance UID."""
    return f"study:{uid}"


def is_uid(text: str) -> bool:
    """Tell whether a text has the form of a DICOM UID."""
    return len(text) <= _LONGEST_UID and _UID.fullmatch(text) is not None
