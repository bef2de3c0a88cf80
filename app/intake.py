"""What callers send, judged before it costs anything: text, filters, forms and image files."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
from fastapi import Request
from PIL import Image
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import FormData, UploadFile
from torch import Tensor

from app.encoding import EncodingTimeoutError, QueueFullError
from app.problems import INVALID, UNSUPPORTED, FieldError, RequestError, describe_errors
from app.schemas import Cursor, K
from app.settings import Settings
from index.filters import Filter, parse_filter
from training.data.images import ImageLimits, decode_image, read_header

_MULTIPART = "multipart/form-data"
_MOST_TEXTS = 8


class ImageQueryFields(BaseModel):
    """Fields of an image query beside the file; the filter is JSON as text."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    k: K = 10
    filter: str | None = None
    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True)
class ImageQuery:
    """A search by image as it was sent, the file not yet looked at."""

    content: bytes
    fields: ImageQueryFields


async def read_image_query(request: Request, settings: Settings) -> ImageQuery:
    """Read the multipart form of an image query.

    Raises:
        RequestError: It is no such form, the file is missing, or a field is unknown or not valid.
    """
    if not request.headers.get("content-type", "").lower().startswith(_MULTIPART):
        raise RequestError(UNSUPPORTED, f"Send the image as {_MULTIPART} in the form field `image`.")
    # A character takes up to four bytes; a text over the limit but not far is told its length.
    largest_text = 4 * settings.max_filter_length
    async with request.form(max_files=1, max_fields=_MOST_TEXTS, max_part_size=largest_text) as form:
        file = _single_file(form)
        fields = _other_fields(form)
        return ImageQuery(await file.read(), fields)


def parse_filter_text(text: str | None, settings: Settings) -> tuple[Filter | None, dict[str, Any] | None]:
    """Read a filter that came as JSON text: what the engine takes, and the JSON itself.

    Raises:
        RequestError: It is too long or not a JSON object.
        FilterError: It is not a filter.
    """
    if text is None or not text.strip():
        return None, None
    check_length("filter", text, settings.max_filter_length)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise invalid("filter", "The filter is not JSON.") from None
    if value is None:
        return None, None
    if not isinstance(value, dict):
        raise invalid("filter", "The filter is not a JSON object.")
    return parse_filter(value), value


def check_length(field: str, text: str, limit: int) -> None:
    """Refuse a text that is too long to be looked at."""
    if len(text) > limit:
        raise invalid(field, f"The {field} has {len(text):,} characters; the limit is {limit:,}.")


def invalid(field: str, message: str) -> RequestError:
    """The error that names one wrong field."""
    return RequestError(INVALID, message, errors=[FieldError(field=field, message=message)])


class QueryImages:
    """Decodes query images in threads, only a few at a time, since each may take hundreds of megabytes."""

    def __init__(self, settings: Settings) -> None:
        self._limits = ImageLimits(max_bytes=settings.max_image_bytes, max_pixels=settings.max_image_pixels)
        self._slots = anyio.CapacityLimiter(settings.concurrent_decodes)
        self._most_waiting = settings.encode_queue_size
        self._deadline_s = settings.encode_deadline_s

    async def prepare(self, content: bytes, prepare: Callable[[Image.Image], Tensor]) -> Tensor:
        """Judge the header, decode, and resize with `prepare`.

        Raises:
            ImageError: The bytes are no image that can be used, or one over the limits.
            QueueFullError: Too many images wait to be decoded.
            EncodingTimeoutError: It was not this image's turn in time.
        """
        await anyio.to_thread.run_sync(read_header, content, self._limits)
        if self._slots.statistics().tasks_waiting >= self._most_waiting:
            raise QueueFullError("Too many images are waiting; try again in a moment.")
        try:
            async with asyncio.timeout(self._deadline_s):
                return await anyio.to_thread.run_sync(self._decode, content, prepare, limiter=self._slots)
        except TimeoutError:
            raise EncodingTimeoutError("The image could not be decoded in time; try again later.") from None

    def _decode(self, content: bytes, prepare: Callable[[Image.Image], Tensor]) -> Tensor:
        return prepare(decode_image(content, self._limits))


def _single_file(form: FormData) -> UploadFile:
    images = form.getlist("image")
    if not images:
        raise invalid("image", "Send the image as a file in the form field `image`.")
    if len(images) > 1:
        raise invalid("image", "Send one image, not several.")
    if not isinstance(images[0], UploadFile):
        raise invalid("image", "The form field `image` is a text; send a file with a file name.")
    return images[0]


def _other_fields(form: FormData) -> ImageQueryFields:
    values: dict[str, str] = {}
    for name, value in form.multi_items():
        if name == "image":
            continue
        if name in values:
            raise invalid(name, f"The form field `{name}` was sent twice.")
        if isinstance(value, UploadFile):
            raise invalid(name, f"The form field `{name}` is a file; send a text.")
        values[name] = value
    try:
        return ImageQueryFields.model_validate(values)
    except ValidationError as error:
        errors = [_field_error(e["loc"], e["type"], e["msg"]) for e in error.errors()]
        raise RequestError(INVALID, describe_errors(errors), errors=errors) from None


def _field_error(location: tuple[int | str, ...], kind: str, message: str) -> FieldError:
    if kind == "extra_forbidden":
        message = (
            f"This field is unknown; an image query has image, {', '.join(ImageQueryFields.model_fields)}."
        )
    return FieldError(field=".".join(str(part) for part in location), message=message)
