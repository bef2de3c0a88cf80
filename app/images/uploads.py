"""Images on their way into a collection that is served: read from a form, decoded, embedded, committed."""

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Annotated, Any, Final, NamedTuple, ParamSpec, TypeVar

from fastapi import Request
from pydantic import Field, TypeAdapter
from starlette.datastructures import UploadFile

from app.concurrency import side_by_side
from app.edge.logging import let_go
from app.edge.operations import etag_of
from app.edge.problems import INVALID, UNSUPPORTED, RequestError, invalid, kind_of
from app.encoding.pool import LoadedEncoder
from app.encoding.queue import Priority
from app.images.schemas import MAX_UPLOADS, ImageChanges, ImageWords, NewImage, Refusal, Written
from app.search.read_search import FormShape, check_length, opened_form, parsed
from app.services import InjectedServices, Services
from app.settings import Settings
from index.catalogue.connections import is_disk_full
from index.errors import DiskFullError, StaleWriteError, shortened
from index.search.results import ActiveGeneration
from index.vectors.protocol import encode_vectors
from index.writes.images import Outcome, PictureWrite
from index.writes.intake import KnownImage, Prepared, compare
from index.writes.live import UNCONDITIONAL, Condition, change_image, put_images, read_known_images
from training.common.errors import ImageError
from training.common.manifest import Record
from training.common.record import LineError, parse_line
from training.common.values import is_not_known
from training.imaging.images import read_file

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
_RECORD = TypeAdapter(ImageWords)
_RECORDS = TypeAdapter(Annotated[list[NewImage], Field(fail_fast=True, max_length=MAX_UPLOADS)])
Result = TypeVar("Result")
_Params = ParamSpec("_Params")
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
    contents, records = await _read_form(request, services.settings, _SEVERAL, _RECORDS)
    if len(contents) != len(records):
        raise invalid(
            "records", f"There are {len(contents)} files and {len(records)} records; send one for each file."
        )
    ids = [record.id for record in records]
    for twice in {name for name in ids if ids.count(name) > 1}:
        raise invalid(
            "records", f"The id {shortened(twice)!r} is there twice; an image is written once in a request."
        )
    images = []
    for sent, content in zip(records, contents, strict=True):
        record: Record | LineError
        try:
            record = _record(sent.id, sent.model_dump(exclude={"id"}), sent.metadata, services.settings)
        except LineError as error:
            record = error
        images.append(SentImage(sent.id, content, record))
    return images


async def read_upload(request: Request, image_id: str, services: InjectedServices) -> SentImage:
    """Read the form of one image: a file in `image`, a JSON object in `record`.

    Raises:
        RequestError: The body is no such form, or the record cannot be used.
        RequestValidationError: The record is not of the right form.
    """
    (content,), words = await _read_form(request, services.settings, _ONE, _RECORD)
    try:
        record = _record(image_id, words.model_dump(), words.metadata, services.settings)
    except LineError as error:
        raise invalid("record", f"The record cannot be used: {error}.") from None
    return SentImage(image_id, content, record)


def changed_record(record: Record, changes: ImageChanges, settings: Settings) -> Record:
    """Return the record of an image after these changes; an unusable one is refused."""
    fields = {name: getattr(record, name) for name in ImageChanges.model_fields}
    fields |= changes.model_dump(exclude_unset=True)
    fields["metadata"] = {**record.metadata, **(changes.metadata or {})}
    try:
        return _record(record.id, fields, changes.metadata or {}, settings)
    except LineError as error:
        raise invalid("body", f"The changed record cannot be used: {error}.") from None


