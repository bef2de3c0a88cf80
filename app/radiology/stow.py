"""DICOM files sent by archives and modalities: STOW-RS of DICOMweb (PS3.18, section 10.5)."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Final, NamedTuple

import structlog
from fastapi import APIRouter, Depends, Path, Request, Response

from app.audit.requests import Noted, note
from app.concurrency import unless_disconnected
from app.decoding.films import Film, FilmReader, FilmRules, Reading
from app.edge.operations import operation, service_url
from app.edge.problems import UNSUPPORTED, RequestError, invalid, problem_responses
from app.images.schemas import MAX_UPLOADS
from app.images.uploads import SentImage, write_sent
from app.permissions import GuardedRoute, may
from app.radiology.archive import MultipartError, Part, boundary_of, read_parts
from app.services import InjectedServices
from index.audit.event import Detail
from index.catalogue.studies import Outcome
from index.reports import with_stored_texts
from index.search.results import ActiveGeneration
from training.clinical.dicom.attributes import uid_of
from training.clinical.dicom.objects import read_object
from training.common.errors import ImageError
from training.common.record import Record

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
# The instance belongs to another study than the address names.
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
_ROUTE: Final[dict[str, Any]] = {
    "responses": _RESPONSES,
    "response_class": Response,
    "openapi_extra": _BODY,
    "dependencies": [may("curator")],
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


class SentInstance(NamedTuple):
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


@dataclass
class _Storing:
    """A request that stores files, and what has become of them.

    Attributes:
        active: Generation of the last write; None if there was none.
        images: Ids of the written images.
        stored: References to the files whose images are there, in DICOM JSON.
        failed: Those to the others.
    """

    request: Request
    services: InjectedServices
    parts: Annotated[list[Part], Depends(sent_files)]
    active: ActiveGeneration | None = field(default=None, init=False)
    images: dict[str, None] = field(default_factory=dict, init=False)
    stored: list[dict[str, Any]] = field(default_factory=list, init=False)
    failed: list[dict[str, Any]] = field(default_factory=list, init=False)
    counts: Counter[str] = field(default_factory=Counter, init=False)
    reasons: set[str] = field(default_factory=set, init=False)

    async def answer(self, collection: str, study: str | None) -> Response:
        """Store the files, and report the outcome of each.

        `study`: Study Instance UID of the only study whose instances are taken; None: any.
        """
        await unless_disconnected(self.request, self._store(collection, study))
        active, counts = self.active, dict[str, Detail](self.counts)
        note(
            self.request,
            Noted(
                objects=list(self.images),
                model=None if active is None else active.digest,
                generation=None if active is None else active.generation,
                details=counts,
            ),
        )
        if self.reasons:
            _log.info("instances were not taken", reasons=sorted(self.reasons), **counts)
        some = HTTPStatus.ACCEPTED if self.stored else HTTPStatus.CONFLICT
        sequences = {"00081198": self.failed, "00081199": self.stored}
        body = {tag: {"vr": "SQ", "Value": items} for tag, items in sequences.items() if items}
        return Response(json.dumps(body), some if self.failed else HTTPStatus.OK, media_type=JSON)

    async def _store(self, collection: str, study: str | None) -> None:
        """Write the images of the files; one that was sent before is there once.

        Films may have many times the bytes of their files, so they are written whenever some have been read,
        and the parts are freed along the way: files written before an error stay, and are unchanged when
        they are sent again.
        """
        rules = await self.services.threads.read(FilmRules.from_settings, self.services.settings)
        images = self.services.images
        reader = FilmReader(images.pool, rules, images.limits, _DEADLINES * images.pool.deadline_s)
        read: list[SentInstance] = []
        self.parts.reverse()
        # Files of a request are read one after another, so a request takes one slot of the queue.
        while self.parts:
            read.append(await self._read(self.parts.pop(), reader, study))
            size = sum(len(film.content) for item in read for film in item.reading.films)
            if not self.parts or size >= _AT_ONCE_BYTES:
                await self._write(collection, read)
                read = []

    async def _read(self, part: Part, reader: FilmReader, study: str | None) -> SentInstance:
        if part.content is None:
            return SentInstance("", "", Reading("refused", reason="The file is too large."))
        uids = await self.services.threads.read(_uids, part.content, reader.limits.max_bytes)
        sop_class, sop, own = uids
        if study is not None and any(uids) and own != study:
            reading = Reading("refused", reason="The file is of another study than the address names.")
            return SentInstance(sop_class, sop, reading, elsewhere=True)
        reading = await reader.read_upload(part.content)
        if reading.films:
            sop = str(reading.films[0].record.metadata["sop"])
        return SentInstance(sop_class, sop, reading)

    def _records(self, collection: str, films: Sequence[Film]) -> list[Record]:
        with self.services.engine.home.catalogue.read() as session:
            return with_stored_texts(session, collection, [film.record for film in films])

    async def _write(self, collection: str, sent: Sequence[SentInstance]) -> None:
        # If an instance occurs twice, the last one counts.
        different = {item.sop: item for item in sent if item.reading.outcome == "taken"}
        films = [film for item in different.values() for film in item.reading.films]
        refused: set[str] = set()
        if films:
            records = await self.services.threads.read(self._records, collection, films)
            images = [
                SentImage(record.id, film.content, record)
                for film, record in zip(films, records, strict=True)
            ]
            written = await write_sent(self.services, collection, images)
            refused = {image.id for image in written.images if image.status == "refused"}
            self.active = written.active
            self.images |= dict.fromkeys(image.id for image in written.images if image.id not in refused)
        address = f"{service_url(self.request, self.services.settings)}/v1/collections/{collection}/images"
        for item in sent:
            outcome = item.reading.outcome
            if any(film.record.id in refused for film in item.reading.films):
                outcome = "refused"
            self.counts[outcome] += 1
            if item.reading.reason:
                self.reasons.add(item.reading.reason)
            named = {"00081150": item.sop_class, "00081155": item.sop}
            reference: dict[str, Any] = {
                tag: {"vr": "UI", "Value": [uid]} for tag, uid in named.items() if uid
            }
            if outcome == "taken":
                image = f"{address}/{item.reading.films[0].record.id}"
                self.stored.append(reference | {"00081190": {"vr": "UR", "Value": [image]}})
            else:
                reason = _MISMATCH if item.elsewhere else _REASONS[outcome]
                self.failed.append(reference | {"00081197": {"vr": "US", "Value": [reason]}})


_Sent = Annotated[_Storing, Depends()]


@router.post("/{collection}/dicomweb/studies", summary="Put DICOM instances in (STOW-RS)", **_ROUTE)
@operation("create", "write")
async def store_instances_of_studies(collection: str, sent: _Sent) -> Response:
    """Put in the films of DICOM files, as an archive sends them; sent again, they are unchanged.

    Files are de-identified before anything is stored, and those that may show a name are refused, as
    `recoquest import dicom` does. The id of an image is its SOP Instance UID.
    """
    return await sent.answer(collection, None)


@router.post(
    "/{collection}/dicomweb/studies/{study}",
    summary="Put DICOM instances of a study in (STOW-RS)",
    **_ROUTE,
)
@operation("create", "write")
async def store_instances_of_study(
    collection: str,
    study: Annotated[str, Path(description="Study Instance UID; instances of another study fail.")],
    sent: _Sent,
) -> Response:
    """Put in the films of DICOM files of one study; those of another study fail with the reason A900."""
    return await sent.answer(collection, study)


def _uids(content: bytes, max_bytes: int) -> tuple[str, str, str]:
    """Return class, instance and study UID of a file, as it states them; "" for missing ones."""
    try:
        dataset = read_object(content, max_bytes)
    except ImageError:
        return "", "", ""
    sop_class, sop, study = (f"{name}UID" for name in ("SOPClass", "SOPInstance", "StudyInstance"))
    return uid_of(dataset, sop_class), uid_of(dataset, sop), uid_of(dataset, study)
