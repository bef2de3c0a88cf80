"""Similar cases written into the study of the archive that was searched with, by a caller or as a note."""

import io
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Request
from PIL import Image
from pydantic import Field, field_validator
from pydicom import Dataset

from app.access.authentication import KEY_NEEDED
from app.audit.requests import Noted, note
from app.edge.operations import operation
from app.edge.problems import Kind, RequestError, invalid, problem_responses
from app.edge.schemas import Answer
from app.edge.schemas import Request as Body
from app.idempotency import IdempotentRoute, attempt_of, idempotency_key
from app.images.renditions import make
from app.metadata_values import text_of, whole_number_of
from app.permissions import InjectedPrincipal, may
from app.radiology.archive import Archive, ArchiveError, items, store_instances, text
from app.radiology.archive_proxy import LATE, NOT_FOUND, UNAVAILABLE
from app.radiology.capture import CAPTURE_MODALITY, LARGE, SMALL, make_capture
from app.radiology.result_objects import (
    MAX_CASES,
    REPORT_MODALITY,
    ChosenCases,
    encode,
    make_report,
    make_selections,
    read_source,
)
from app.radiology.settings import ResultForm
from app.radiology.studies import StudyUid, describe_study
from app.services import InjectedServices, Services
from app.settings import Settings
from index.engine import SearchEngine
from index.errors import shortened
from index.files.renditions import Rendition, make_rendition
from index.filters.grammar import AnyOf
from index.studies import FRAME, SOP, SimilarRequest, StudyReference, find_similar

_Uid = Annotated[str, Field(max_length=64, pattern=r"^[0-9]+(\.[0-9]+)*$")]
_ImageId = Annotated[str, Field(max_length=255)]
router = APIRouter(tags=["studies"], route_class=IdempotentRoute)
OFF: Final = Kind("write-back-off", "Nothing is written to the archive", HTTPStatus.CONFLICT)
_NOT_STORED: Final = Kind("not-stored", "The archive did not store the results", HTTPStatus.BAD_GATEWAY)
NOTES_OFF: Final = (
    "No note is written: RECOQUEST_PACS_WRITE_BACK of the service names the forms that may be written to the "
    "archive, such as capture,report."
)
StoredForm = Literal["capture", "report"]
# Modalities of the forms that are stored, by which the UIDs of their objects are named.
_STORED: Final[Mapping[StoredForm, str]] = {"capture": CAPTURE_MODALITY, "report": REPORT_MODALITY}
_SOP_UID: Final = "00080018"


class NewResults(Body):
    """Similar cases of an image, to be written back."""

    sop: _Uid = Field(
        description="SOP Instance UID of the image that was searched with.",
        examples=["1.2.826.0.1.3680043.8.498.3.1.9"],
    )
    frame: int | None = Field(
        default=None, ge=1, description="Its frame, from 1; null of an image with one frame."
    )
    hits: list[_ImageId] = Field(
        min_length=1,
        max_length=MAX_CASES,
        description="Ids of similar cases, as `similar` gives them; they are compared again.",
        examples=[["1.2.826.0.1.3680043.8.498.7.1.2"]],
    )
    forms: list[ResultForm] | None = Field(
        default=None,
        min_length=1,
        description="Forms to write; null: all that the settings allow.",
        examples=[["capture"]],
    )

    @field_validator("hits")
    @classmethod
    def _are_different(cls, value: list[str]) -> list[str]:
        if len(set(value)) < len(value):
            raise ValueError("Name each hit once.")
        return value


class WrittenObject(Answer):
    """An object that was sent to the archive."""

    form: StoredForm
    status: Literal["stored", "refused"]
    reason: str | None = Field(description="Why the archive refused it, in words; null where it is stored.")
    sop_class: str
    study: str
    series: str
    sop: str


class WrittenResults(Answer):
    """Results of a search, as they were written."""

    collection: str
    study: str
    objects: list[WrittenObject] = Field(description="Objects in the archive, each in a series of its own.")
    selection: dict[str, Any] | None = Field(
        description="A FHIR Bundle (R5) of ImagingSelections, which is sent nowhere; null without that form."
    )


def _shown(cases: ChosenCases) -> list[tuple[str, Rendition]]:
    """The images of a capture by their ids, each as a picture of twice the size that it has there."""
    sides = [(cases.query.id, LARGE), *((hit.id, SMALL) for hit in cases.hits)]
    return [(name, Rendition("image/png", 2 * side)) for name, side in sides]


