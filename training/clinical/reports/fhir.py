"""FHIR: DiagnosticReport, alone, in a Bundle or in lines of JSON (R4 and R5)."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from training.clinical.reports.markup import plain_text, text_of_html
from training.clinical.reports.study_report import (
    LONGEST,
    UNREAD,
    NoReportError,
    ReportError,
    SourceReport,
    named_value,
    parse_status,
    parse_time,
)
from training.clinical.text.headings import kind_of

# Entries of a Bundle, and parts of a resource.
_MOST_ENTRIES: Final = 100_000
_MOST_PARTS: Final = 1000
_UID_SYSTEM: Final = "urn:dicom:uid"
_OID: Final = "urn:oid:"
_TEXT: Final = ("text/plain", "text/html", "application/xhtml+xml", "text/rtf", "application/rtf")
# Codes of SNOMED CT and LOINC, for values without a text.
_VALUES: Final = {
    **dict.fromkeys(("52101004", "260373001", "10828004", "LA9633-4", "LA11882-0", "POS"), "Present"),
    **dict.fromkeys(("2667000", "260415000", "260385009", "LA9634-2", "LA11883-8", "NEG"), "Absent"),
}
_SEMANTIC_TAG: Final = re.compile(
    r"\s\((?:disorder|finding|observable entity|qualifier value|situation|procedure)\)$"
)
_VOID: Final = ("entered-in-error", "cancelled")
_PEOPLE: Final = ("Patient", "Practitioner", "PractitionerRole", "RelatedPerson", "Person")
# References of a report that name people, or have their names.
_NAMING: Final = ("subject", "performer", "resultsInterpreter", "encounter", "basedOn", "specimen")

Resource = Mapping[str, Any]


def read_resource(content: str) -> Iterator[SourceReport | ReportError]:
    """Give the reports of a file of JSON, or the reasons why one cannot be taken.

    Raises:
        ReportError: It is no JSON, or no resource with a DiagnosticReport.
    """
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        raise ReportError("it is not JSON") from None
    if not isinstance(given, dict):
        raise ReportError("it is no resource of FHIR")
    listed, entries = given.get("entry"), [given]
    filled = [one for one in _objects(listed) if isinstance(one.get("resource"), dict)]
    if given.get("resourceType") == "Bundle":
        if isinstance(listed, list) and len(listed) > _MOST_ENTRIES:
            raise ReportError(f"the Bundle has more than {_MOST_ENTRIES:,} entries")
        entries = [one["resource"] for one in filled]
    known = {f"{one.get('resourceType')}/{one['id']}": one for one in entries if "id" in one}
    known |= {one["fullUrl"]: one["resource"] for one in filled if isinstance(one.get("fullUrl"), str)}
    reports = [one for one in entries if one.get("resourceType") == "DiagnosticReport"]
    if not reports:
        raise ReportError("it has no DiagnosticReport")
    for report in reports:
        try:
            yield _read(report, known)
        except ReportError as error:
            yield error
        except (TypeError, AttributeError, ValueError, RecursionError):
            yield ReportError("its elements do not have the form of a DiagnosticReport")


def _read(report: Resource, known: Mapping[str, Resource]) -> SourceReport:
    contained = {f"#{one.get('id')}": one for one in _objects(report.get("contained"))}
    everything = {**known, **contained}
    linked = list(_linked(report, "imagingStudy", "study", "basedOn"))
    identified = [report, *(one for link in linked for one in (link, _resolved(link, everything)))]
    subject: Resource = next(iter(_objects(report.get("subject"))), {})
    patient = _resolved(subject, everything)
    # Medical record numbers first.
    ids = (*_linked(subject, "identifier"), *_linked(patient, "identifier"))
    ids_in_order = sorted(ids, key=lambda one: "MR" not in _type_codes(one))
    references = list(_linked(report, *_NAMING))
    resources = (*contained.values(), patient, *(_resolved(one, everything) for one in references))
    people = [one for one in resources if one.get("resourceType") in _PEOPLE]
    return SourceReport(
        text=_text(report, everything),
        studies=tuple(uid for one in identified for uid in _uids(one)),
        accessions=tuple(number for one in identified for number in _accessions(one)),
        patients=tuple(str(one["value"]) for one in ids_in_order if one.get("value")),
        identity=str(report.get("id") or next(iter(_values(report)), "")),
        status=parse_status(str(report.get("status"))) or "preliminary",
        issued=parse_time(str(report.get("issued"))) or parse_time(str(report.get("effectiveDateTime"))),
        names=tuple(dict.fromkeys(_names(references, people))),
    )


def _text(report: Resource, known: Mapping[str, Resource]) -> str:
    """Return the text of the form that was signed; without one, that of the narrative and its parts."""
    forms = _objects(report.get("presentedForm"))
    texts = [text for form in forms if (text := _attached(form))]
    conclusion = _plain(str(report.get("conclusion") or "")).strip()
    observed: list[tuple[str, str]] = []
    if not texts:
        narrative = report.get("text")
        if isinstance(narrative, dict) and isinstance(narrative.get("div"), str):
            texts.append(_plain(narrative["div"][: 10 * LONGEST]))
        observed += _observed(report, known)
        for (before, _), (heading, said) in pairwise([("", ""), *observed]):
            texts.append(said if heading == before else f"{heading}: {said}")
        if not conclusion:
            coded = [_concept(one) for one in _objects(report.get("conclusionCode"))]
            conclusion = " ".join(f"{one.rstrip('.')}." for one in coded if one)
    plain = "\n\n".join(filter(None, texts))
    if conclusion and " ".join(conclusion.split()) not in " ".join(plain.split()):
        # It may have headings of its own.
        plain += f"\n\nIMPRESSION:\n{conclusion}"
    if not plain.strip() and forms:
        raise ReportError("its forms are documents such as PDF; text/plain, text/html and RTF are read")
    if observed and not UNREAD.sub("", plain).strip():
        raise NoReportError(
            "measurements or results of programs: Observations of numbers alone, or without a value"
        )
    return plain


def _plain(text: str, read: Callable[[str], str] = plain_text) -> str:
    try:
        return read(text)
    except ValueError:
        raise ReportError("its HTML cannot be read") from None


def _attached(form: Resource) -> str:
    kind, _, parameters = str(form.get("contentType") or "text/plain").lower().partition(";")
    if kind.strip() not in _TEXT or not isinstance(form.get("data"), str):
        return ""
    try:
        content = base64.b64decode(form["data"], validate=False)
    except (binascii.Error, ValueError):
        raise ReportError("presentedForm.data is not base64") from None
    charset = parameters.partition("charset=")[2].strip(" \"'") or "utf-8-sig"
    try:
        text = content.decode(charset)
    except (UnicodeError, LookupError):
        raise ReportError("presentedForm.data is not text in its character set, or in UTF-8") from None
    return _plain(text, text_of_html if "html" in kind else plain_text)


def _observed(report: Resource, known: Mapping[str, Resource], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Give what observations say, behind the names of sections; of those that cannot be read, their names."""
    references = _objects(report.get("result" if depth == 0 else "hasMember"))[:_MOST_PARTS]
    for reference in references:
        observed = _resolved(reference, known)
        if observed.get("resourceType") != "Observation" or observed.get("status") in _VOID:
            continue
        parts = _objects(observed.get("component"))
        is_group = bool(parts or _objects(observed.get("hasMember")))
        for one in (observed, *parts):
            name, (value, is_number) = _concept(one.get("code")), _value(one)
            said = named_value(name, value, is_number=is_number)
            if said and (value or not (one is observed and is_group)):
                is_section = kind_of(name) not in (None, "identifying")
                yield name.upper() if is_section else "FINDINGS", said
        if depth < 2:
            yield from _observed(observed, known, depth + 1)


