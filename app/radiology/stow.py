"""DICOM files sent by archives and modalities: STOW-RS of DICOMweb (PS3.18, section 10.5)."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Depends, Path, Request, Response

from app.audit.requests import Noted, note
from app.concurrency import unless_disconnected
from app.decoding.films import FilmReader, FilmRules, Reading
from app.edge.addresses import service_url
from app.edge.operations import operation
from app.edge.problems import UNSUPPORTED, RequestError, problem_responses
from app.images.schemas import MAX_UPLOADS
from app.images.uploads import SentImage, write_sent
from app.permissions import GuardedRoute, may
from app.radiology.archive import MultipartError, Part, boundary_of, read_parts
from app.search.read_search import invalid
from app.services import InjectedServices, Services
from index.audit.event import Detail
from index.catalogue.studies import Outcome
from index.search.results import ActiveGeneration
from training.clinical.dicom.elements import uid_of
from training.clinical.dicom.objects import read_object
from training.common.errors import ImageError

router = APIRouter(prefix="/v1/collections", tags=["writes"], route_class=GuardedRoute)
MEDIA_TYPE: Final = "application/dicom"
JSON: Final = "application/dicom+json"
# Deadline of a file in deadlines of a search, as for an upload.
_DEADLINES: Final = 6
# Bytes of films that are written together; a film may have more.
_AT_ONCE_BYTES: Final = 32 << 20
# Failure reasons of PS3.18, table I.2-2: processing failure; class not supported; cannot understand.
_PROCESSING: Final = 0x0110
_CLASS: Final = 0x0122
_UNREADABLE: Final = 0xC000
# Of an instance of another study than the address names: it does not match.
_MISMATCH: Final = 0xA900
_REASONS: Final[dict[Outcome, int]] = {
    "refused": _UNREADABLE,
    "left out": _CLASS,
    "quarantined": _PROCESSING,
}
_SEQUENCE: Final = {
    "type": "object",
    "properties": {"vr": {"const": "SQ"}, "Value": {"type": "array", "items": {"type": "object"}}},
}
_ANSWER: Final[dict[str, Any]] = {
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "description": "DICOM JSON: ReferencedSOPSequence (00081199) names the instances that are "
                "there, FailedSOPSequence (00081198) the others with their FailureReason (00081197).",
                "properties": {"00081198": _SEQUENCE, "00081199": _SEQUENCE},
            }
        }
    }
}
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/related": {
                "schema": {
                    "type": "array",
                    "items": {"type": "string", "format": "binary", "description": "A DICOM file."},
                },
                "encoding": {"": {"contentType": MEDIA_TYPE}},
            },
            MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    **problem_responses(
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.GATEWAY_TIMEOUT,
        HTTPStatus.INSUFFICIENT_STORAGE,
    ),
    200: {**_ANSWER, "description": "All instances are there."},
    202: {**_ANSWER, "description": "Some are there; FailedSOPSequence names the others."},
    409: {**_ANSWER, "description": "None is there, or the collection cannot be written to."},
}
_log = structlog.stdlib.get_logger(__name__)


async def sent_files(request: Request, services: InjectedServices) -> list[Part]:
    """Take the files of a request out of its body.

    Raises:
        RequestError: The body is neither a DICOM file nor multipart/related with some, or has too many.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() == MEDIA_TYPE:
        body, most = await request.body(), services.settings.max_image_bytes
        return [Part(MEDIA_TYPE, body if len(body) <= most else None)]
    try:
        boundary = boundary_of(content_type)
    except MultipartError as error:
        raise RequestError(
            UNSUPPORTED, f'{error} Send multipart/related; type="{MEDIA_TYPE}", or one file as {MEDIA_TYPE}.'
        ) from None
    body = await request.body()
    most = services.settings.max_image_bytes
    try:
        parts = await services.threads.read(read_parts, body, boundary, most, MAX_UPLOADS)
    except MultipartError as error:
        raise invalid("body", str(error)) from None
    if any(part.media_type not in (MEDIA_TYPE, "") for part in parts):
        raise RequestError(UNSUPPORTED, f"A part is not {MEDIA_TYPE}: send whole DICOM files.")
    if not 0 < len(parts) <= MAX_UPLOADS:
        raise invalid("body", f"There are {len(parts):,} files; send 1 to {MAX_UPLOADS} in a request.")
    return parts


