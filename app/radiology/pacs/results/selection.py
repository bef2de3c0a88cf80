"""Similar cases as FHIR ImagingSelections (R5), in a Bundle for the caller's server."""

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final
from uuid import UUID

from app.radiology.pacs.results.objects import Uids
from app.radiology.schemas.studies import SimilarHit

_DICOM: Final = "http://dicom.nema.org/resources/ontology/DCM"
_CLASSES: Final = "urn:ietf:rfc:3986"


def make_selections(
    study: str,
    series: str,
    sop: str,
    frame: int | None,
    hits: Sequence[SimilarHit],
    model: str,
    uids: Uids,
    at: datetime,
) -> dict[str, Any]:
    """Return a Bundle: a selection of the film that was searched with, and one of each similar case.

    No selection has a subject: the caller's server knows the patients by the studies.

    Args:
        study: Study Instance UID of the film.
        series: Its Series Instance UID.
        sop: Its SOP Instance UID.
        frame: Number of its frame, from 1; None: it has one.
        hits: Similar cases.
        model: Name of the model that compared them.
        uids: UIDs of the request.
        at: Time of the search.
    """
    issued = at.isoformat(timespec="seconds")
    selections = [_selection("The film that was searched with", study, series, sop, frame, model, issued)]
    for number, hit in enumerate(hits, 1):
        text = f"Similar case {number}, cosine {hit.score:.6f}; not for diagnosis"
        place = str(hit.study), str(hit.series), str(hit.sop)
        selections.append(_selection(text, *place, hit.frame, model, issued))
    entries = [
        {"fullUrl": _urn(uids, f"selection {number}"), "resource": selection}
        for number, selection in enumerate(selections)
    ]
    identifier = {"system": "urn:ietf:rfc:3986", "value": _urn(uids, "bundle")}
    return {
        "resourceType": "Bundle",
        "identifier": identifier,
        "type": "collection",
        "timestamp": issued,
        "entry": entries,
    }


def _selection(
    text: str, study: str, series: str, sop: str, frame: int | None, model: str, issued: str
) -> dict[str, Any]:
    instance: dict[str, Any] = {"uid": sop}
    if frame is not None:
        instance["subset"] = [str(frame)]
    return {
        "resourceType": "ImagingSelection",
        "status": "available",
        "issued": issued,
        "performer": [{"actor": {"display": f"recoquest {version('recoquest')}, model {model}"}}],
        "code": {
            "coding": [{"system": _DICOM, "code": "113000", "display": "Of Interest"}],
            "text": text,
        },
        "derivedFrom": [{"type": "ImagingStudy", "identifier": _identifier(study)}],
        "studyUid": study,
        "seriesUid": series,
        "instance": [instance],
    }


def _identifier(study: str) -> dict[str, str]:
    return {"system": "urn:dicom:uid", "value": f"urn:oid:{study}"}


def _urn(uids: Uids, name: str) -> str:
    number = int(uids.of(name).rpartition(".")[2])
    return f"urn:uuid:{UUID(int=number)}"
