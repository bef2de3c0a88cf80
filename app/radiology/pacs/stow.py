"""DICOM files that are sent by STOW-RS: read as those of an archive, and written as uploads."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request

from app.decoding.films import FilmReader, FilmRules, Reading
from app.edge.http.field_errors import FieldError
from app.edge.http.problem_kinds import INVALID, UNSUPPORTED
from app.edge.http.problems import RequestError
from app.images.read_uploads import SentImage
from app.images.schemas.writes import MAX_UPLOADS
from app.images.write_images import write_sent
from app.radiology.pacs.dicomweb.multipart import MultipartError, Part, PartReader, boundary_of
from app.services import Services
from index.catalogue.studies import Outcome
from index.search.results import ActiveGeneration
from training.clinical.dicom.elements import uid_of
from training.clinical.dicom.objects import read_object
from training.common.errors import ImageError

MEDIA_TYPE: Final = "application/dicom"
JSON: Final = "application/dicom+json"
_PIECE: Final = 1 << 16
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


@dataclass(frozen=True, slots=True)
class SentInstance:
    """A file that was sent.

    Attributes:
        sop_class: UID of its class; "": it cannot be read.
        sop: SOP Instance UID; "": it cannot be read.
        reading: Outcome of reading it.
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
        images: Ids of the images that are there.
        stored: Class and instance UIDs of the files whose images are there, each with its first image's id.
        failed: Those of the others, and why, as PS3.18 numbers it.
        counts: Number of files by outcome.
        reasons: Why files were not taken.
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
        """Return the answer in DICOM JSON.

        Args:
            address: Address of the images of the collection.
        """
        body: dict[str, Any] = {}
        if self.failed:
            items = [
                {**_reference(sop_class, sop), "00081197": {"vr": "US", "Value": [reason]}}
                for sop_class, sop, reason in self.failed
            ]
            body["00081198"] = {"vr": "SQ", "Value": items}
        if self.stored:
            items = [
                {**_reference(sop_class, sop), "00081190": {"vr": "UR", "Value": [f"{address}/{image}"]}}
                for sop_class, sop, image in self.stored
            ]
            body["00081199"] = {"vr": "SQ", "Value": items}
        return body


async def read_parts(request: Request, services: Services) -> list[Part]:
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
    parts = await services.threads.read(_parts, body, boundary, services.settings.max_image_bytes)
    if any(part.media_type not in (MEDIA_TYPE, "") for part in parts):
        raise RequestError(UNSUPPORTED, f"A part is not {MEDIA_TYPE}: send whole DICOM files.")
    if not 0 < len(parts) <= MAX_UPLOADS:
        raise _invalid(f"There are {len(parts):,} files; send 1 to {MAX_UPLOADS} in a request.")
    return parts


async def store_instances(
    services: Services, collection: str, parts: list[Part], study: str | None = None
) -> StoredInstances:
    """Write the images of files that were sent; one that was sent before is there once.

    Films may have many times the bytes of their files, so they are written whenever some have been read, and
    the parts are given up on the way: what was written before an error stays, and is unchanged when it is
    sent again.

    Args:
        services: The service's parts.
        collection: Name of the collection.
        parts: The files.
        study: Study Instance UID of the only study whose instances are taken; None: any.

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


def _parts(body: bytes, boundary: bytes, max_bytes: int) -> list[Part]:
    try:
        reader = PartReader(boundary, max_bytes)
        found = []
        for start in range(0, len(body), _PIECE):
            found += reader.feed(body[start : start + _PIECE])
            if len(found) > MAX_UPLOADS:
                break
        else:
            reader.close()
    except MultipartError as error:
        raise _invalid(str(error)) from None
    return found


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


def _invalid(message: str) -> RequestError:
    return RequestError(INVALID, message, errors=[FieldError(field="body", message=message)])