@router.post(
    "/{collection}/dicomweb/studies",
    summary="Put DICOM instances in (STOW-RS)",
    responses=_RESPONSES,
    response_class=Response,
    openapi_extra=_BODY,
    dependencies=[may("curator")],
)
@operation("create")
async def store_instances_of_studies(
    collection: str,
    sent: Annotated[list[Part], Depends(sent_files)],
    request: Request,
    services: InjectedServices,
) -> Response:
    """Put in the films of DICOM files, as an archive sends them; sent again, they are unchanged.

    Files are de-identified before anything of them is kept, and those that may show a name are refused, as
    `recoquest import dicom` does. The id of an image is its SOP Instance UID.
    """
    return await _answer(request, services, collection, sent, None)


@router.post(
    "/{collection}/dicomweb/studies/{study}",
    summary="Put DICOM instances of a study in (STOW-RS)",
    responses=_RESPONSES,
    response_class=Response,
    openapi_extra=_BODY,
    dependencies=[may("curator")],
)
@operation("create")
async def store_instances_of_study(
    collection: str,
    study: Annotated[str, Path(description="Study Instance UID; instances of another study fail.")],
    sent: Annotated[list[Part], Depends(sent_files)],
    request: Request,
    services: InjectedServices,
) -> Response:
    """Put in the films of DICOM files of one study; those of another study fail with the reason A900."""
    return await _answer(request, services, collection, sent, study)


async def _answer(
    request: Request, services: Services, collection: str, sent: list[Part], study: str | None
) -> Response:
    stored = await unless_disconnected(request, store_instances(services, collection, sent, study))
    counts: dict[str, Detail] = {**stored.counts}
    active = stored.active
    note(
        request,
        Noted(
            objects=list(stored.images),
            model=None if active is None else active.digest,
            generation=None if active is None else active.generation,
            details=counts,
        ),
    )
    if stored.reasons:
        _log.info("instances were not taken", reasons=sorted(stored.reasons), **stored.counts)
    address = f"{service_url(request, services.settings)}/v1/collections/{collection}/images"
    return Response(json.dumps(stored.body(address)), stored.status, media_type=JSON)


@dataclass(frozen=True, slots=True)
class SentInstance:
    """A file that was sent.

    Attributes:
        sop_class: UID of its class; "": it cannot be read.
        sop: SOP Instance UID; "": it cannot be read.
        elsewhere: Whether it is of another study than the address names.
    """

    sop_class: str
    sop: str
    reading: Reading
    elsewhere: bool = False


