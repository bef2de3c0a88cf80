"""Images on their way into a collection that is served: read from a form, decoded, embedded, committed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from fastapi import Request
from pydantic import Field, TypeAdapter
from starlette.datastructures import FormData, UploadFile

from app.edge.addresses import etag_of
from app.edge.logging import let_go
from app.edge.problems import INVALID, UNSUPPORTED, RequestError, kind_of
from app.encoding.pool import LoadedEncoder
from app.encoding.queue import Priority
from app.images.schemas import MAX_UPLOADS, ImageChanges, ImageWords, NewImage, Refusal, Written
from app.search.read_search import FormShape, check_length, invalid, opened_form, parsed
from app.search.search import side_by_side
from app.services import InjectedServices, Services
from app.settings import Settings
from index.catalogue.connections import is_disk_full
from index.catalogue.images import revision_of
from index.errors import DiskFullError, StaleWriteError, shortened
from index.search.results import ActiveGeneration
from index.vectors.codec import encode_vectors
from index.writes.images import Outcome
from index.writes.intake import Compared, KnownImage, Prepared, compare
from index.writes.live import UNCONDITIONAL, Changed, Condition, Upload, change_image, known_now, put_images
from training.common.errors import ImageError
from training.common.manifest import Record
from training.common.record import LineError, parse_line
from training.common.values import is_not_known
from training.imaging.images import check_signature

_Model = TypeVar("_Model")
_MULTIPART = "multipart/form-data"
_SEVERAL = FormShape(
    text="records",
    max_texts=2,
    files="image",
    max_files=MAX_UPLOADS,
    too_many_files=f"Too many files are sent: a request takes at most {MAX_UPLOADS}.",
)
_ONE = FormShape(
    text="record", max_texts=2, files="image", max_files=1, too_many_files="Send one image, not several."
)
_RECORDS = TypeAdapter(Annotated[list[NewImage], Field(fail_fast=True, max_length=MAX_UPLOADS)])
Result = TypeVar("Result")
# Attempts: another writer, or a change of the model, may come between the read and the write.
_TRIES = 3
_BLANK: Final = Record(id="-", image="-", split="test")


@dataclass(frozen=True, slots=True)
class SentImage:
    """An image file and its record, or the reason why the record cannot be used."""

    id: str
    content: bytes
    record: Record | LineError


async def read_uploads(request: Request, services: InjectedServices) -> list[SentImage]:
    """Read the form of one or many images: files in `image`, a JSON list in `records`.

    Raises:
        RequestError: The body is no such form, or files and records do not match.
        RequestValidationError: The records are not of the right form.
    """
    async with _form(request, services.settings, _SEVERAL) as form:
        contents = await _files(form)
        records = parsed(_RECORDS.validate_json, _only_text(form, "records"), "", "body", "records")
    if len(contents) != len(records):
        raise invalid(
            "records", f"There are {len(contents)} files and {len(records)} records; send one for each file."
        )
    ids = [record.id for record in records]
    for twice in {name for name in ids if ids.count(name) > 1}:
        raise invalid(
            "records", f"The id {shortened(twice)!r} is there twice; an image is written once in a request."
        )
    return [
        SentImage(record.id, content, _record(record.id, record, services.settings))
        for record, content in zip(records, contents, strict=True)
    ]


async def read_upload(request: Request, image_id: str, services: InjectedServices) -> SentImage:
    """Read the form of one image: a file in `image`, a JSON object in `record`.

    Raises:
        RequestError: The body is no such form, or the record cannot be used.
        RequestValidationError: The record is not of the right form.
    """
    async with _form(request, services.settings, _ONE) as form:
        (content,) = await _files(form)
        words = parsed(ImageWords.model_validate_json, _only_text(form, "record"), "", "body", "record")
    record = _record(image_id, words, services.settings)
    if isinstance(record, LineError):
        raise invalid("record", f"The record cannot be used: {record}.")
    return SentImage(image_id, content, record)


def changed_record(record: Record, changes: ImageChanges, settings: Settings) -> Record:
    """Return the record of an image after these changes.

    Raises:
        RequestError: The record cannot be used.
    """
    values = {
        "texts": record.texts,
        "report": record.report,
        "labels": record.labels,
        "group": record.group,
        "split": record.split,
    }
    named = changes.model_dump(include=changes.model_fields_set - {"metadata"})
    metadata = {**record.metadata, **(changes.metadata or {})}
    try:
        _check_known(changes.metadata or {})
        return _parse_record(record.id, {**values, **named, "metadata": metadata}, settings)
    except LineError as error:
        raise invalid("body", f"The changed record cannot be used: {error}.") from None


@asynccontextmanager
async def _form(request: Request, settings: Settings, shape: FormShape) -> AsyncIterator[FormData]:
    if not request.headers.get("content-type", "").lower().startswith(_MULTIPART):
        raise RequestError(UNSUPPORTED, f"Send the image as {_MULTIPART} in the form field `image`.")
    try:
        async with opened_form(request, settings, shape) as form:
            yield form
    except OSError as error:
        # Large files wait on the disk until they are read.
        if is_disk_full(error):
            raise DiskFullError("There is no space for the files that are sent.") from error
        raise


async def _files(form: FormData) -> list[bytes]:
    for name in form:
        if name not in ("image", "records", "record"):
            raise invalid(name, "This field of the form is unknown; there are image and a JSON text.")
    files = form.getlist("image")
    if not files:
        raise invalid("image", "Send the image as a file in the form field `image`.")
    contents = []
    for file in files:
        if not isinstance(file, UploadFile):
            raise invalid("image", "The form field `image` is a text; send a file with a file name.")
        contents.append(await file.read())
    return contents


def _only_text(form: FormData, name: str) -> str:
    values = form.getlist(name)
    if len(values) != 1 or not isinstance(values[0], str):
        raise invalid(name, f"Send the form field `{name}` once, as JSON text.")
    return values[0]


def _record(image_id: str, words: ImageWords, settings: Settings) -> Record | LineError:
    try:
        _check_known(words.metadata)
        return _parse_record(image_id, words.model_dump(exclude={"id"}), settings)
    except LineError as error:
        return error


def _parse_record(image_id: str, values: Mapping[str, Any], settings: Settings) -> Record:
    """Take what is said of an image as a line of a manifest is taken, so that the same rules hold."""
    for text in values["texts"]:
        check_length("texts", text, settings.max_text_length)
    # No line of a manifest but needs the name of its file.
    line = json.dumps({**values, "id": image_id, "image": "sent"})
    return parse_line(line.encode(), number=1)


def _check_known(metadata: Mapping[str, Any]) -> None:
    """Refuse values such as "nan", which an import of a table drops: a filter would find them as words."""
    for name, value in metadata.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item and is_not_known(item):
                raise LineError(
                    f"{shortened(f'metadata.{name}')!r} is {item!r}, which stands for a value not known; "
                    "leave it out or send null"
                )


@dataclass(frozen=True, slots=True)
class WrittenImages:
    """Outcomes of writing images, and their generation."""

    active: ActiveGeneration
    images: list[Written]


async def write_sent(
    services: Services,
    collection: str,
    images: Sequence[SentImage],
    condition: Condition = UNCONDITIONAL,
    *,
    refuse: bool = True,
) -> WrittenImages:
    """Decode, embed and commit images if a condition holds of those there.

    Those that cannot be used are refused, and the others written; without `refuse`, nothing is.

    Raises:
        ConditionError: The condition does not hold.
        ImageError: An image cannot be used, and `refuse` is false.
        RecoquestError: The write failed whole: the collection cannot be written to, the encoder is busy or
            failed, the disk is full, or somebody else changes the same images all the time.
    """
    return await _repeated(lambda: _write_once(services, collection, images, condition, refuse=refuse))


async def change_one(
    services: Services, collection: str, image_id: str, changes: ImageChanges, condition: Condition
) -> tuple[ActiveGeneration, Changed, int]:
    """Change the record of an image, if a condition holds of it; new texts are embedded.

    Returns:
        The generation that has it, the outcome, and how many of the new texts are longer than the encoder
        reads.

    Raises:
        ConditionError: The condition does not hold.
        RecoquestError: The write failed whole; see `write_sent`.
    """
    # For any present record; nothing is embedded for a change that is refused.
    changed_record(_BLANK, changes, services.settings)

    async def once() -> tuple[ActiveGeneration, Changed, int]:
        active = await services.threads.read(services.engine.active, collection)
        known = await services.threads.read(known_now, services.engine.home, active, [image_id])
        if image_id in known:
            # The transaction looks again; nothing is embedded for a change that would be refused.
            condition.check(image_id, known[image_id].revision)
        loaded = await services.encoders.of(active)
        vectors, cut = await _embed_texts(services, loaded, changes.texts or [])

        def change(record: Record) -> Record:
            return changed_record(record, changes, services.settings)

        changed = await services.threads.write(
            change_image, services.engine.home, active, image_id, change, vectors, condition
        )
        return active, changed, sum(text in cut for text in changes.texts or [])

    return await _repeated(once)


async def _repeated(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    for _ in range(_TRIES - 1):
        try:
            return await work()
        except StaleWriteError:
            continue
    return await work()


async def _write_once(
    services: Services,
    collection: str,
    images: Sequence[SentImage],
    condition: Condition,
    *,
    refuse: bool,
) -> WrittenImages:
    active = await services.threads.read(services.engine.active, collection)
    loaded = await services.encoders.of(active)
    # An id that is refused may be none that a database can look for.
    ids = [image.id for image in images if isinstance(image.record, Record)]
    known = await services.threads.read(known_now, services.engine.home, active, ids)
    for image_id in ids:
        # The transaction looks again; nothing is decoded for a write that would be refused.
        condition.check(image_id, known[image_id].revision if image_id in known else None)
    prepared = await _each(services, [_prepare(services, known, loaded, image) for image in images])
    failed = next((item.error for item in prepared if item.error is not None), None)
    if failed is not None and not refuse:
        raise failed
    ready = [item.prepared for item in prepared if item.prepared is not None]
    vectors, cut = await _embed_texts(
        services, loaded, [text for item in ready for text in item.record.texts]
    )
    uploads = [
        Upload(item.prepared.write(iter([item.vector]), vectors), item.content, condition)
        for item in prepared
        if item.prepared is not None
    ]
    outcomes: dict[str, Outcome] = {}
    if uploads:
        outcomes = await services.threads.write(put_images, services.engine.home, active, uploads)
    return WrittenImages(active, [item.written(outcomes, cut) for item in prepared])


@dataclass(frozen=True, slots=True)
class _Ready:
    """An image that has been looked at; without `prepared` and `error`, it is there already as it is.

    Attributes:
        content: The file as it is stored.
        known: Revision of the image that is there.
    """

    sent: SentImage
    content: bytes = b""
    prepared: Prepared | None = None
    vector: bytes = b""
    error: ImageError | LineError | None = None
    known: str | None = None

    def written(self, outcomes: Mapping[str, Outcome], cut: Collection[str]) -> Written:
        if self.error is not None:
            return Written(id=self.sent.id, status="refused", problem=_refusal(self.error))
        revision, truncated = self.known, 0
        if self.prepared is not None:
            revision = revision_of(self.prepared.record_digest, self.prepared.sha256)
            truncated = sum(text in cut for text in self.prepared.record.texts)
        assert revision is not None
        return Written(
            id=self.sent.id,
            status=outcomes.get(self.sent.id, "unchanged"),
            etag=etag_of(revision),
            truncated_texts=truncated,
        )


def _refusal(error: ImageError | LineError) -> Refusal:
    if isinstance(error, LineError):
        return Refusal.of(INVALID, f"The record cannot be used: {error}.")
    return Refusal.of(kind_of(error), str(error))


async def _prepare(
    services: Services, known: Mapping[str, KnownImage], loaded: LoadedEncoder, image: SentImage
) -> _Ready:
    if isinstance(image.record, LineError):
        return _Ready(image, error=image.record)
    try:
        compared = await _compared(services, known, loaded, image, image.record)
        if not compared.is_new:
            revision = known[image.id].revision if image.id in known else None
            return _Ready(image, compared.content, compared.prepared, known=revision)
        # The vector is of the file that is stored.
        decoded = await services.images.decode_upload(compared.content, loaded.encoder.image_config)
    except ImageError as error:
        let_go(error)
        return _Ready(image, error=error)
    prepared = compared.with_picture(
        decoded.media_type, decoded.width, decoded.height, decoded.pixels, decoded.flags
    )
    encoded = await loaded.queue.encode_image(decoded.pixels, priority=Priority.UPLOAD)
    return _Ready(image, compared.content, prepared, encode_vectors(encoded.vector[None])[0])


async def _compared(
    services: Services,
    known: Mapping[str, KnownImage],
    loaded: LoadedEncoder,
    image: SentImage,
    record: Record,
) -> Compared:
    # A file that is no image, or too large, is refused before any of it is read.
    check_signature(image.content, services.images.limits)
    work = partial(compare, known, record, image.content, keep_metadata=services.settings.keep_metadata)
    try:
        return await services.threads.read(work)
    except ImageError:
        # The decoder has better words for most damage.
        await services.images.decode_upload(image.content, loaded.encoder.image_config)
        raise


async def _embed_texts(
    services: Services, loaded: LoadedEncoder, texts: Sequence[str]
) -> tuple[dict[str, bytes], frozenset[str]]:
    """Return vectors of different texts, and which of these are longer than the encoder reads."""
    different = list(dict.fromkeys(texts))
    if not different or "text" not in loaded.encoder.modalities:
        return {}, frozenset()
    encode = partial(loaded.queue.encode_text, priority=Priority.UPLOAD)
    encoded = dict(zip(different, await _each(services, [encode(text) for text in different]), strict=True))
    vectors = {text: encode_vectors(item.vector[None])[0] for text, item in encoded.items()}
    return vectors, frozenset(text for text, item in encoded.items() if item.truncation is not None)


async def _each(services: Services, work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Do all, a batch of the encoder's at a time, so that one request cannot fill the queue."""
    places = asyncio.Semaphore(services.settings.encode_batch_size)

    async def one(part: Coroutine[Any, Any, Result]) -> Result:
        try:
            async with places:
                return await part
        finally:
            # A coroutine cancelled before its turn was never awaited, and would warn.
            part.close()

    return await side_by_side([one(part) for part in work])
