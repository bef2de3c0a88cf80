"""Idempotency-Key: a request that is sent again, as after a broken connection, is not done again."""

import asyncio
import hashlib
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Final

import structlog
from fastapi import Header, Request, Response
from python_multipart.multipart import parse_options_header
from sqlalchemy.orm import Session
from starlette.types import Message, Receive

from app.audit.requests import Noted, note
from app.edge.principal import principal_of
from app.edge.problems import invalid
from app.permissions import GuardedRoute, Handler
from app.services import Services, services_of
from index.idempotency import (
    LEASE,
    KeptAnswer,
    KeyedRequest,
    begin_request,
    keep_answer,
    release_key,
    renew_lease,
)
from training.common.errors import RecoquestError

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
MAX_KEY: Final = 255
_KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY}}}")
_KEPT_HEADERS: Final = ("content-type", "location", "etag", "link")
_FIRST_ERROR: Final = 400
# Fields with ids, which stored answers leave out.
_ID_FIELDS: Final = ("erased", "unknown")
# Bytes that are hashed and searched for boundaries at once; longer bodies are left to a thread.
_WINDOW: Final = 1 << 16

_log = structlog.stdlib.get_logger(__name__)


async def idempotency_key(
    _: Annotated[
        str | None,
        Header(
            alias=HEADER,
            max_length=MAX_KEY,
            description="A name that the caller draws for this request, such as a UUID. Sent again with the "
            f"same name within 24 hours, it gets the first answer, with `{REPLAYED}: true`, and is not done "
            "again.",
        ),
    ] = None,
) -> None:
    """Declare the header; `IdempotentRoute` heeds it."""


async def ids_left_out() -> None:
    """Declare that answers are stored without ids of images; `IdempotentRoute` reads this."""


class IdempotentRoute(GuardedRoute):
    """A guarded route whose operations that depend on `idempotency_key` are done once for each key."""

    def answering(self, handle: Handler) -> Handler:
        """Return the handler of the operation, which looks for a kept answer first."""
        declared = {dependency.call for dependency in self.dependant.dependencies}
        if idempotency_key not in declared:
            return handle
        leaves_out = ids_left_out in declared

        async def once(request: Request) -> Response:
            if HEADER not in request.headers:
                return await handle(request)
            return await _answer_once(request, handle, leaves_out=leaves_out)

        return once


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to answer a request that has a key."""

    sent: KeyedRequest
    name: str

    def keep(self, session: Session, status: int, headers: dict[str, str], body: bytes) -> None:
        """Keep the answer in the transaction that does the work: neither is ever there without the other."""
        keep_answer(session, self.sent, self.name, KeptAnswer(status, headers, body))


def attempt_of(request: Request) -> Attempt | None:
    """Return the attempt that answers a request; None if it has no key."""
    attempt = request.scope.get("state", {}).get("attempt")
    return attempt if isinstance(attempt, Attempt) else None


async def _answer_once(request: Request, handle: Handler, *, leaves_out: bool) -> Response:
    key = _checked_key(request.headers.getlist(HEADER))
    services = services_of(request)
    body = await request.body()
    if len(body) > _WINDOW:
        sent = await services.threads.read(fingerprint, request, body)
    else:
        sent = fingerprint(request, body)
    # Tokens and cookies change, the caller doesn't.
    principal = principal_of(request)
    caller = hashlib.sha256(f"{principal.kind}\n{principal.id}".encode()).hexdigest()
    attempt = Attempt(KeyedRequest(caller, key, sent), uuid.uuid4().hex)
    kept = await services.write(begin_request, attempt.sent, attempt.name)
    if kept is not None:
        note(request, Noted(details={"replayed": True}))
        content = _with_ids(kept.body, body) if leaves_out else kept.body
        return Response(content, kept.status, {**kept.headers, REPLAYED: "true"})
    request.scope.setdefault("state", {})["attempt"] = attempt
    # The work continues after a disconnect, as the request will be sent again.
    inner = Request(request.scope, _complete(body))
    try:
        async with _renewed(services, attempt):
            response = await handle(inner)
    except Exception:
        await _release(services, attempt)
        raise
    if response.status_code >= _FIRST_ERROR:
        await _release(services, attempt)
        return response
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    try:
        content = bytes(response.body)
        content = _without_ids(content, body) if leaves_out else content
        await services.write(attempt.keep, response.status_code, headers, content)
    except RecoquestError as error:
        _log.warning("an answer is not kept for its idempotency key", error=type(error).__name__)
    return response


def _without_ids(answer: bytes, request: bytes) -> bytes:
    """Return an answer with indices of the request's ids instead of ids; others are left out."""
    fields, ids = json.loads(answer), json.loads(request).get("ids", ())
    indices = {name: index for index, name in enumerate(ids)}
    kept = {field: [indices[name] for name in fields[field] if name in indices] for field in _ID_FIELDS}
    return json.dumps({**fields, **kept}).encode()


def _with_ids(kept: bytes, request: bytes) -> bytes:
    """Undo `_without_ids`, with the same request."""
    fields, ids = json.loads(kept), json.loads(request).get("ids", ())
    restored = {field: [ids[index] for index in fields[field]] for field in _ID_FIELDS}
    return json.dumps({**fields, **restored}).encode()


async def _release(services: Services, attempt: Attempt) -> None:
    # A key that cannot be released now is free when its lease has run out.
    with suppress(RecoquestError):
        await services.write(release_key, attempt.sent, attempt.name)


def fingerprint(request: Request, body: bytes) -> str:
    """Return the SHA-256 of a request; the boundary of a form, which clients draw again, is left out."""
    kind, parameters = parse_options_header(request.headers.get("content-type", ""))
    boundary = parameters.get(b"boundary", b"")
    scope = request.scope
    digest = hashlib.sha256()
    for part in (scope["method"].encode(), scope["path"].encode(), scope["query_string"], kind):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    digest.update(b"%d:" % sum(map(len, _without(body, boundary))))
    for content in _without(body, boundary):
        digest.update(content)
    return digest.hexdigest()


def _without(body: bytes, boundary: bytes) -> Iterator[memoryview]:
    """Yield the parts of a body between its boundaries, short ones, so that other threads run in between."""
    view, start = memoryview(body), 0
    while start < len(body):
        end = min(start + _WINDOW, len(body))
        at = body.find(boundary, start, end + len(boundary) - 1) if boundary else -1
        yield view[start : end if at < 0 else at]
        start = end if at < 0 else at + len(boundary)


def _checked_key(keys: list[str]) -> str:
    if len(keys) == 1 and _KEY.fullmatch(keys[0]):
        return keys[0]
    expected = f"one to {MAX_KEY} visible ASCII characters, such as a UUID, sent once"
    raise invalid(HEADER, f"{HEADER} must be {expected}.")


def _complete(body: bytes) -> Receive:
    """Replay a body that has been read; its caller stays connected."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError

    return receive


@asynccontextmanager
async def _renewed(services: Services, attempt: Attempt) -> AsyncIterator[None]:
    async def renew() -> None:
        while True:
            await asyncio.sleep(LEASE.total_seconds() / 3)
            # A lease that cannot be renewed now has time for another try.
            with suppress(RecoquestError):
                await services.write(renew_lease, attempt.sent, attempt.name)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