def _value(observed: Resource) -> tuple[str, bool]:
    """Return the value of an observation as text, "" where it has none, and whether it is a number."""
    for name in ("valueString", "valueMarkdown"):
        if isinstance(observed.get(name), str):
            return _plain(observed[name]).strip(), False
    if isinstance(coded := observed.get("valueCodeableConcept"), dict):
        return _concept(coded), False
    if isinstance(truth := observed.get("valueBoolean"), bool):
        return "Present" if truth else "Absent", False
    if isinstance(observed.get("valueInteger"), int):
        return str(observed["valueInteger"]), True
    quantity = observed.get("valueQuantity")
    if isinstance(quantity, dict) and isinstance(quantity.get("value"), int | float):
        sign, unit = quantity.get("comparator") or "", quantity.get("unit") or ""
        return f"{sign}{quantity['value']} {unit}".strip(), True
    return "", False


def _concept(concept: Any) -> str:
    """Return the words of a concept, without the kind that SNOMED CT adds to them."""
    if not isinstance(concept, dict):
        return ""
    codings = _objects(concept.get("coding"))
    words = (concept.get("text"), *(one.get("display") for one in codings))
    name = next((text.strip() for text in words if isinstance(text, str) and text.strip()), "")
    values = (_VALUES.get(str(one.get("code"))) for one in codings)
    return _SEMANTIC_TAG.sub("", name) or next(filter(None, values), "")


def _objects(value: Any) -> list[Any]:
    listed = value if isinstance(value, list) else [value]
    return [one for one in listed[:_MOST_ENTRIES] if isinstance(one, dict)]


def _resolved(reference: Resource, known: Mapping[str, Resource]) -> Resource:
    name = reference.get("reference")
    return known.get(name, {}) if isinstance(name, str) else {}


def _linked(resource: Resource, *names: str) -> Iterator[Resource]:
    return (one for name in names for one in _objects(resource.get(name)))


def _identifiers(resource: Resource) -> Iterator[Resource]:
    named = _linked(resource, "identifier", "accession", "accessionIdentifier")
    return (one for one in named if one.get("value"))


def _values(resource: Resource) -> Iterator[str]:
    return (str(one["value"]) for one in _identifiers(resource))


def _uids(resource: Resource) -> Iterator[str]:
    for one in _identifiers(resource):
        value = str(one["value"])
        if one.get("system") == _UID_SYSTEM or value.startswith(_OID):
            yield value.removeprefix(_OID)
    if isinstance(resource.get("uid"), str):
        yield resource["uid"].removeprefix(_OID)


def _type_codes(identifier: Resource) -> list[Any]:
    kinds = _objects(identifier.get("type"))
    return [code.get("code") for kind in kinds for code in _objects(kind.get("coding"))]


def _accessions(resource: Resource) -> Iterator[str]:
    for one in _identifiers(resource):
        names = map(_concept, _objects(one.get("type")))
        if "ACSN" in _type_codes(one) or any("ccession" in name for name in names):
            yield str(one["value"])


def _names(references: Sequence[Resource], people: Sequence[Resource]) -> Iterator[str]:
    for reference in references:
        named = (reference.get("display"), reference.get("reference"))
        yield from (name.rpartition("/")[2] for name in named if isinstance(name, str))
        yield from _values(reference)
    for person in people:
        yield from _values(person)
        parts = [person.get("birthDate"), person.get("id")]
        for name in _objects(person.get("name")):
            parts += (name.get("family"), name.get("text"), *(name.get("given") or ()))
        parts += (one.get("value") for one in _objects(person.get("telecom")))
        for address in _objects(person.get("address")):
            parts += (address.get("text"), address.get("city"), *(address.get("line") or ()))
        yield from (str(part) for part in parts if part)