def _compare_cases(
    engine: SearchEngine, collection: str, reference: StudyReference, chosen: Sequence[str], seed: str
) -> ChosenCases:
    """Compare an image with cases by their ids, as a search for similar studies does."""
    active = engine.active(collection)
    similar_request = SimilarRequest(len(chosen), AnyOf(field="id", any_of=tuple(chosen)), same_patient=True)
    similar = find_similar(engine, active, reference, similar_request)
    if not similar.compared:
        raise invalid("sop", "The collection has no such image of the study that can be compared.")
    if len(similar.compared) > 1:
        raise invalid("frame", "The instance has several frames: name the one that was searched with.")
    query, similar_by_id = similar.compared[0], {one.hit.id: one for one in similar.hits}
    for name in chosen:
        if name not in similar_by_id:
            raise invalid(
                "hits",
                f"{shortened(name)!r} is no similar case of the image: the collection lacks it, or it is of "
                "the same study, or of that of another case.",
            )
    hits = [describe_study(one, active.collection, None, "") for one in similar.hits]
    for hit in hits:
        if None in (hit.study, hit.series, hit.sop):
            raise invalid("hits", f"{shortened(hit.id)!r} has no UIDs of study, series and instance.")
    series = text_of(query.metadata, "series")
    if series is None or text_of(query.metadata, SOP) is None:
        raise invalid("sop", "The image has no UID of its series: take it from the archive.")
    return ChosenCases(active, query, reference, series, hits, seed)


def _most_similar_cases(engine: SearchEngine, collection: str, study: str) -> ChosenCases | None:
    """Compare the image of a study that is most like one of another patient with such images.

    Cases without a patient are left out; None if there is no other.
    """
    active = engine.active(collection)
    by_study = find_similar(engine, active, StudyReference(study), SimilarRequest(1))
    if not by_study.hits:
        return None
    query = by_study.hits[0].query
    series, sop = text_of(query.metadata, "series"), text_of(query.metadata, SOP)
    if series is None or sop is None:
        return None
    reference = StudyReference(study, sop, whole_number_of(query.metadata, FRAME))
    similar = find_similar(engine, active, reference, SimilarRequest(MAX_CASES))
    hits = [describe_study(one, active.collection, None, "") for one in similar.hits]
    hits = [hit for hit in hits if hit.same_patient is False and None not in (hit.study, hit.series, hit.sop)]
    if not hits:
        return None
    seed = "\n".join(("note", study, active.digest, *sorted(image.id for image in by_study.images)))
    return ChosenCases(active, query, reference, series, hits, seed)


@router.post(
    "/v1/collections/{collection}/studies/{study}/results",
    summary="Write similar cases back to the archive",
    responses=problem_responses(
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.GATEWAY_TIMEOUT,
    ),
    dependencies=[may("judge"), Depends(idempotency_key)],
)
@operation("create", "write")
async def write_results(
    collection: str,
    study: StudyUid,
    new: NewResults,
    request: Request,
    services: InjectedServices,
    principal: InjectedPrincipal,
) -> WrittenResults:
    """Store similar cases of an image in its study of the archive, in series of their own.

    `capture` is a picture of the films side by side, `report` a structured report, `selection` a FHIR
    document in the answer. `RECOQUEST_PACS_WRITE_BACK` says which are allowed; without it, nothing is
    written. Films of other patients are shown without their names, dates and ids.
    """
    if principal.kind == "anonymous":
        raise RequestError(KEY_NEEDED, "The archive is written to with a key or a session only.")
    forms = _allowed_forms(services, new.forms)
    attempt = attempt_of(request)
    # A request that is repeated with its key stores the same objects, which exist once.
    seed = uuid.uuid4().hex if attempt is None else "\n".join((attempt.sent.caller, attempt.sent.key))
    reference = StudyReference(study, new.sop, new.frame)
    cases = await services.threads.read(
        _compare_cases, services.engine, collection, reference, new.hits, f"{study}\n{seed}"
    )
    objects: list[WrittenObject] = []
    if set(forms) - {"selection"}:
        objects = await _write_objects(request, services, cases, forms)
    stored = [one for one in objects if one.status == "stored"]
    _note(request, cases, forms, objects)
    if objects and not stored:
        reasons = "; ".join(f"{one.form}: {one.reason}" for one in objects)
        raise RequestError(_NOT_STORED, f"The archive refuses the objects ({reasons}). Nothing was stored.")
    return WrittenResults(
        collection=cases.active.collection,
        study=study,
        objects=objects,
        selection=make_selections(cases) if "selection" in forms else None,
    )


def _allowed_forms(services: Services, requested: Sequence[ResultForm] | None) -> Sequence[ResultForm]:
    allowed = services.settings.pacs_write_back
    if not allowed:
        raise RequestError(
            OFF,
            "Writing back is off: RECOQUEST_PACS_WRITE_BACK of the service names the forms that may be "
            "written, such as capture,report.",
        )
    for form in requested or ():
        if form not in allowed:
            raise RequestError(
                OFF, f"RECOQUEST_PACS_WRITE_BACK of the service allows {', '.join(allowed)}, and not {form}."
            )
    return list(dict.fromkeys(requested or allowed))


