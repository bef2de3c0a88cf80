"""DICOMweb of the archive under the service's own origin, read only, for viewers in a browser."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from app.access.authentication import KEY_NEEDED
from app.audit.requests import Noted, note
from app.edge.addresses import service_url
from app.edge.operations import operation
from app.edge.problems import Kind, RequestError
from app.permissions import GuardedRoute, InjectedPrincipal, may
from app.radiology.viewer.addresses import AddressRewriter
from app.radiology.viewer.archive import JSON_TYPES, NOT_FOUND, ArchiveAnswer, ArchiveReader
from app.radiology.viewer.paths import parse_path
from app.services import InjectedServices

router = APIRouter(route_class=GuardedRoute, include_in_schema=False)

PREFIX: Final = "/dicomweb"
_OFF: Final = Kind("no-archive", "The archive is not open to viewers", HTTPStatus.NOT_FOUND)
# A caller may wait so long in all, beside the time that its bytes take at the least rate, in bytes a second:
# answers have few places, and whoever reads next to nothing of one would keep it.
_CALLER_S: Final = 30.0
_CALLER_RATE: Final = 32 * 1024
# An instance may hold a document with scripts.
_POLICY: Final = {"Content-Security-Policy": "default-src 'none'; sandbox"}

_log = structlog.stdlib.get_logger(__name__)


@router.get(f"{PREFIX}/{{path:path}}", dependencies=[may("reader", everywhere=True)])
@operation("view")
async def read_archive(
    path: str, request: Request, services: InjectedServices, principal: InjectedPrincipal
) -> Response:
    """Pass a query (QIDO-RS) or a retrieval (WADO-RS) on to the archive of the settings, and its answer back.

    The archive has what collections leave out, such as names of patients: nobody reads it without a key or a
    session, whatever else is open.
    """
    if principal.kind == "anonymous":
        raise RequestError(KEY_NEEDED, "The archive is read with a key or a session only.")
    reader: ArchiveReader | None = request.app.state.archive
    if reader is None:
        raise RequestError(
            _OFF, "No archive is open here: RECOQUEST_DICOMWEB opens the one of RECOQUEST_PACS_URL."
        )
    wanted = parse_path(path)
    if wanted is None:
        raise RequestError(
            NOT_FOUND, "This is no address of DICOMweb that reads studies, series or instances."
        )
    query = request.scope["query_string"].decode("latin-1")
    note(
        request,
        Noted(
            action="browse" if wanted.is_query else "view",
            objects=[] if wanted.uid is None else [wanted.uid],
            query={"dicomweb": _attributes(query)} if wanted.is_query and query else None,
        ),
    )
    answer = await reader.get(wanted.path, query, ",".join(request.headers.getlist("accept")))
    return _PassedOn(answer, f"{service_url(request, services.settings)}{PREFIX}/")


def _attributes(query: str) -> list[str]:
    """Return the attributes that a query compares; their values are names and numbers of patients."""
    names = (name for name, _ in parse_qsl(query, keep_blank_values=True))
    return [name for name in names if name.isascii() and name.isalnum()]


class _PassedOn(StreamingResponse):
    """An answer of the archive."""

    def __init__(self, answer: ArchiveAnswer, root: str) -> None:
        self._answer = answer
        body, headers = answer.pieces(), dict(_POLICY)
        if answer.content_type.partition(";")[0].strip().lower() in JSON_TYPES:
            body = _rewritten(body, root)
        elif answer.content_type and answer.length is not None:
            headers["Content-Length"] = answer.length
        super().__init__(body, answer.status, headers, media_type=answer.content_type or None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; close it also when the caller goes away, or reads too slowly."""
        loop = asyncio.get_running_loop()
        spent = sent = 0.0

        async def send_moving(message: Message) -> None:
            nonlocal spent, sent
            begun = loop.time()
            try:
                async with asyncio.timeout(max(0.0, _CALLER_S + sent / _CALLER_RATE - spent)):
                    await send(message)
            except TimeoutError:
                _log.warning("a caller reads an answer of the archive too slowly")
                raise ClientDisconnect from None
            spent += loop.time() - begun
            sent += len(message.get("body", b""))

        try:
            await super().__call__(scope, receive, send_moving)
        finally:
            self._answer.close()


async def _rewritten(body: AsyncIterator[bytes], root: str) -> AsyncIterator[bytes]:
    rewriter = AddressRewriter(root)
    async for piece in body:
        yield rewriter.feed(piece)
    yield rewriter.close()
