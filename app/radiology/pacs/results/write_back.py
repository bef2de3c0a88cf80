"""Similar cases written into the study of the archive that was searched with."""

import io
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from fastapi import Request
from PIL import Image
from pydicom import Dataset

from app.archive_settings import ResultForm
from app.audit.noted import Noted, note
from app.edge.http.problem_kinds import Kind
from app.edge.http.problems import RequestError
from app.idempotency import attempt_of
from app.images.renditions import make
from app.radiology.pacs.dicomweb.archive import Access, Archive, ArchiveError
from app.radiology.pacs.dicomweb.storing import store_instances
from app.radiology.pacs.results.capture import LARGE, SMALL, make_capture
from app.radiology.pacs.results.cases import ChosenCases, compare_cases
from app.radiology.pacs.results.objects import SourceFilm, Uids, encode, read_source
from app.radiology.pacs.results.report import make_report
from app.radiology.pacs.results.selection import make_selections
from app.radiology.schemas.results import NewResults, WrittenObject, WrittenResults
from app.radiology.viewer.archive import LATE, NOT_FOUND, UNAVAILABLE
from app.services import Services
from index.files.renditions import Rendition
from index.studies import Wanted

OFF: Final = Kind("write-back-off", "Nothing is written to the archive", HTTPStatus.CONFLICT)
_NOT_STORED: Final = Kind("not-stored", "The archive did not store the results", HTTPStatus.BAD_GATEWAY)


@dataclass(frozen=True, slots=True)
class _Job:
    """Work on one request.

    Attributes:
        new: The request.
        study: Study Instance UID.
        cases: The cases, compared.
        forms: Forms to write.
        uids: UIDs of what is written.
        at: Local time of the request.
    """

    new: NewResults
    study: str
    cases: ChosenCases
    forms: Sequence[ResultForm]
    uids: Uids
    at: datetime


async def write_back(
    request: Request, services: Services, collection: str, study: str, new: NewResults
) -> WrittenResults:
    """Write similar cases into a study of the archive, in the forms that the settings allow.

    Args:
        request: The request.
        services: Services of the running application.
        collection: Name of the collection.
        study: Study Instance UID.
        new: The image and its cases.

    Raises:
        RequestError: The settings allow no such form, a case cannot be written, or the archive did not store
            anything.
        UnknownCollectionError: No collection has this name.
        NoActiveGenerationError: The collection cannot be searched yet.
    """
    forms = _allowed_forms(services, new.forms)
    wanted = Wanted(study, new.sop, new.frame)
    cases = await services.threads.read(compare_cases, services.engine, collection, wanted, new.hits)
    attempt = attempt_of(request)
    # A request that is sent again with its key stores the same objects, which are there once.
    seed = uuid.uuid4().hex if attempt is None else "\n".join((attempt.sent.caller, attempt.sent.key))
    job = _Job(new, study, cases, forms, Uids(f"{study}\n{seed}"), datetime.now(UTC).astimezone())
    objects: list[WrittenObject] = []
    if set(forms) - {"selection"}:
        objects = await _write_objects(request, services, job)
    stored = [one for one in objects if one.status == "stored"]
    _note(request, job, objects)
    if objects and not stored:
        reasons = "; ".join(f"{one.form}: {one.reason}" for one in objects)
        raise RequestError(_NOT_STORED, f"The archive refuses the objects ({reasons}). Nothing was stored.")
    selection = None
    if "selection" in forms:
        place = study, cases.series, new.sop, new.frame
        selection = make_selections(*place, cases.hits, cases.active.model, job.uids, job.at)
    return WrittenResults(
        collection=cases.active.collection, study=study, objects=objects, selection=selection
    )


def _allowed_forms(services: Services, asked: Sequence[ResultForm] | None) -> Sequence[ResultForm]:
    allowed = services.settings.pacs_write_back
    if not allowed:
        raise RequestError(
            OFF,
            "Writing back is off: RECOQUEST_PACS_WRITE_BACK of the service names the forms that may be "
            "written, such as capture,report.",
        )
    for form in asked or ():
        if form not in allowed:
            raise RequestError(
                OFF, f"RECOQUEST_PACS_WRITE_BACK of the service allows {', '.join(allowed)}, and not {form}."
            )
    return list(dict.fromkeys(asked or allowed))