async def _read_form(
    request: Request, settings: Settings, shape: FormShape, text: TypeAdapter[Result]
) -> tuple[list[bytes], Result]:
    """Read the files of a form and its JSON text, once they are all there."""
    contents = []
    if not request.headers.get("content-type", "").lower().startswith(_MULTIPART):
        raise RequestError(UNSUPPORTED, f"Send the image as {_MULTIPART} in the form field `image`.")
    try:
        async with opened_form(request, settings, shape) as form:
            for name in form:
                if name not in ("image", "records", "record"):
                    raise invalid(name, "This field of the form is unknown; there are image and a JSON text.")
            for file in form.getlist("image"):
                if not isinstance(file, UploadFile):
                    raise invalid("image", "The form field `image` is a text; send a file with a file name.")
                contents.append(await file.read())
            if not contents:
                raise invalid("image", "Send the image as a file in the form field `image`.")
            values = form.getlist(shape.text)
    except OSError as error:
        # Large files wait on the disk until they are read.
        if is_disk_full(error):
            raise DiskFullError("There is no space for the files that are sent.") from error
        raise
    if len(values) != 1 or not isinstance(values[0], str):
        raise invalid(shape.text, f"Send the form field `{shape.text}` once, as JSON text.")
    return contents, parsed(text.validate_json, values[0], "", "body", shape.text)


def _record(
    image_id: str, values: Mapping[str, Any], metadata: Mapping[str, Any], settings: Settings
) -> Record:
    """Parse the record of an image like a line of a manifest, so that the same rules apply.

    Values of its `metadata` such as "nan", which an import of a table drops, are refused: a filter would find
    them as words.
    """
    for name, value in metadata.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item and is_not_known(item):
                raise LineError(
                    f"{shortened(f'metadata.{name}')!r} is {item!r}, which means an unknown value; "
                    "leave it out or send null"
                )
    for text in values["texts"]:
        check_length("texts", text, settings.max_text_length)
    # No line of a manifest but needs the name of its file.
    line = json.dumps({**values, "id": image_id, "image": "sent"})
    return parse_line(line.encode(), number=1)


class WrittenImages(NamedTuple):
    """Outcomes of writing images, and their generation."""

    active: ActiveGeneration
    images: list[Written]


def _tried_again(
    work: Callable[_Params, Coroutine[Any, Any, Result]],
) -> Callable[_Params, Coroutine[Any, Any, Result]]:
    """Do it again where another writer, or a change of the model, came between its read and its write."""

    @wraps(work)
    async def tries(*args: _Params.args, **kwargs: _Params.kwargs) -> Result:
        for _ in range(_TRIES - 1):
            try:
                return await work(*args, **kwargs)
            except StaleWriteError:
                continue
        return await work(*args, **kwargs)

    return tries


