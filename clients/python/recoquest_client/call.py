"""Requests as both clients send them, and how their answers are read."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx2

from recoquest_client.decoding import decode
from recoquest_client.errors import AnswerError, ProblemError, problem_from
from recoquest_client.files import ImageFile, OpenedFiles

KEY_VARIABLE = "RECOQUEST_KEY"
# Loading an encoder, embedding what a generation lacks, and removing a large collection take their time.
LONG_TIMEOUT = 600.0

_T = TypeVar("_T")
_A = TypeVar("_A")


@dataclass(frozen=True)
class Call(Generic[_T]):
    """A request and the reading of its answer.

    Attributes:
        operation: Its name in the service's OpenAPI document.
        path: Template of its path, as in that document.
        read: Makes the result of a good answer.
        names: Values of the path's parameters.
        params: Parameters of the query string; None are left out.
        body: JSON body.
        form: Texts of a form, beside `files`.
        files: Image files of a form, by the field's name.
        headers: Further headers.
        is_repeatable: Whether it may be sent twice without harm.
        timeout: Seconds that it may take, if longer than the client's.
        on_sent: Takes the number of bytes of files that were sent.
    """

    operation: str
    method: str
    path: str
    read: Callable[[httpx2.Response], _T]
    names: Mapping[str, str | int] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    form: Mapping[str, str] | None = None
    files: Sequence[tuple[str, ImageFile]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeatable: bool = False
    timeout: float | None = None
    on_sent: Callable[[int], None] | None = None

    @property
    def url(self) -> str:
        """Path with its parameters, each percent-encoded."""
        return self.path.format_map({name: quote(str(value), safe="") for name, value in self.names.items()})

    def opened(self) -> OpenedFiles:
        """Open its files, anew for each attempt; a context."""
        return OpenedFiles(self.files, self.on_sent)

    def arguments(self, files: OpenedFiles, timeout: float) -> dict[str, Any]:
        """Return arguments of httpx2's `build_request`."""
        given: dict[str, Any] = {
            "method": self.method,
            "url": self.url,
            "params": {name: value for name, value in self.params.items() if value is not None},
            "headers": dict(self.headers),
            "timeout": max(timeout, self.timeout or 0),
        }
        if self.form is not None:
            # The same in each attempt, so that the body is.
            boundary = self.headers.get("Idempotency-Key") or uuid.uuid4().hex
            given["headers"]["Content-Type"] = f"multipart/form-data; boundary={boundary}"
            given |= {"data": self.form, "files": files.parts}
        elif self.body is not None:
            given["json"] = self.body
        return given

    def result(self, response: httpx2.Response) -> _T:
        """Read an answer.

        Raises:
            ProblemError: The service refused the request.
            AnswerError: The answer is not one of recoquest.
        """
        if not response.is_success:
            raise problem_of(response)
        return self.read(response)


def problem_of(response: httpx2.Response) -> ProblemError:
    """Make the error of a refusal."""
    try:
        document = response.json()
    except ValueError:
        document = None
    etag = response.headers.get("ETag")
    return problem_from(document, response.status_code, text=response.text, etag=etag)


def json_of(response: httpx2.Response) -> Any:
    """Return the JSON of a good answer.

    Raises:
        AnswerError: It has none.
    """
    try:
        return response.json()
    except ValueError as error:
        kind = response.headers.get("Content-Type", "nothing")
        raise AnswerError(f"The answer is not one of recoquest: it is {kind}, not JSON.") from error


def reading(kind: type[_A]) -> Callable[[httpx2.Response], _A]:
    """Return a reader of answers of a kind."""
    return lambda response: decode(kind, json_of(response))


def idempotency_key() -> dict[str, str]:
    """Draw a key, so that a request is done once however often it is sent."""
    return {"Idempotency-Key": uuid.uuid4().hex}


def client_headers(key: str | None) -> dict[str, str]:
    """Return headers of every request; `key` None: that of the environment, if any.

    Raises:
        ValueError: The key has characters that no header can hold.
    """
    key = os.environ.get(KEY_VARIABLE, "") if key is None else key
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise ValueError("The key has characters that no key has: copy it again.")
    return {"Accept": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}


def compact(value: Any) -> str:
    """Return JSON for forms and parameters."""
    return json.dumps(value, ensure_ascii=False)