async def _write_objects(request: Request, services: Services, job: _Job) -> list[WrittenObject]:
    pictures = await _pictures(services, job.cases) if "capture" in job.forms else []
    settings = services.settings
    assert settings.pacs_url is not None
    # A person waits for the answer: what fails is told, and not tried again.
    archive = Archive(settings.pacs_url, Access.of(settings), pauses=())
    try:
        source = await services.threads.archive(
            read_source, archive, job.study, job.cases.series, job.new.sop, job.new.frame
        )
    except ArchiveError as error:
        raise _problem(error, "Nothing was sent to it.") from None
    made = await services.threads.archive(
        make_objects, job.cases, job.forms, source, pictures, job.uids, job.at
    )
    files = {str(one.SOPInstanceUID): encode(one) for one in made.values()}
    try:
        refused = await services.threads.archive(store_instances, archive, job.study, files)
    except ArchiveError as error:
        # The archive may have stored them nevertheless.
        _note(request, job, [], attempted=list(files))
        raise _problem(
            error,
            "Look into the study before trying again: with the same Idempotency-Key, objects are there once.",
        ) from None
    return [_described(form, one, refused) for form, one in made.items()]


async def _pictures(services: Services, cases: ChosenCases) -> list[Image.Image]:
    pictures: list[Image.Image] = []
    for place, name in enumerate([cases.query.id, *(hit.id for hit in cases.hits)]):
        image = await services.threads.read(services.engine.image, cases.active.collection, name)
        rendition = Rendition("image/png", 2 * (SMALL if place else LARGE))
        pictures.append(Image.open(io.BytesIO(await make(services, image, rendition))))
    return pictures


def make_objects(
    cases: ChosenCases,
    forms: Collection[ResultForm],
    source: SourceFilm,
    pictures: Sequence[Image.Image],
    uids: Uids,
    at: datetime,
) -> Mapping[ResultForm, Dataset]:
    """Make the objects of a film's cases that are stored in its study.

    Args:
        cases: The film and its cases.
        forms: Forms; those that are not stored make no object.
        source: The film in the archive.
        pictures: Pictures of the film and of each case; none without a capture.
        uids: UIDs of the objects.
        at: Local time of the search.
    """
    hits, model = cases.hits, cases.active.model
    made: dict[ResultForm, Dataset] = {}
    if "capture" in forms:
        query, *others = pictures
        shown = list(zip(hits, others, strict=True))
        made["capture"] = make_capture(source, (cases.query, query), shown, model, uids, at)
    if "report" in forms:
        made["report"] = make_report(source, hits, model, uids, at)
    return made


def _described(form: ResultForm, made: Dataset, refused: Mapping[str, str]) -> WrittenObject:
    assert form != "selection"
    reason = refused.get(str(made.SOPInstanceUID))
    return WrittenObject(
        form=form,
        status="stored" if reason is None else "refused",
        reason=reason,
        sop_class=str(made.SOPClassUID),
        study=str(made.StudyInstanceUID),
        series=str(made.SeriesInstanceUID),
        sop=str(made.SOPInstanceUID),
    )


def _problem(error: ArchiveError, outcome: str) -> RequestError:
    if error.status == HTTPStatus.NOT_FOUND:
        return RequestError(
            NOT_FOUND, f"The archive does not have the film, or takes no objects by STOW-RS. {outcome}"
        )
    if error.late:
        return RequestError(LATE, f"{error} {outcome}")
    return RequestError(UNAVAILABLE, f"{error} {outcome}")


def _note(
    request: Request, job: _Job, objects: Sequence[WrittenObject], attempted: Sequence[str] = ()
) -> None:
    cases = job.cases
    stored = [one.sop for one in objects if one.status == "stored"]
    note(
        request,
        Noted(
            collection=cases.active.collection,
            objects=[cases.query.id, *(hit.id for hit in cases.hits), *stored, *attempted],
            model=cases.active.digest,
            generation=cases.active.generation,
            details={
                "forms": ",".join(job.forms),
                "cases": len(cases.hits),
                "stored": len(stored),
                "refused": len(objects) - len(stored),
            },
            unknown=bool(attempted),
        ),
    )
