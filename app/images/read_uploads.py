"""Images that are sent to be kept: the form they come in, and what is said of them."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import Field, TypeAdapter
from starlette.datastructures import FormData, UploadFile

from app.edge.http.problem_kinds import UNSUPPORTED
from app.edge.http.problems import RequestError
from app.images.schemas.writes import MAX_UPLOADS, ImageChanges, ImageWords, NewImage
from app.search.read_search import FormShape, check_length, invalid, opened_form, parsed
from app.settings import Settings
from index.catalogue.connections import is_disk_full
from index.errors import DiskFullError, shortened
from training.common.manifest import Record
from training.common.record import LineError, parse_line
from training.common.values import is_not_known

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


@dataclass(frozen=True, slots=True)
class SentImage:
    """An image file and its record, or the reason why the record cannot be used."""

    id: str
    content: bytes
    record: Record | LineError


async def read_uploads(request: Request, settings: Settings) -> list[SentImage]:
    """Read the form of one or many images: files in `image`, a JSON list in `records`.

    Raises:
        RequestError: The body is no such form, or files and records do not match.
        RequestValidationError: The records are not of the right form.
    """
    async with _form(request, settings, _SEVERAL) as form:
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
        SentImage(record.id, content, _record(record.id, record, settings))
        for record, content in zip(records, contents, strict=True)
    ]


async def read_upload(request: Request, image_id: str, settings: Settings) -> SentImage:
    """Read the form of one image: a file in `image`, a JSON object in `record`.

    Raises:
        RequestError: The body is no such form, or the record cannot be used.
        RequestValidationError: The record is not of the right form.
    """
    async with _form(request, settings, _ONE) as form:
        (content,) = await _files(form)
        words = parsed(ImageWords.model_validate_json, _only_text(form, "record"), "", "body", "record")
    record = _record(image_id, words, settings)
    if isinstance(record, LineError):
        raise invalid("record", f"The record cannot be used: {record}.")
    return SentImage(image_id, content, record)


def changed_record(record: Record, changes: ImageChanges, settings: Settings) -> Record:
    """Return the record of an image after these changes.

    Raises:
        RequestError: The record cannot be used.
    """
    values = {
        "texts": list(record.texts),
        "report": record.report,
        "labels": list(record.labels),
        "group": record.group,
        "split": record.split,
    }
    named = changes.model_dump(include=changes.model_fields_set - {"metadata"})
    metadata = {**_plain(record.metadata), **(changes.metadata or {})}
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


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in metadata.items()}