async def _write_objects(
    request: Request, services: Services, cases: ChosenCases, forms: Sequence[ResultForm]
) -> list[WrittenObject]:
    pictures: list[bytes] = []
    for name, rendition in _shown(cases) if "capture" in forms else ():
        image = await services.threads.read(services.engine.image, cases.active.collection, name)
        pictures.append(await make(services, image, rendition))
    settings = services.settings
    assert settings.pacs_url is not None
    # A person waits for the answer: failures are reported, not retried.
    archive = Archive(settings.pacs_url, settings, pauses=())
    try:
        made = await services.threads.archive(_make_objects, archive, cases, forms, pictures)
    except ArchiveError as error:
        raise _problem(error, "Nothing was sent to it.") from None
    files = {str(one.SOPInstanceUID): encode(one) for one in made.values()}
    try:
        refused = await services.threads.archive(store_instances, archive, cases.film.study, files)
    except ArchiveError as error:
        # The archive may have stored them nevertheless.
        _note(request, cases, forms, [], attempted=list(files))
        raise _problem(
            error,
            "Look into the study before trying again: with the same Idempotency-Key, objects are there once.",
        ) from None
    return [
        WrittenObject(
            form=form,
            status="refused" if str(one.SOPInstanceUID) in refused else "stored",
            reason=refused.get(str(one.SOPInstanceUID)),
            sop_class=str(one.SOPClassUID),
            study=str(one.StudyInstanceUID),
            series=str(one.SeriesInstanceUID),
            sop=str(one.SOPInstanceUID),
        )
        for form, one in made.items()
    ]


def _make_objects(
    archive: Archive, cases: ChosenCases, forms: Collection[ResultForm], pictures: Sequence[bytes]
) -> Mapping[StoredForm, Dataset]:
    """Make the objects that are stored in the study of a film, by what the archive has of it.

    `pictures`: pictures of the film and of each case; none without a capture.
    """
    source = read_source(archive, cases)
    made: dict[StoredForm, Dataset] = {}
    if "capture" in forms:
        made["capture"] = make_capture(source, [Image.open(io.BytesIO(picture)) for picture in pictures])
    if "report" in forms:
        made["report"] = make_report(source)
    return made


def _problem(error: ArchiveError, outcome: str) -> RequestError:
    if error.status == HTTPStatus.NOT_FOUND:
        return RequestError(
            NOT_FOUND, f"The archive does not have the film, or takes no objects by STOW-RS. {outcome}"
        )
    return RequestError(LATE if error.late else UNAVAILABLE, f"{error} {outcome}")


def _note(
    request: Request,
    cases: ChosenCases,
    forms: Sequence[ResultForm],
    objects: Sequence[WrittenObject],
    attempted: Sequence[str] = (),
) -> None:
    stored = [one.sop for one in objects if one.status == "stored"]
    note(
        request,
        Noted(
            collection=cases.active.collection,
            objects=[cases.query.id, *(hit.id for hit in cases.hits), *stored, *attempted],
            model=cases.active.digest,
            generation=cases.active.generation,
            details={
                "forms": ",".join(forms),
                "cases": len(cases.hits),
                "stored": len(stored),
                "refused": len(objects) - len(stored),
            },
            unknown=bool(attempted),
        ),
    )


def note_forms(settings: Settings) -> list[ResultForm]:
    """Return the forms of a note that the settings allow; none: no note is written."""
    return [form for form in settings.pacs_write_back if form in _STORED]


def write_note(
    engine: SearchEngine,
    archive: Archive,
    collection: str,
    study: str,
    forms: Sequence[ResultForm],
    record: Callable[[ChosenCases, Sequence[str]], None],
) -> str:
    """Write a note into a study, in series of its own, and return the outcome in words.

    Its UIDs follow from the images of the study and the model: indexed again, a study has the same note once.
    Other studies that come later write no other one.

    `record`: called with its cases and the SOP Instance UIDs of its objects before these are sent, as the
    archive may store what it fails to answer.

    Raises:
        ArchiveError: The archive does not answer, or does not store the note.
    """
    cases = _most_similar_cases(engine, collection, study)
    if cases is None:
        return (
            "No note: the study has no film that can be compared, or no other patient is known to have one."
        )
    missing = [form for form in _STORED if form in forms and not _is_there(archive, cases, form)]
    if not missing:
        return "The study has its note already."
    pictures = [
        make_rendition(engine.image_path(cases.active.collection, name), rendition)
        for name, rendition in (_shown(cases) if "capture" in missing else ())
    ]
    made = _make_objects(archive, cases, missing, pictures)
    files = {str(one.SOPInstanceUID): encode(one) for one in made.values()}
    record(cases, list(files))
    refused = store_instances(archive, study, files)
    if refused:
        raise ArchiveError(f"The archive refuses the note ({'; '.join(refused.values())}).")
    return f"Note written: {len(cases.hits):,} of the most similar studies of other patients."


def _is_there(archive: Archive, cases: ChosenCases, form: StoredForm) -> bool:
    series, sop = cases.uid(f"{_STORED[form]} series"), cases.uid(_STORED[form])
    try:
        answer = archive.get_json(f"studies/{cases.film.study}/series/{series}/instances/{sop}/metadata")
    except ArchiveError as error:
        if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            return False
        raise
    return any(text(item, _SOP_UID) == sop for item in items(answer.value))
