"""FHIR: DiagnosticReport, alone, in a Bundle or in lines of JSON (R4 and R5)."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from training.data.reports.headings import kind_of
from training.data.reports.html_text import text_of_html
from training.data.reports.study_report import LONGEST, ReportError, SourceReport, Status

# Entries of a Bundle, and parts of a resource.
_MOST_ENTRIES: Final = 100_000
_MOST_PARTS: Final = 1000
_STATUS: Final[dict[str, Status]] = {
    "registered": "preliminary",
    "partial": "preliminary",
    "preliminary": "preliminary",
    "modified": "amended",
    "final": "final",
    "amended": "amended",
    "appended": "amended",
    "corrected": "corrected",
    "cancelled": "withdrawn",
    "entered-in-error": "withdrawn",
    "unknown": "preliminary",
}
_UID_SYSTEM: Final = "urn:dicom:uid"
_OID: Final = "urn:oid:"
_TEXT: Final = ("text/plain", "text/html", "application/xhtml+xml")
_PEOPLE: Final = ("Patient", "Practitioner", "PractitionerRole", "RelatedPerson", "Person")

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
    entries = [given]
    if given.get("resourceType") == "Bundle":
        listed = given.get("entry")
        if isinstance(listed, list) and len(listed) > _MOST_ENTRIES:
            raise ReportError(f"the Bundle has more than {_MOST_ENTRIES:,} entries")
        entries = [one["resource"] for one in _objects(listed) if isinstance(one.get("resource"), dict)]
    known = _by_reference(entries, _objects(given.get("entry")))
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


def _by_reference(resources: Sequence[Resource], entries: Sequence[Resource]) -> dict[str, Resource]:
    known = {f"{one.get('resourceType')}/{one['id']}": one for one in resources if "id" in one}
    for entry in entries:
        if isinstance(entry.get("fullUrl"), str) and isinstance(entry.get("resource"), dict):
            known[entry["fullUrl"]] = entry["resource"]
    return known


def _read(report: Resource, known: Mapping[str, Resource]) -> SourceReport:
    own = {f"#{one.get('id')}": one for one in _objects(report.get("contained"))}
    everything = {**known, **own}
    status = _STATUS.get(str(report.get("status")), "preliminary")
    studies = [
        one
        for name in ("imagingStudy", "study")
        for reference in _objects(report.get(name))
        for one in (reference, _resolved(reference, everything))
    ]
    orders = [
        one
        for reference in _objects(report.get("basedOn"))
        for one in (reference, _resolved(reference, everything))
    ]
    identified = [report, *studies, *orders]
    subject: Resource = next(iter(_objects(report.get("subject"))), {})
    patient = _resolved(subject, everything)
    people = [one for one in (*own.values(), patient) if one.get("resourceType") in _PEOPLE]
    for reference in _references(report):
        person = _resolved(reference, everything)
        if person.get("resourceType") in _PEOPLE and person not in people:
            people.append(person)
    return SourceReport(
        text=_text(report, everything),
        studies=tuple(uid for one in identified for uid in _uids(one)),
        accessions=tuple(number for one in identified for number in _accessions(one)),
        patient=_patient_id(subject, patient),
        identity=str(report.get("id") or next(iter(_values(report)), "")),
        status=status,
        issued=_time(report.get("issued")) or _time(report.get("effectiveDateTime")),
        names=tuple(_names(report, people)),
    )


def _text(report: Resource, known: Mapping[str, Resource]) -> str:
    """Return the text of the form that was signed; without one, that of the narrative and its parts."""
    forms = _objects(report.get("presentedForm"))
    texts = [text for form in forms if (text := _attached(form))]
    conclusion = str(report.get("conclusion") or "").strip()
    if not texts:
        narrative = report.get("text")
        if isinstance(narrative, dict) and isinstance(narrative.get("div"), str):
            texts.append(text_of_html(narrative["div"][: 10 * LONGEST]))
        texts += _observed(report, known)
    plain = "\n\n".join(filter(None, texts))
    if conclusion and " ".join(conclusion.split()) not in " ".join(plain.split()):
        plain += f"\n\nIMPRESSION: {conclusion}"
    if not plain.strip() and forms:
        raise ReportError("its forms are documents such as PDF; text/plain and text/html are read")
    return plain


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
    return text if kind.strip() == "text/plain" else text_of_html(text)


def _observed(report: Resource, known: Mapping[str, Resource], depth: int = 0) -> list[str]:
    """Return the values of observations, under the names of their codes."""
    texts: list[str] = []
    names = ("result",) if depth == 0 else ("hasMember",)
    for reference in [one for name in names for one in _objects(report.get(name))][:_MOST_PARTS]:
        observed = _resolved(reference, known)
        if observed.get("resourceType") != "Observation":
            continue
        value = observed.get("valueString")
        if value is None and isinstance(observed.get("valueCodeableConcept"), dict):
            value = _concept(observed["valueCodeableConcept"])
        name = _concept(observed.get("code"))
        if isinstance(value, str) and value.strip():
            heading = name.upper() if kind_of(name) not in (None, "identifying") else ""
            texts.append(f"{heading or 'FINDINGS'}: {value.strip()}")
        if depth < 2:
            texts += _observed(observed, known, depth + 1)
    return texts


def _concept(concept: Any) -> str:
    if not isinstance(concept, dict):
        return ""
    named = [one.get("display") for one in _objects(concept.get("coding"))]
    return next((text for text in (concept.get("text"), *named) if isinstance(text, str) and text), "")


def _objects(value: Any) -> list[Any]:
    """Return the objects of a list, or of one that stands alone."""
    listed = value if isinstance(value, list) else [value]
    return [one for one in listed[:_MOST_ENTRIES] if isinstance(one, dict)]


def _resolved(reference: Resource, known: Mapping[str, Resource]) -> Resource:
    name = reference.get("reference")
    return known.get(name, {}) if isinstance(name, str) else {}


def _identifiers(resource: Resource) -> Iterator[Resource]:
    for name in ("identifier", "accession", "accessionIdentifier"):
        yield from _objects(resource.get(name))


def _values(resource: Resource) -> Iterator[str]:
    return (str(one["value"]) for one in _identifiers(resource) if one.get("value"))


def _uids(resource: Resource) -> Iterator[str]:
    for one in _identifiers(resource):
        value = str(one.get("value") or "")
        if one.get("system") == _UID_SYSTEM or value.startswith(_OID):
            yield value.removeprefix(_OID)
    if isinstance(resource.get("uid"), str):
        yield resource["uid"].removeprefix(_OID)


def _accessions(resource: Resource) -> Iterator[str]:
    for one in _identifiers(resource):
        coded = _objects(one.get("type"))
        codes = [code.get("code") for kind in coded for code in _objects(kind.get("coding"))]
        if one.get("value") and ("ACSN" in codes or any("ccession" in _concept(kind) for kind in coded)):
            yield str(one["value"])


def _patient_id(subject: Resource, patient: Resource) -> str:
    """Return the id of a patient that is a medical record number, or the only one."""
    given = [*_objects(subject.get("identifier")), *_objects(patient.get("identifier"))]
    for one in given:
        codes = [
            code.get("code") for kind in _objects(one.get("type")) for code in _objects(kind.get("coding"))
        ]
        if "MR" in codes and one.get("value"):
            return str(one["value"])
    values = [str(one["value"]) for one in given if one.get("value")]
    return values[0] if values else ""


def _references(report: Resource) -> Iterator[Resource]:
    for name in ("subject", "performer", "resultsInterpreter", "encounter", "basedOn", "specimen"):
        yield from _objects(report.get(name))


def _names(report: Resource, people: Sequence[Resource]) -> Iterator[str]:
    """Give the names and numbers of people that a report refers to."""
    for reference in _references(report):
        for name in ("display", "reference"):
            if isinstance(reference.get(name), str):
                yield reference[name].rpartition("/")[2]
        yield from _values(reference)
    for person in people:
        yield from _values(person)
        yield from (str(person[name]) for name in ("birthDate", "id") if person.get(name))
        for name in _objects(person.get("name")):
            yield from (str(part) for part in (name.get("family"), name.get("text")) if part)
            yield from (str(part) for part in name.get("given") or () if part)
        yield from (str(own["value"]) for own in _objects(person.get("telecom")) if own.get("value"))
        for address in _objects(person.get("address")):
            yield from (str(part) for part in (address.get("text"), address.get("city")) if part)
            yield from (str(part) for part in address.get("line") or () if part)


def _time(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None
