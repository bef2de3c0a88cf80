"""Errors as RFC 9457 problem documents."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from app.edge.http.addresses import root_of
from app.edge.http.etags import etag_of
from app.edge.http.field_errors import FieldError, describe_errors, field_errors
from app.edge.http.methods import allowed_methods
from app.edge.http.problem_kinds import (
    DEFECT,
    FRAMEWORK_KINDS,
    INVALID,
    UNSUPPORTED,
    Kind,
    help_of,
    kind_of,
    type_of,
)
from app.edge.observability.logging import where
from app.edge.observability.tracebacks import let_go
from index.errors import ConditionError, shortened
from training.common.errors import RecoquestError

# Some errors quote the request, or list names of the catalogue.
_MAX_DETAIL_LENGTH: Final = 4_000
MEDIA_TYPE = "application/problem+json"

_Answer = Callable[[Request, Exception], Awaitable[JSONResponse]]

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


def problem_of(request: Request, error: RequestError) -> Problem:
    """Return the document of an error, for an answer that has begun already."""
    return _document(error.kind, str(error), request.scope, error.errors)


def _document(kind: Kind, detail: str, scope: Mapping[str, Any], errors: Sequence[FieldError]) -> Problem:
    return Problem(
        type=type_of(kind),
        title=kind.title,
        status=kind.status,
        detail=kind.detail or shortened(detail, _MAX_DETAIL_LENGTH),
        help=root_of(scope) + help_of(kind),
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
    """Make the answer that tells of a problem with the request of this scope."""
    document = _document(kind, detail, scope, errors)
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
        return problem_response(error.kind, str(error), scope=request.scope, errors=error.errors)
    kind = kind_of(error)
    if kind.detail is not None and kind.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log_reason(error, kind)
    field = _field_of(error, kind)
    message = shortened(str(error), _MAX_DETAIL_LENGTH)
    errors = [FieldError(field=field, message=message)] if field is not None else []
    current = error.revision if isinstance(error, ConditionError) else None
    headers = {} if current is None else {"ETag": etag_of(current)}
    return problem_response(kind, str(error), scope=request.scope, errors=errors, headers=headers)


async def answer_validation_error(request: Request, error: Exception) -> JSONResponse:
    """Name the wrong fields."""
    assert isinstance(error, RequestValidationError)
    content_type = request.headers.get("content-type", "")
    if isinstance(error.body, bytes) and "json" not in content_type:
        return problem_response(UNSUPPORTED, "Send the body as application/json.", scope=request.scope)
    found = error.errors()
    errors = field_errors(found)
    detail = describe_errors(errors, more=len(found) - len(errors))
    return problem_response(INVALID, detail, scope=request.scope, errors=errors)


async def answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Errors of the framework: no such path, wrong method, unreadable body."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    slug = status.phrase.lower().replace(" ", "-")
    kind = FRAMEWORK_KINDS.get(status, Kind(slug, status.phrase, status))
    headers = dict(error.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names those of the first route that has this address.
        headers["Allow"] = ", ".join(allowed_methods(request.app, request.scope))
    return problem_response(kind, error.detail, scope=request.scope, headers=headers)


def _log_reason(error: Exception, kind: Kind) -> None:
    """Tell the log what the answer keeps from the caller; not the words of a defect, which may quote them."""
    reason = {} if kind is DEFECT else {"reason": str(error)}
    _log.error(kind.slug, error=type(error).__name__, at=where(error), **reason)


def _field_of(error: Exception, kind: Kind) -> str | None:
    named = getattr(error, "field", None)
    if not isinstance(named, str) or not named or named == kind.field:
        return kind.field
    return named if kind.field is None else f"{kind.field}.{shortened(named)}"
