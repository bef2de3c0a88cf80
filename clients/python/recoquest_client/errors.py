"""Errors that the client raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

URN = "urn:recoquest:"
_MAX_EXCERPT = 200


class RecoquestError(Exception):
    """Base of the client's errors."""


class UnreachableError(RecoquestError):
    """The service gave no answer: it cannot be reached, or the connection broke too often."""


class AnswerError(RecoquestError):
    """An answer is not one of recoquest, as behind a proxy that asks for a password."""


@dataclass(frozen=True)
class FieldError:
    """Error of one field of a request."""

    field: str
    message: str


class ProblemError(RecoquestError):
    """The service refused a request, and says why (RFC 9457).

    Attributes:
        type: Kind of problem, such as `urn:recoquest:unknown-image`; `about:blank` where none was named.
        title: The kind in words.
        status: Status of the answer.
        detail: Explanation and remedy.
        errors: Errors of single fields.
        help: Path of the explanation on the service; None where none was named.
        request_id: Finds the request in the service's log.
        etag: Present ETag of the image, where a condition did not hold.
    """

    def __init__(self, document: Mapping[str, Any], status: int, *, etag: str | None = None) -> None:
        self.status = status
        self.type = str(document.get("type") or "about:blank")
        self.title = str(document.get("title") or f"Status {status}")
        self.detail = str(document.get("detail") or self.title)
        found = document.get("errors")
        self.errors = tuple(
            FieldError(str(error.get("field")), str(error.get("message")))
            for error in (found if isinstance(found, list) else [])
            if isinstance(error, Mapping)
        )
        self.help = _text(document.get("help"))
        self.request_id = _text(document.get("request_id"))
        self.etag = etag
        super().__init__(self.detail)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it pass between processes."""
        return _restored, (type(self), self.__dict__)


class NotFoundError(ProblemError):
    """The collection, image, job or model is not there."""


class AccessError(ProblemError):
    """The key is missing, does not hold, or lacks the role."""


class PreconditionError(ProblemError):
    """The image is not as its ETag says: somebody else changed it. `etag` is the present one."""


class BusyError(ProblemError):
    """The service is busy or not ready, and was so at every attempt."""


_KINDS: dict[int, type[ProblemError]] = {
    401: AccessError,
    403: AccessError,
    404: NotFoundError,
    412: PreconditionError,
    429: BusyError,
    503: BusyError,
}


def problem_from(document: object, status: int, *, text: str = "", etag: str | None = None) -> ProblemError:
    """Make the error of a problem document, or of any other refusal.

    Args:
        document: JSON of the answer; None where it has none.
        status: Status of the answer.
        text: Body of an answer without JSON.
        etag: ETag of the answer.
    """
    if not isinstance(document, Mapping):
        excerpt = " ".join(text.split())[:_MAX_EXCERPT]
        document = {"detail": f"The service, or a proxy before it, answered {status}: {excerpt or 'no text'}"}
    return _KINDS.get(status, ProblemError)(document, status, etag=etag)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _restored(kind: type[ProblemError], state: Mapping[str, Any]) -> ProblemError:
    error = kind({"detail": state["detail"]}, state["status"])
    error.__dict__.update(state)
    return error
