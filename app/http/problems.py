"""Errors as RFC 9457 problem documents: which error gives which status, in one table."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from app.decoding.process import DecoderStartError
from app.encoding import (
    EncoderLostError,
    EncoderMemoryError,
    EncodingFailedError,
    EncodingTimeoutError,
    InvalidTextError,
    QueueClosedError,
    QueueFullError,
)
from app.encoding.pool import EncoderBrokenError, EncoderLoadingError
from app.http.field_errors import FieldError, describe_errors, field_errors
from app.http.methods import allowed_methods
from app.observability.logging import where
from app.observability.tracebacks import let_go
from index.errors import (
    CatalogueBusyError,
    CatalogueError,
    CatalogueTimeoutError,
    CollectionExistsError,
    CollectionNameError,
    CursorError,
    DiskFullError,
    FeedbackFullError,
    FilterError,
    GenerationError,
    HomeError,
    IncompleteGenerationError,
    JobExistsError,
    JobStateError,
    NoActiveGenerationError,
    QueryError,
    StaleWriteError,
    StoreError,
    StoreWriteError,
    UnknownCollectionError,
    UnknownGenerationError,
    UnknownImageError,
    UnknownJobError,
    UnknownModelError,
    UnregisteredModelError,
    ViewError,
    shortened,
)
from training.errors import (
    BundleError,
    ImageError,
    ImageTooLargeError,
    MissingModalityError,
    RecoquestError,
)

# Some errors quote the request, or list names of the catalogue.
_LONGEST: Final = 4_000
MEDIA_TYPE = "application/problem+json"

_Answer = Callable[[Request, Exception], Awaitable[JSONResponse]]

_log = structlog.stdlib.get_logger(__name__)


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(
        description="Names the kind of problem; stable.", examples=["urn:recoquest:unknown-image"]
    )
    title: str = Field(description="The kind of problem in words.")
    status: int
    detail: str = Field(description="What is wrong here and what to do.")
    request_id: str | None = Field(default=None, description="Finds the request in the service's log.")
    errors: list[FieldError] = Field(default_factory=list, description="Which fields are wrong, and how.")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem.

    Attributes:
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


class RequestError(RecoquestError):
    """A request that cannot be answered as it is; carries its own kind of problem."""

    def __init__(self, kind: Kind, detail: str, *, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.kind = kind
        self.errors = list(errors)


INVALID = Kind("invalid-request", "The request is not valid", HTTPStatus.UNPROCESSABLE_ENTITY)
TOO_LARGE = Kind("content-too-large", "The request is too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
UNSUPPORTED = Kind(
    "unsupported-media-type", "The content type is not supported", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
)
NOT_READY = Kind("not-ready", "The service is not ready", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=1)
BUSY = Kind("too-many-requests", "The service is busy", HTTPStatus.TOO_MANY_REQUESTS, retry_after_s=1)
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

KINDS: Mapping[type[RecoquestError], Kind] = {
    UnknownCollectionError: Kind("unknown-collection", "There is no such collection", HTTPStatus.NOT_FOUND),
    UnknownImageError: Kind("unknown-image", "There is no such image", HTTPStatus.NOT_FOUND),
    NoActiveGenerationError: Kind(
        "nothing-indexed", "The collection cannot be searched yet", HTTPStatus.CONFLICT
    ),
    QueryError: INVALID,
    FilterError: Kind("invalid-filter", "The filter is not valid", INVALID.status, field="filter"),
    CursorError: Kind("invalid-cursor", "The cursor is not valid", INVALID.status, field="cursor"),
    ImageTooLargeError: Kind("image-too-large", "The image is too large", TOO_LARGE.status, field="image"),
    ImageError: Kind("not-an-image", "The file is not a usable image", UNSUPPORTED.status, field="image"),
    MissingModalityError: Kind(
        "no-text-search", "The collection cannot be searched by text", INVALID.status, field="text"
    ),
    QueueFullError: BUSY,
    EncodingTimeoutError: Kind("encoding-timeout", "Encoding took too long", HTTPStatus.GATEWAY_TIMEOUT),
    QueueClosedError: Kind(
        "encoder-replaced", "The encoder is being replaced", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=1
    ),
    DecoderStartError: Kind(
        "decoding-unavailable",
        "Images cannot be decoded now",
        HTTPStatus.SERVICE_UNAVAILABLE,
        retry_after_s=1,
    ),
    EncoderLostError: Kind(
        "encoder-replaced",
        "The encoder is being replaced",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="The process that encodes was lost and is replaced; try again in a moment.",
        retry_after_s=2,
    ),
    EncoderLoadingError: Kind(
        "encoder-loading", "The encoder is being loaded", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=2
    ),
    EncoderMemoryError: Kind(
        "encoder-out-of-memory",
        "The encoder has too little memory",
        HTTPStatus.SERVICE_UNAVAILABLE,
        retry_after_s=5,
    ),
    InvalidTextError: Kind("invalid-text", "The text is not valid", INVALID.status, field="text"),
    EncodingFailedError: Kind("encoding-failed", "The encoder failed", HTTPStatus.INTERNAL_SERVER_ERROR),
    # The log has its reason once for each try, not for each request.
    EncoderBrokenError: Kind(
        "encoder-unavailable",
        "The encoder cannot be loaded",
        HTTPStatus.SERVICE_UNAVAILABLE,
        retry_after_s=10,
    ),
    BundleError: Kind(
        "encoder-unavailable",
        "The encoder cannot be loaded",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="The collection's encoder cannot be loaded; the service's log has the reason.",
    ),
    CatalogueError: Kind(
        "catalogue-unavailable",
        "The catalogue cannot be read",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="The catalogue cannot be read; the service's log has the reason.",
        retry_after_s=2,
    ),
    CatalogueBusyError: Kind(
        "catalogue-busy",
        "Another process writes to the catalogue",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="Another process is writing to the catalogue; nothing was written: send the request again.",
        retry_after_s=2,
    ),
    CatalogueTimeoutError: Kind(
        "catalogue-timeout",
        "The catalogue took too long",
        HTTPStatus.GATEWAY_TIMEOUT,
        detail="The catalogue took too long to answer and was not waited for: ask for less, or try again.",
        retry_after_s=2,
    ),
    HomeError: Kind(
        "home-moved",
        "The home folder was moved or replaced",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="The service's home folder is not where it was, and nothing was written; its log has more.",
        retry_after_s=30,
    ),
    UnknownGenerationError: Kind("unknown-generation", "There is no such generation", HTTPStatus.NOT_FOUND),
    IncompleteGenerationError: Kind(
        "incomplete-generation", "The generation is not complete", HTTPStatus.CONFLICT
    ),
    GenerationError: Kind(
        "generation-replaced",
        "The index was replaced meanwhile",
        HTTPStatus.CONFLICT,
        detail="The generation that this search began with is no longer searched; search again.",
    ),
    ViewError: Kind(
        "vectors-damaged",
        "The vectors are read again",
        HTTPStatus.SERVICE_UNAVAILABLE,
        detail="The file of the collection's vectors was damaged; they are read from the catalogue again.",
        retry_after_s=2,
    ),
    UnknownJobError: Kind("unknown-job", "There is no such job", HTTPStatus.NOT_FOUND),
    JobExistsError: Kind("job-exists", "There is such a job", HTTPStatus.CONFLICT),
    JobStateError: Kind("job-ended", "The job has ended", HTTPStatus.CONFLICT),
    StoreError: Kind(
        "image-file-unavailable",
        "The image's file cannot be read",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        detail="The file of an image is missing or damaged; the service's log has the reason.",
    ),
    StoreWriteError: Kind(
        "file-not-written",
        "A file cannot be written",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        detail="The disk of the service does not take a file, or does not let go of one; "
        "the service's log has the reason.",
    ),
    FeedbackFullError: Kind(
        "feedback-full",
        "The collection keeps no more judgements",
        HTTPStatus.CONFLICT,
        detail="The collection has as many judgements as it keeps: whoever runs the service can remove them "
        "or allow more.",
    ),
    CollectionNameError: Kind("invalid-name", "The name is not valid", INVALID.status, field="name"),
    CollectionExistsError: Kind(
        "collection-exists", "There is such a collection", HTTPStatus.CONFLICT, field="name"
    ),
    UnknownModelError: Kind("unknown-model", "There is no such model", INVALID.status, field="model"),
    UnregisteredModelError: Kind("unregistered-model", "There is no such model", HTTPStatus.NOT_FOUND),
    StaleWriteError: Kind(
        "changed-meanwhile", "Somebody else changed it", HTTPStatus.CONFLICT, retry_after_s=1
    ),
    DiskFullError: Kind(
        "disk-full",
        "The disk is full",
        HTTPStatus.INSUFFICIENT_STORAGE,
        detail="The disk of the service is full, so nothing was written; searches go on. Free some space "
        "there and send it again.",
    ),
    RecoquestError: DEFECT,
}


# Failed writes and failed reads have words of their own.
_UNWRITABLE = replace(
    KINDS[CatalogueError],
    title="The catalogue cannot be written",
    detail="The catalogue cannot be written; the service's log has the reason.",
)
_NO_SPACE_TO_READ = replace(
    KINDS[DiskFullError],
    detail="The disk of the service is full, so the catalogue cannot be read. Free some space there and "
    "send it again.",
)


def problem_response(
    kind: Kind,
    detail: str,
    *,
    request_id: str | None,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Make the answer that tells of a problem."""
    document = Problem(
        type=f"urn:recoquest:{kind.slug}",
        title=kind.title,
        status=kind.status,
        detail=kind.detail or shortened(detail, _LONGEST),
        request_id=request_id,
        errors=list(errors),
    )
    all_headers = dict(headers or {})
    if kind.retry_after_s is not None:
        all_headers["Retry-After"] = str(kind.retry_after_s)
    if kind.authenticate is not None:
        all_headers["WWW-Authenticate"] = kind.authenticate
    return JSONResponse(
        document.model_dump(), status_code=kind.status, media_type=MEDIA_TYPE, headers=all_headers
    )


