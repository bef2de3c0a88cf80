"""Errors as RFC 9457 problem documents: their kinds, which error is of which kind, and errors of fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final, get_args

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core.core_schema import ErrorType
from starlette.exceptions import HTTPException

from app.edge.logging import let_go, where
from app.edge.operations import allowed_methods, etag_of, root_of
from app.encoding.pool import EncoderBrokenError, EncoderLoadingError
from app.encoding.queue import (
    EncoderLostError,
    EncoderMemoryError,
    EncodingFailedError,
    EncodingTimeoutError,
    InvalidTextError,
    QueueClosedError,
    QueueFullError,
)
from index import errors
from index.errors import ConditionError, shortened
from training.common.errors import (
    BundleError,
    ImageError,
    ImageTooLargeError,
    MissingModalityError,
    NoRegionsError,
    RecoquestError,
)
from training.imaging.processes.pool import (
    DecodersBusyError,
    DecodersClosedError,
    DecoderStartError,
    DecodingTimeoutError,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem; `app/edge/problems.md` explains each.

    Attributes:
        slug: Names the kind for programs, and its section of the page.
        detail: Said instead of the error's own words, which may name files of the server.
        retry_after_s: Sent as Retry-After.
        field: The field of the request that is at fault.
        authenticate: Sent as WWW-Authenticate.
    """

    slug: str
    title: str
    status: HTTPStatus
    detail: str | None = None
    retry_after_s: int | None = None
    field: str | None = None
    authenticate: str | None = None

    @property
    def type(self) -> str:
        """The URN by which programs know the kind."""
        return f"urn:recoquest:{self.slug}"


