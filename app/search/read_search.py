"""Reads searches and forms of callers, and refuses those over a limit before any work."""

import codecs
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from app.edge.problems import TOO_LARGE, UNSUPPORTED, Kind, RequestError, invalid
from app.edge.schemas import explained
from app.search.schemas import MAX_EXAMPLES, SearchQuery
from app.search.search import ImageFile, Search
from app.services import InjectedServices
from app.settings import Settings
from index.filters.grammar import parse_filter

_Model = TypeVar("_Model")

_JSON = "application/json"
_MULTIPART = "multipart/form-data"
_UNREADABLE_FORM: Final = Kind("bad-request", "The form cannot be read", HTTPStatus.BAD_REQUEST)
# The longest of RFC 2046; a body is searched for it.
_MAX_BOUNDARY: Final = 70
# Any bytes have texts in these, and none of them half of a character.
_CHARSETS: Final = frozenset({"utf-8", "ascii", "iso8859-1"})


async def read_search(request: Request, services: InjectedServices) -> Search:
    """Read a search from JSON, or from a form of JSON and image files, within the service's limits.

    Raises:
        RequestError: The body is neither JSON nor a form, or a text is too long.
        RequestValidationError: A field is unknown or not valid.
        QueryError: The fields make no search together.
        FilterError: The filter is none.
    """
    content_type, settings = request.headers.get("content-type", "").lower(), services.settings
    if content_type.startswith(_MULTIPART):
        sent = await _read_form(request, settings)
    elif content_type.split(";")[0].strip() == _JSON:
        sent = Search(parsed(SearchQuery.model_validate_json, await request.body(), "body"))
    else:
        raise RequestError(UNSUPPORTED, f"Send the search as {_JSON}, or with image files as {_MULTIPART}.")
    sent.query.check(images=len(sent.images), unlike_images=len(sent.unlike_images))
    check_lengths(sent.query, settings)
    # A wrong filter is refused before the collection is looked up.
    _ = sent.request
    return sent


def check_lengths(query: SearchQuery, settings: Settings, prefix: str = "") -> None:
    """Refuse a search with a text or a filter that is too long."""
    limit = settings.max_text_length
    check_length(f"{prefix}text", query.text or "", limit)
    check_length(f"{prefix}keywords", query.keywords or "", limit)
    for name, examples in (("like", query.like), ("unlike", query.unlike)):
        for number, example in enumerate(examples):
            check_length(f"{prefix}{name}.{number}.text", example.text or "", limit)
    if query.filter is not None:
        check_length(f"{prefix}filter", json.dumps(query.filter), settings.max_filter_length)


def read_condition(text: str | None, settings: Settings) -> Any:
    """Read the filter of an address as JSON.

    Raises:
        RequestError: It is too long, or is not JSON.
        FilterError: It is no filter.
    """
    if text is None:
        return None
    check_length("filter", text, settings.max_filter_length)
    try:
        condition = json.loads(text)
    except (ValueError, RecursionError):
        raise invalid("filter", "The filter is not JSON: write it as in a search, and quote it.") from None
    parse_filter(condition)
    return condition


def check_length(field: str, text: str, limit: int) -> None:
    """Refuse a text that is too long to be looked at."""
    if len(text) > limit:
        raise invalid(field, f"The {field} has {len(text):,} characters; the limit is {limit:,}.")


@dataclass(frozen=True, slots=True)
class FormShape:
    """Limits of a form: the field of its JSON text, and the field that errors of its files name."""

    text: str
    max_texts: int
    files: str
    max_files: int
    too_many_files: str


@asynccontextmanager
async def opened_form(request: Request, settings: Settings, shape: FormShape) -> AsyncIterator[FormData]:
    """Read a form within its limits."""
    _check_form_type(request.headers.get("content-type", ""))
    try:
        async with request.form(
            max_files=shape.max_files, max_fields=shape.max_texts, max_part_size=settings.max_json_bytes
        ) as form:
            yield form
    except HTTPException as error:
        raise _form_error(error, shape, settings) from None