def problem_responses(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Declare in the OpenAPI description which problems a route answers with."""
    return {int(status): {"model": Problem, "description": status.phrase} for status in statuses}


def install_problems(app: FastAPI) -> None:
    """Let every error of the application become a problem document."""
    app.add_exception_handler(RecoquestError, partial(_answer_and_let_go, answer_recoquest_error))
    app.add_exception_handler(RequestValidationError, partial(_answer_and_let_go, answer_validation_error))
    app.add_exception_handler(HTTPException, partial(_answer_and_let_go, answer_http_exception))


async def _answer_and_let_go(answer: _Answer, request: Request, error: Exception) -> JSONResponse:
    response = await answer(request, error)
    let_go(error)
    return response


async def answer_recoquest_error(request: Request, error: Exception) -> JSONResponse:
    """Look the error's type up in the table."""
    if isinstance(error, RequestError):
        return problem_response(error.kind, str(error), request_id=_request_id(request), errors=error.errors)
    kind = _kind_of(error)
    if kind.detail is not None and kind.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log_reason(error, kind)
    field = _field_of(error, kind)
    message = shortened(str(error), _LONGEST)
    errors = [FieldError(field=field, message=message)] if field is not None else []
    return problem_response(kind, str(error), request_id=_request_id(request), errors=errors)


def _kind_of(error: Exception) -> Kind:
    kind = next(KINDS[cls] for cls in type(error).__mro__ if cls in KINDS)
    # Errors that wait or time out have kinds of their own, for reads as for writes.
    if isinstance(error, CatalogueError) and error.writing and kind is KINDS[CatalogueError]:
        return _UNWRITABLE
    if isinstance(error, DiskFullError) and not error.writing:
        return _NO_SPACE_TO_READ
    return kind


async def answer_validation_error(request: Request, error: Exception) -> JSONResponse:
    """Name the wrong fields."""
    assert isinstance(error, RequestValidationError)
    content_type = request.headers.get("content-type", "")
    if isinstance(error.body, bytes) and "json" not in content_type:
        return problem_response(
            UNSUPPORTED, "Send the body as application/json.", request_id=_request_id(request)
        )
    found = error.errors()
    errors = field_errors(found)
    detail = describe_errors(errors, more=len(found) - len(errors))
    return problem_response(INVALID, detail, request_id=_request_id(request), errors=errors)


async def answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Errors of the framework: no such path, wrong method, unreadable body."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    slug = status.phrase.lower().replace(" ", "-")
    kind = _FRAMEWORK_KINDS.get(status, Kind(slug, status.phrase, status))
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names those of the first route that has this address.
        headers["Allow"] = ", ".join(allowed_methods(request.app, request.scope))
    return problem_response(kind, error.detail, request_id=_request_id(request), headers=headers)


_FRAMEWORK_KINDS = {
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


def _log_reason(error: Exception, kind: Kind) -> None:
    """Tell the log what the answer keeps from the caller; not the words of a defect, which may quote them."""
    reason = {} if kind is DEFECT else {"reason": str(error)}
    _log.error(kind.slug, error=type(error).__name__, at=where(error), **reason)


def _request_id(request: Request) -> str | None:
    value = request.scope.get("state", {}).get("request_id")
    return value if isinstance(value, str) else None


def _field_of(error: Exception, kind: Kind) -> str | None:
    named = getattr(error, "field", None)
    if not isinstance(named, str) or not named or named == kind.field:
        return kind.field
    return named if kind.field is None else f"{kind.field}.{shortened(named)}"