@dataclass(slots=True)
class StoredInstances:
    """Outcomes of files that were sent.

    Attributes:
        active: Generation that has what was written last; None: nothing was.
        stored: Class and instance UIDs of the files whose images are there, each with its first image's id.
        failed: Those of the others, and why, as PS3.18 numbers it.
    """

    active: ActiveGeneration | None = None
    images: dict[str, None] = field(default_factory=dict)
    stored: list[tuple[str, str, str]] = field(default_factory=list)
    failed: list[tuple[str, str, int]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: set[str] = field(default_factory=set)

    @property
    def status(self) -> HTTPStatus:
        """200: all are there; 202: some; 409: none."""
        if not self.failed:
            return HTTPStatus.OK
        return HTTPStatus.ACCEPTED if self.stored else HTTPStatus.CONFLICT

    def body(self, address: str) -> dict[str, Any]:
        """Return the answer in DICOM JSON."""
        failed = [
            {**_reference(sop_class, sop), "00081197": {"vr": "US", "Value": [reason]}}
            for sop_class, sop, reason in self.failed
        ]
        stored = [
            {**_reference(sop_class, sop), "00081190": {"vr": "UR", "Value": [f"{address}/{image}"]}}
            for sop_class, sop, image in self.stored
        ]
        found = {"00081198": failed, "00081199": stored}
        return {tag: {"vr": "SQ", "Value": items} for tag, items in found.items() if items}


async def store_instances(
    services: Services, collection: str, parts: list[Part], study: str | None = None
) -> StoredInstances:
    """Write the images of files that were sent; one that was sent before is there once.

    Films may have many times the bytes of their files, so they are written whenever some have been read, and
    the parts are given up on the way: what was written before an error stays, and is unchanged when it is
    sent again.

    `study`: Study Instance UID of the only study whose instances are taken; None: any.

    Raises:
        RecoquestError: A write failed whole; see `write_sent`.
    """
    rules = await services.threads.read(FilmRules.of, services.settings)
    images = services.images
    reader = FilmReader(images.pool, rules, images.limits, _DEADLINES * images.pool.deadline_s)
    stored = StoredInstances()
    read: list[SentInstance] = []
    parts.reverse()
    # Files of a request are read one after another, so a request takes one place in the queue.
    while parts:
        read.append(await _read(services, parts.pop(), reader, study))
        size = sum(len(film.content) for item in read for film in item.reading.films)
        if not parts or size >= _AT_ONCE_BYTES:
            await _store(services, collection, read, stored)
            read = []
    return stored


async def _store(
    services: Services, collection: str, sent: Sequence[SentInstance], stored: StoredInstances
) -> None:
    # Of an instance that is there twice, the last counts.
    different = {item.sop: item for item in sent if item.reading.outcome == "taken"}
    images = [
        SentImage(film.record.id, film.content, film.record)
        for item in different.values()
        for film in item.reading.films
    ]
    written = await write_sent(services, collection, images) if images else None
    outcomes = [] if written is None else written.images
    refused = {image.id for image in outcomes if image.status == "refused"}
    if written is not None:
        stored.active = written.active
        stored.images |= dict.fromkeys(image.id for image in outcomes if image.id not in refused)
    for item in sent:
        outcome = item.reading.outcome
        if any(film.record.id in refused for film in item.reading.films):
            outcome = "refused"
        stored.counts[outcome] += 1
        if item.reading.reason:
            stored.reasons.add(item.reading.reason)
        if outcome == "taken":
            stored.stored.append((item.sop_class, item.sop, item.reading.films[0].record.id))
        else:
            reason = _MISMATCH if item.elsewhere else _REASONS[outcome]
            stored.failed.append((item.sop_class, item.sop, reason))


async def _read(services: Services, part: Part, reader: FilmReader, study: str | None) -> SentInstance:
    if part.content is None:
        return SentInstance("", "", Reading("refused", reason="The file is too large."))
    sop_class, sop, own = await services.threads.read(_uids, part.content, reader.limits.max_bytes)
    if study is not None and (sop_class or sop or own) and own != study:
        reading = Reading("refused", reason="The file is of another study than the address names.")
        return SentInstance(sop_class, sop, reading, elsewhere=True)
    reading = await reader.read_upload(part.content)
    if reading.films:
        sop = str(reading.films[0].record.metadata["sop"])
    return SentInstance(sop_class, sop, reading)


def _uids(content: bytes, max_bytes: int) -> tuple[str, str, str]:
    """Return class, instance and study UID of a file, as it says; "" for what it does not."""
    try:
        dataset = read_object(content, max_bytes)
    except ImageError:
        return "", "", ""
    return (
        uid_of(dataset, "SOPClassUID"),
        uid_of(dataset, "SOPInstanceUID"),
        uid_of(dataset, "StudyInstanceUID"),
    )


def _reference(sop_class: str, sop: str) -> dict[str, Any]:
    uids = (("00081150", sop_class), ("00081155", sop))
    return {tag: {"vr": "UI", "Value": [uid]} for tag, uid in uids if uid}