@_tried_again
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
        RecoquestError: The whole write failed: the collection cannot be written to, the encoder is busy or
            failed, the disk is full, or somebody else changes the same images all the time.
    """
    active = await services.threads.read(services.engine.active, collection)
    loaded = await services.encoders.get(active)
    # A refused id may be one that no database can look up.
    ids = [image.id for image in images if isinstance(image.record, Record)]
    stored = await _check_stored(services, active, ids, condition)
    # A batch of the encoder's at a time, so that one request cannot fill the queue.
    slots = asyncio.Semaphore(services.settings.encode_batch_size)
    prepared_items = await side_by_side(
        [_compare(services, stored, loaded, image) for image in images], slots
    )
    failed = [item for item in prepared_items if isinstance(item, Exception)]
    if failed and not refuse:
        raise failed[0]
    ready = [item for item in prepared_items if isinstance(item, Prepared) and not item.is_same]
    texts = [text for item in ready for text in item.record.texts]
    vectors, cut = await _embed_texts(services, loaded, texts)
    writes = {item.record.id: item.write(vectors) for item in ready}
    outcomes: dict[str, Outcome] = {}
    if writes:
        outcomes = await services.threads.write(
            put_images, services.engine.home, active, list(writes.values()), condition=condition
        )
    written = []
    for image, item in zip(images, prepared_items, strict=True):
        if isinstance(item, Exception):
            written.append(Written(id=image.id, status="refused", problem=_refusal(item)))
        elif image.id in outcomes:
            write = writes[image.id]
            written.append(_written(image.id, outcomes[image.id], write.revision, write.record.texts, cut))
        else:
            written.append(_written(image.id, "unchanged", stored[image.id].revision))
    return WrittenImages(active, written)


@_tried_again
async def change_one(
    services: Services, collection: str, image_id: str, changes: ImageChanges, condition: Condition
) -> WrittenImages:
    """Change the record of an image if a condition holds; new texts are embedded. Raises as `write_sent`."""
    # For any present record; nothing is embedded for a change that is refused.
    changed_record(_BLANK, changes, services.settings)
    active = await services.threads.read(services.engine.active, collection)
    await _check_stored(services, active, [image_id], condition, if_new=False)
    loaded = await services.encoders.get(active)
    vectors, cut = await _embed_texts(services, loaded, changes.texts or [])
    change = partial(changed_record, changes=changes, settings=services.settings)
    outcome, revision = await services.threads.write(
        change_image, services.engine.home, active, image_id, change, vectors, condition
    )
    return WrittenImages(active, [_written(image_id, outcome, revision, changes.texts or [], cut)])


async def _check_stored(
    services: Services,
    active: ActiveGeneration,
    ids: Sequence[str],
    condition: Condition,
    *,
    if_new: bool = True,
) -> dict[str, KnownImage]:
    """Return what is there of images, if the condition holds of each; of a missing one only `if_new`.

    The transaction looks again; nothing is decoded or embedded for a write that would be refused.
    """
    stored = await services.threads.read(read_known_images, services.engine.home, active, ids)
    for image_id in ids:
        if if_new or image_id in stored:
            condition.check(image_id, stored[image_id].revision if image_id in stored else None)
    return stored


def _written(
    image_id: str, outcome: Outcome, revision: str, texts: Sequence[str] = (), cut: Collection[str] = ()
) -> Written:
    truncated = sum(map(cut.__contains__, texts)) if cut else 0
    return Written(id=image_id, status=outcome, etag=etag_of(revision), truncated_texts=truncated)


def _refusal(error: ImageError | LineError) -> Refusal:
    if isinstance(error, LineError):
        return Refusal.from_kind(INVALID, f"The record cannot be used: {error}.")
    return Refusal.from_kind(kind_of(error), str(error))


async def _compare(
    services: Services, stored: Mapping[str, KnownImage], loaded: LoadedEncoder, image: SentImage
) -> Prepared | ImageError | LineError:
    """Compare an image with what is there, and decode and embed a new one."""
    if isinstance(image.record, LineError):
        return image.record
    config, content = loaded.encoder.image_config, image.content
    work = partial(compare, stored, image.record, content, keep_metadata=services.settings.keep_metadata)
    try:
        # A file that is no image, or too large, is refused before any of it is read.
        read_file(content, services.images.limits)
        try:
            item = await services.threads.read(work)
        except ImageError:
            # The decoder has better words for most damage.
            await services.images.decode_upload(content, config)
            raise
        if not item.is_new:
            return item
        # The vector is of the file that is stored.
        decoded = await services.images.decode_upload(item.content, config)
    except ImageError as error:
        let_go(error)
        return error
    encoded = await loaded.queue.encode_image(decoded.pixels, priority=Priority.UPLOAD)
    (vector,), size = encode_vectors(encoded.vector[None]), (decoded.width, decoded.height)
    item.picture = PictureWrite(item.sha256, decoded.media_type, *size, vector, decoded.flags)
    return item


async def _embed_texts(
    services: Services, loaded: LoadedEncoder, texts: Sequence[str]
) -> tuple[dict[str, bytes], frozenset[str]]:
    """Return vectors of different texts, and which of these are longer than the encoder reads."""
    different = list(dict.fromkeys(texts))
    if not different or "text" not in loaded.encoder.modalities:
        return {}, frozenset()
    encode = partial(loaded.queue.encode_text, priority=Priority.UPLOAD)
    slots = asyncio.Semaphore(services.settings.encode_batch_size)
    vectors_of = await side_by_side([encode(text) for text in different], slots)
    encoded = dict(zip(different, vectors_of, strict=True))
    vectors = {text: encode_vectors(item.vector[None])[0] for text, item in encoded.items()}
    return vectors, frozenset(text for text, item in encoded.items() if item.truncation is not None)