INVALID = Kind("invalid-request", "The request is not valid", HTTPStatus.UNPROCESSABLE_ENTITY)
TOO_LARGE = Kind("content-too-large", "The request is too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
UNSUPPORTED = Kind(
    "unsupported-media-type", "The content type is not supported", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
)
NOT_ACCEPTABLE = Kind("not-acceptable", "The format is not available", HTTPStatus.NOT_ACCEPTABLE)
NOT_READY = Kind("not-ready", "The service is not ready", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=1)
BUSY = Kind("too-many-requests", "The service is busy", HTTPStatus.TOO_MANY_REQUESTS, retry_after_s=1)
ENCODED_LATE = Kind("encoding-timeout", "Encoding took too long", HTTPStatus.GATEWAY_TIMEOUT)
REPLACED = Kind(
    "encoder-replaced", "The encoder is being replaced", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=1
)
LATE = Kind("deadline-passed", "The answer took too long", HTTPStatus.GATEWAY_TIMEOUT)
STOPPING = Kind(
    "stopping",
    "The service is stopping",
    HTTPStatus.SERVICE_UNAVAILABLE,
    detail="The service stops before the request could be answered; try again in a moment.",
    retry_after_s=2,
)
DEFECT = Kind(
    "internal-error",
    "The service made an error",
    HTTPStatus.INTERNAL_SERVER_ERROR,
    detail="The request could not be answered; the service's log has more under this request id.",
)

_NOT_FOUND: Final = HTTPStatus.NOT_FOUND
_CONFLICT: Final = HTTPStatus.CONFLICT
_UNPROCESSABLE: Final = HTTPStatus.UNPROCESSABLE_ENTITY
_UNAVAILABLE: Final = HTTPStatus.SERVICE_UNAVAILABLE
_DEFECTIVE: Final = HTTPStatus.INTERNAL_SERVER_ERROR
# The kind of each error: that of the nearest of its classes.
KINDS: Mapping[type[RecoquestError], Kind] = {
    errors.UnknownCollectionError: Kind("unknown-collection", "There is no such collection", _NOT_FOUND),
    errors.UnknownImageError: Kind("unknown-image", "There is no such image", _NOT_FOUND),
    errors.NoActiveGenerationError: Kind(
        "nothing-indexed", "The collection cannot be searched yet", _CONFLICT
    ),
    errors.QueryError: INVALID,
    errors.FilterError: Kind("invalid-filter", "The filter is not valid", _UNPROCESSABLE, field="filter"),
    errors.CursorError: Kind("invalid-cursor", "The cursor is not valid", _UNPROCESSABLE, field="cursor"),
    ImageTooLargeError: Kind("image-too-large", "The image is too large", TOO_LARGE.status, field="image"),
    ImageError: Kind("not-an-image", "The file is not a usable image", UNSUPPORTED.status, field="image"),
    MissingModalityError: Kind(
        "no-text-search", "The collection cannot be searched by text", _UNPROCESSABLE, field="text"
    ),
    NoRegionsError: Kind("no-regions", "The model has no regions", _UNPROCESSABLE),
    QueueFullError: BUSY,
    DecodersBusyError: BUSY,
    EncodingTimeoutError: ENCODED_LATE,
    DecodingTimeoutError: ENCODED_LATE,
    QueueClosedError: REPLACED,
    DecodersClosedError: REPLACED,
    DecoderStartError: Kind(
        "decoding-unavailable", "Images cannot be decoded now", _UNAVAILABLE, retry_after_s=1
    ),
    EncoderLostError: replace(
        REPLACED,
        detail="The process that encodes was lost and is replaced; try again in a moment.",
        retry_after_s=2,
    ),
    EncoderLoadingError: Kind(
        "encoder-loading", "The encoder is being loaded", _UNAVAILABLE, retry_after_s=2
    ),
    EncoderMemoryError: Kind(
        "encoder-out-of-memory", "The encoder has too little memory", _UNAVAILABLE, retry_after_s=5
    ),
    InvalidTextError: Kind("invalid-text", "The text is not valid", _UNPROCESSABLE, field="text"),
    EncodingFailedError: Kind("encoding-failed", "The encoder failed", _DEFECTIVE),
    # The log has its reason once for each try, not for each request.
    EncoderBrokenError: Kind(
        "encoder-unavailable", "The encoder cannot be loaded", _UNAVAILABLE, retry_after_s=10
    ),
    BundleError: Kind(
        "encoder-unavailable",
        "The encoder cannot be loaded",
        _UNAVAILABLE,
        detail="The collection's encoder cannot be loaded; the service's log has the reason.",
    ),
    errors.CatalogueError: Kind(
        "catalogue-unavailable",
        "The catalogue cannot be read",
        _UNAVAILABLE,
        detail="The catalogue cannot be read; the service's log has the reason.",
        retry_after_s=2,
    ),
    errors.CatalogueBusyError: Kind(
        "catalogue-busy",
        "Another process writes to the catalogue",
        _UNAVAILABLE,
        detail="Another process is writing to the catalogue; nothing was written: send the request again.",
        retry_after_s=2,
    ),
    errors.CatalogueTimeoutError: Kind(
        "catalogue-timeout",
        "The catalogue took too long",
        HTTPStatus.GATEWAY_TIMEOUT,
        detail="The catalogue took too long to answer and was not waited for: ask for less, or try again.",
        retry_after_s=2,
    ),
    errors.HomeError: Kind(
        "home-moved",
        "The home folder was moved or replaced",
        _UNAVAILABLE,
        detail="The service's home folder is not where it was, and nothing was written; its log has more.",
        retry_after_s=30,
    ),
    errors.UnknownGenerationError: Kind("unknown-generation", "There is no such generation", _NOT_FOUND),
    errors.IncompleteGenerationError: Kind(
        "incomplete-generation", "The generation is not complete", _CONFLICT
    ),
    errors.GenerationError: Kind(
        "generation-replaced",
        "The index was replaced meanwhile",
        _CONFLICT,
        detail="The generation that this search began with is no longer searched; search again.",
    ),
    errors.ViewError: Kind(
        "vectors-damaged",
        "The vectors are read again",
        _UNAVAILABLE,
        detail="The file of the collection's vectors was damaged; they are read from the catalogue again.",
        retry_after_s=2,
    ),
    errors.UnknownJobError: Kind("unknown-job", "There is no such job", _NOT_FOUND),
    errors.JobExistsError: Kind("job-exists", "A job for this collection is already running", _CONFLICT),
    errors.CollectionInUseError: Kind("collection-in-use", "The collection is in use", _CONFLICT),
    errors.JobStateError: Kind("job-ended", "The job has ended", _CONFLICT),
    errors.StoreError: Kind(
        "image-file-unavailable",
        "The image's file cannot be read",
        _DEFECTIVE,
        detail="The file of an image is missing or damaged; the service's log has the reason.",
    ),
    errors.StoreWriteError: Kind(
        "file-not-written",
        "A file cannot be written",
        _DEFECTIVE,
        detail="The disk of the service does not take a file, or does not let go of one; "
        "the service's log has the reason.",
    ),
    errors.FeedbackFullError: Kind(
        "feedback-full",
        "The collection keeps no more judgements",
        _CONFLICT,
        detail="The collection has as many judgements as it keeps: the service's operator can remove them "
        "or allow more.",
    ),
    errors.UnknownCaseListError: Kind("unknown-case-list", "There is no such list of cases", _NOT_FOUND),
    errors.CaseListExistsError: Kind(
        "case-list-exists", "The list of cases already exists", _CONFLICT, field="name"
    ),
    errors.CasesFullError: Kind("cases-full", "No more cases are kept here", _CONFLICT),
    errors.CollectionNameError: Kind("invalid-name", "The name is not valid", _UNPROCESSABLE, field="name"),
    errors.CollectionExistsError: Kind(
        "collection-exists", "There is such a collection", _CONFLICT, field="name"
    ),
    errors.AliasNameError: Kind("invalid-name", "The name is not valid", _UNPROCESSABLE, field="alias"),
    errors.AliasTakenError: Kind("collection-exists", "There is such a collection", _CONFLICT, field="alias"),
    errors.UnknownAliasError: Kind("unknown-alias", "There is no such alias", _NOT_FOUND),
    errors.AliasLimitError: Kind("too-many-aliases", "There are too many aliases", _CONFLICT),
    errors.KeyScopeError: Kind("keys-of-name", "Keys have roles in this name", _CONFLICT, field="name"),
    errors.UnknownModelError: Kind("unknown-model", "There is no such model", _UNPROCESSABLE, field="model"),
    errors.UnregisteredModelError: Kind("unregistered-model", "There is no such model", _NOT_FOUND),
    errors.StaleWriteError: Kind("changed-meanwhile", "Somebody else changed it", _CONFLICT, retry_after_s=1),
    errors.UnexpectedCountError: Kind(
        "unexpected-count", "The filter finds another number of images", _CONFLICT
    ),
    errors.ConditionError: Kind(
        "precondition-failed", "The condition of the request does not hold", HTTPStatus.PRECONDITION_FAILED
    ),
    errors.KeyInUseError: Kind(
        "request-in-progress", "The first request is still being answered", _CONFLICT, retry_after_s=1
    ),
    errors.KeyReusedError: Kind(
        "idempotency-key-reused", "The key was sent with another request", _UNPROCESSABLE
    ),
    errors.DiskFullError: Kind(
        "disk-full",
        "The disk is full",
        HTTPStatus.INSUFFICIENT_STORAGE,
        detail="The disk of the service is full, so nothing was written; searches continue. Free some space "
        "there and send it again.",
    ),
    RecoquestError: DEFECT,
}


# Failed writes and failed reads have words of their own.
_UNWRITABLE = replace(
    KINDS[errors.CatalogueError],
    title="The catalogue cannot be written",
    detail="The catalogue cannot be written; the service's log has the reason.",
)
_NO_SPACE_TO_READ = replace(
    KINDS[errors.DiskFullError],
    detail="The disk of the service is full, so the catalogue cannot be read. Free some space there and "
    "send it again.",
)


def kind_of(error: Exception) -> Kind:
    """Return the kind of problem that an error is."""
    kind = next(KINDS[cls] for cls in type(error).__mro__ if cls in KINDS)
    # Errors that wait or time out have kinds of their own, for reads as for writes.
    if isinstance(error, errors.CatalogueError) and error.writing and kind is KINDS[errors.CatalogueError]:
        return _UNWRITABLE
    if isinstance(error, errors.DiskFullError) and not error.writing:
        return _NO_SPACE_TO_READ
    if isinstance(error, errors.UnknownCollectionError):
        # The error's own words list collections that the caller may not know.
        name = shortened(error.collection)
        return replace(
            kind,
            detail=f"There is no collection {name!r}: GET /v1/collections lists those that you may read.",
        )
    return kind


FRAMEWORK_KINDS = {
    HTTPStatus.NOT_FOUND: Kind(
        "not-found",
        "There is nothing here",
        HTTPStatus.NOT_FOUND,
        detail="Nothing is at this address; /docs lists every path.",
    ),
    HTTPStatus.METHOD_NOT_ALLOWED: Kind(
        "method-not-allowed",
        "The method is not taken here",
        HTTPStatus.METHOD_NOT_ALLOWED,
        detail="This address does not take this method; /docs lists what it takes.",
    ),
    TOO_LARGE.status: TOO_LARGE,
    BUSY.status: BUSY,
}


# More help nobody, and there can be hundreds of thousands.
_MAX_ERRORS: Final = 8
_MAX_MESSAGE_LENGTH: Final = 400
_ANOTHER_FORM: Final = "It is not of the form that is described in /docs."
# Errors that validators of the service raise have the type `value_error` and the validator's words.
_OF_PYDANTIC: Final = frozenset(get_args(ErrorType)) - {"value_error"}
# Our messages for callers, which replace those of pydantic, each with the errors that it describes.
_ERRORS: Final[Mapping[str, Sequence[str]]] = {
    "This is not JSON: {error}.": ("json_invalid",),
    "It is missing.": ("missing",),
    "It is unknown.": ("extra_forbidden",),
    "It must be a whole number.": ("int_parsing", "int_type", "int_from_float"),
    "It must be a text.": ("string_type",),
    "There is nothing in it.": ("string_too_short",),
    "It may have at most {max_length} characters.": ("string_too_long",),
    "It must be a number.": ("float_type", "float_parsing"),
    "It must be true or false.": ("bool_type", "bool_parsing"),
    "It must be a list.": ("list_type", "set_type", "tuple_type"),
    "It must be a JSON object.": ("dict_type", "model_type", "model_attributes_type"),
    "It must be {expected}.": ("literal_error",),
    "It must be greater than {gt}.": ("greater_than",),
    "It must be less than {lt}.": ("less_than",),
    "It must be at least {ge}.": ("greater_than_equal",),
    "It must be at most {le}.": ("less_than_equal",),
    "{actual_length} are too few; send at least {min_length}.": ("too_short",),
    "{actual_length} are too many; send at most {max_length}.": ("too_long",),
    "It must be a finite number.": ("finite_number",),
    "It is too large a number.": ("int_parsing_size",),
    "It is not text in Unicode.": ("string_unicode",),
    "It must be null.": ("none_required",),
    "It must be bytes.": ("bytes_type",),
    "It must be a day such as 2026-01-31.": (
        "date_type",
        "date_parsing",
        "date_from_datetime_parsing",
        "date_from_datetime_inexact",
    ),
    "It must be a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z.": (
        "datetime_type",
        "datetime_parsing",
        "datetime_from_date_parsing",
        "datetime_object_invalid",
    ),
    "Its {discriminator} must be one of {expected_tags}.": ("union_tag_invalid",),
    "Its {discriminator} is missing.": ("union_tag_not_found",),
}
_SENTENCES: Final = {error: sentence for sentence, errors in _ERRORS.items() for error in errors}


class FieldError(BaseModel):
    """Error of one field of a request."""

    field: str
    message: str


def field_errors(errors: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """Describe the first fields that pydantic rejects, without repeating their values."""
    return [
        FieldError(field=_name(error["loc"]), message=shortened(sentence(error), _MAX_MESSAGE_LENGTH))
        for error in errors[:_MAX_ERRORS]
    ]


def describe_errors(errors: Sequence[FieldError], more: int = 0) -> str:
    """Several wrong fields in one sentence; `more` are wrong as well."""
    parts = [f"{error.field}: {error.message}" for error in errors]
    if more:
        parts.append(f"and {more:,} more.")
    return "; ".join([*(part.removesuffix(".") for part in parts[:-1]), *parts[-1:]])


def sentence(error: Mapping[str, Any]) -> str:
    """Describe why pydantic rejects a value, without repeating it."""
    if error["type"] in _SENTENCES:
        return _SENTENCES[error["type"]].format_map(error.get("ctx", {}))
    if error["type"] in _OF_PYDANTIC:
        return _ANOTHER_FORM
    return str(error["msg"]).removeprefix("Value error, ")


def _name(location: Sequence[str | int]) -> str:
    if location[:1] in (("body",), ("query",), ("path",)) and len(location) > 1:
        location = location[1:]
    if isinstance(location[0], int):
        return "body"
    return shortened(".".join(shortened(str(part)) for part in location), _MAX_MESSAGE_LENGTH)


# Some errors quote the request, or list names of the catalogue.
_MAX_DETAIL_LENGTH: Final = 4_000
MEDIA_TYPE = "application/problem+json"

_log = structlog.stdlib.get_logger(__name__)


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    type: str = Field(
        description="Names the kind of problem; stable.", examples=["urn:recoquest:unknown-image"]
    )
    title: str = Field(description="The kind of problem in words.")
    status: int
    detail: str = Field(description="Explanation of this error, and a remedy.")
    help: str = Field(
        description="Path on this server of what it means and what to do.",
        examples=["/docs/problems#unknown-image"],
    )
    request_id: str | None = Field(default=None, description="Finds the request in the service's log.")
    errors: list[FieldError] = Field(default_factory=list, description="Errors of single fields.")


class RequestError(RecoquestError):
    """A request that cannot be answered as it is; carries its own kind of problem."""

    def __init__(self, kind: Kind, detail: str, *, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.kind = kind
        self.errors = list(errors)


def invalid(field: str, message: str, kind: Kind = INVALID) -> RequestError:
    """The error that names one wrong field."""
    return RequestError(kind, message, errors=[FieldError(field=shortened(field), message=message)])


def problem_of(request: Request, error: RequestError) -> Problem:
    """Return the document of an error, for an answer that has begun already."""
    return _document(error.kind, str(error), request.scope, error.errors)


def _document(kind: Kind, detail: str, scope: Mapping[str, Any], errors: Sequence[FieldError]) -> Problem:
    return Problem(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail=kind.detail or shortened(detail, _MAX_DETAIL_LENGTH),
        help=f"{root_of(scope)}/docs/problems#{kind.slug}",
        request_id=scope.get("state", {}).get("request_id"),
        errors=list(errors),
    )


def problem_response(
    kind: Kind,
    detail: str,
    *,
    scope: Mapping[str, Any],
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Make the response that describes a problem with the request of this scope."""
    document = _document(kind, detail, scope, errors)
    all_headers = dict(headers or {})
    if kind.retry_after_s is not None:
        all_headers["Retry-After"] = str(kind.retry_after_s)
    if kind.authenticate is not None:
        all_headers["WWW-Authenticate"] = kind.authenticate
    return JSONResponse(
        document.model_dump(), status_code=kind.status, media_type=MEDIA_TYPE, headers=all_headers
    )


def raw_answer(answer: Response) -> bytes:
    """The bytes of a complete HTTP/1.1 response, for answers before there is a request."""
    head = [f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()]
    head += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join([*head, b"", bytes(answer.body)])


def problem_responses(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Declare in the OpenAPI description which problems a route answers with."""
    return {int(status): {"model": Problem, "description": status.phrase} for status in statuses}


def install_problems(app: FastAPI) -> None:
    """Let every error of the application become a problem document."""
    for kind in (RecoquestError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _answer_and_let_go)


async def _answer_and_let_go(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, RequestValidationError):
        response = _answer_validation_error(request, error)
    elif isinstance(error, HTTPException):
        response = _answer_http_exception(request, error)
    else:
        response = answer_recoquest_error(request, error)
    let_go(error)
    return response


def answer_recoquest_error(request: Request, error: Exception) -> JSONResponse:
    """Look the error's type up in the table."""
    if isinstance(error, RequestError):
        return problem_response(error.kind, str(error), scope=request.scope, errors=error.errors)
    kind = kind_of(error)
    if kind.detail is not None and kind.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # The words of a defect may quote the request.
        reason = {} if kind is DEFECT else {"reason": str(error)}
        _log.error(kind.slug, error=type(error).__name__, at=where(error), **reason)
    field = _field_of(error, kind)
    message = shortened(str(error), _MAX_DETAIL_LENGTH)
    errors = [FieldError(field=field, message=message)] if field is not None else []
    current = error.revision if isinstance(error, ConditionError) else None
    headers = {} if current is None else {"ETag": etag_of(current)}
    return problem_response(kind, str(error), scope=request.scope, errors=errors, headers=headers)


def _answer_validation_error(request: Request, error: RequestValidationError) -> JSONResponse:
    """Name the wrong fields."""
    content_type = request.headers.get("content-type", "")
    if isinstance(error.body, bytes) and "json" not in content_type:
        return problem_response(UNSUPPORTED, "Send the body as application/json.", scope=request.scope)
    details = error.errors()
    errors = field_errors(details)
    detail = describe_errors(errors, more=len(details) - len(errors))
    return problem_response(INVALID, detail, scope=request.scope, errors=errors)


def _answer_http_exception(request: Request, error: HTTPException) -> JSONResponse:
    """Errors of the framework: no such path, wrong method, unreadable body."""
    status = HTTPStatus(error.status_code)
    slug = status.phrase.lower().replace(" ", "-")
    kind = FRAMEWORK_KINDS.get(status, Kind(slug, status.phrase, status))
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names those of the first route that has this address.
        headers["Allow"] = ", ".join(allowed_methods(request.app, request.scope))
    return problem_response(kind, error.detail, scope=request.scope, headers=headers)


def _field_of(error: Exception, kind: Kind) -> str | None:
    named = getattr(error, "field", None)
    if not isinstance(named, str) or not named or named == kind.field:
        return kind.field
    return named if kind.field is None else f"{kind.field}.{shortened(named)}"