def _form_error(error: HTTPException, shape: FormShape, settings: Settings) -> HTTPException | RequestError:
    """Say in our words what the framework, by its words alone, refuses a form for."""
    too_long = f"A text of the form has over {settings.max_json_bytes:,} bytes; send a shorter one."
    problems = {
        "Too many files": invalid(shape.files, shape.too_many_files),
        "Too many fields": invalid(
            shape.text, f"The form has too many texts: send `{shape.text}` once, and images as files."
        ),
        "Part exceeded": invalid(shape.text, too_long, TOO_LARGE),
        "The Content-Disposition header": RequestError(
            _UNREADABLE_FORM, "A part of the form has no name: give each the name of its field."
        ),
        "Invalid multipart data": RequestError(
            _UNREADABLE_FORM, f"The body is not the {_MULTIPART} that its content type says: send it again."
        ),
    }
    return next((one for words, one in problems.items() if error.detail.startswith(words)), error)


_SEARCH = FormShape(
    text="query",
    max_texts=8,
    files="like",
    max_files=MAX_EXAMPLES,
    too_many_files=f"Too many files are sent: a search takes at most {MAX_EXAMPLES} examples.",
)


async def _read_form(request: Request, settings: Settings) -> Search:
    files: dict[str, list[bytes]] = {"image": [], "unlike_image": []}
    queries: list[bytes] = []
    async with opened_form(request, settings, _SEARCH) as form:
        for name, value in form.multi_items():
            content = value.encode() if isinstance(value, str) else await value.read()
            if name == "query":
                queries.append(content)
            elif name not in files:
                fields = ", ".join(("query", *files))
                raise invalid(name, f"This field of the form is unknown; there are {fields}.")
            elif isinstance(value, str):
                raise invalid(name, f"The form field `{name}` is a text; send a file with a file name.")
            else:
                files[name].append(content)
    if len(queries) > 1:
        raise invalid("query", "The form field `query` was sent twice.")
    if not queries and not any(files.values()):
        raise invalid("query", "The form holds nothing: send the search in its field `query`, or an image.")
    query = parsed(SearchQuery.model_validate_json, queries[0], "query") if queries else SearchQuery()
    return Search(query, _named("image", files["image"]), _named("unlike_image", files["unlike_image"]))


def _named(field: str, files: Sequence[bytes]) -> list[ImageFile]:
    if len(files) == 1:
        return [ImageFile("", files[0])]
    return [ImageFile(f"File {number} of `{field}`", content) for number, content in enumerate(files, 1)]


def parsed(read: Callable[[str | bytes], _Model], content: str | bytes, whole: str, *location: str) -> _Model:
    """Parse JSON by a model; errors name fields below `location`, or `whole` if no field is to blame.

    Raises:
        RequestValidationError: It is not valid.
    """
    try:
        return read(content)
    except ValidationError as error:
        errors = explained(error, content).errors(include_url=False, include_input=False)
        raise RequestValidationError(
            [{**e, "loc": (*location, *e["loc"]) or (whole,)} for e in errors]
        ) from None


def _check_form_type(content_type: str) -> None:
    """Refuse a form whose boundary or charset cannot be used."""
    _, parameters = parse_options_header(content_type)
    boundary = parameters.get(b"boundary", b"")
    if not boundary:
        raise RequestError(
            _UNREADABLE_FORM,
            f"The content type is {_MULTIPART} without a boundary: let the HTTP client write it.",
        )
    if len(boundary) > _MAX_BOUNDARY or not (boundary.isascii() and boundary.decode("ascii").isprintable()):
        raise RequestError(
            _UNREADABLE_FORM,
            f"The boundary of the form is longer than {_MAX_BOUNDARY} characters, or not of ASCII: let "
            "the HTTP client write it.",
        )
    with suppress(LookupError, ValueError):
        if codecs.lookup(parameters.get(b"charset", b"utf-8").decode("latin-1")).name in _CHARSETS:
            return
    raise RequestError(UNSUPPORTED, "The charset of the form is not supported: send its texts as UTF-8.")
