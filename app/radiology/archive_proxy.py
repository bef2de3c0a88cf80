"""DICOMweb of the archive under the service's own origin, read only, for viewers in a browser."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from functools import cached_property
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

import httpx2
import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from app.access.authentication import KEY_NEEDED
from app.audit.requests import Noted, note
from app.edge.operations import operation, service_url
from app.edge.problems import Kind, RequestError
from app.permissions import GuardedRoute, InjectedPrincipal, may
from app.radiology.archive import client_options
from app.services import InjectedServices
from app.settings import Settings, SettingsError

_UID: Final = r"[0-9]+(?:\.[0-9]+)*"
_MAX_UID_LENGTH: Final = 64
_MAX_LENGTH: Final = 1000
_BULK: Final = r"/bulk(?:data)?(?:/[A-Za-z0-9_-]+){1,32}"
_RENDERED: Final = "rendered|thumbnail"
_QUERY: Final = re.compile(
    rf"studies|series|instances|studies/(?P<study>{_UID})/(?:series|instances)"
    rf"|studies/(?P<parent>{_UID})/series/(?P<series>{_UID})/instances"
)
_RETRIEVAL: Final = re.compile(
    rf"studies/(?P<study>{_UID})(?:/series/(?P<series>{_UID})(?:/instances/(?P<sop>{_UID})"
    rf"(?P<frames>/frames/[0-9]{{1,7}}(?:,[0-9]{{1,7}})*)?)?)?(?:/(?:metadata|{_RENDERED})|{_BULK})?"
)
# The beginning of a string, up to the path below the root of DICOMweb.
_ADDRESS: Final = re.compile(rb'"https?://[^"\s]{1,500}?/(?=studies/[0-9.]{1,64})')
# Longer than the beginning of any such string.
_HELD: Final = 1024
UNAVAILABLE: Final = Kind("archive-unavailable", "The archive does not answer", HTTPStatus.BAD_GATEWAY)
LATE: Final = Kind("archive-timeout", "The archive took too long", HTTPStatus.GATEWAY_TIMEOUT)
_REFUSED: Final = Kind("refused-by-archive", "The archive refuses the request", HTTPStatus.BAD_REQUEST)
_BUSY: Final = Kind(
    "archive-busy",
    "Too many answers of the archive are in transit",
    HTTPStatus.SERVICE_UNAVAILABLE,
    retry_after_s=1,
)
NOT_FOUND: Final = Kind("not-in-archive", "The archive does not have it", HTTPStatus.NOT_FOUND)
_CONNECT_S: Final = 5.0
_READ_S: Final = 30.0
# Limit for a complete answer.
_ANSWER_S: Final = 900.0
# Concurrent answers: a browser requests six.
_CONCURRENT: Final = 48
# Media types that viewers ask for. A page or a drawing with scripts would run as one of the service's own.
_MEDIA_TYPES: Final = (
    "application/dicom+json",
    "application/json",
    "application/dicom",
    "application/octet-stream",
    "multipart/related",
    "image/jpeg",
    "image/jls",
    "image/jp2",
    "image/jpx",
    "image/jphc",
    "image/png",
    "image/gif",
    "video/mp4",
)
JSON_TYPES: Final = _MEDIA_TYPES[:2]
_log = structlog.stdlib.get_logger(__name__)
router = APIRouter(route_class=GuardedRoute, include_in_schema=False)
PREFIX: Final = "/dicomweb"
_OFF: Final = Kind("no-archive", "The archive is not open to viewers", HTTPStatus.NOT_FOUND)
# Total time that a caller may take, in addition to that of its bytes at the minimum rate, in bytes a second:
# concurrent answers are few, and a caller that barely reads would block one.
_CALLER_S: Final = 30.0
_CALLER_RATE: Final = 32 * 1024
# An instance may hold a document with scripts.
_POLICY: Final = {"Content-Security-Policy": "default-src 'none'; sandbox"}


def parse_path(path: str) -> tuple[str | None, bool] | None:
    """Return the lowest UID in a path below the root of DICOMweb, and whether the path lists what there is.

    The UID is of an instance, a series or a study; None where there is none. None instead of both: it is no
    path that only reads. Percent-encodings are decoded already.
    """
    if len(path) > _MAX_LENGTH:
        return None
    query = _QUERY.fullmatch(path)
    match = query or _RETRIEVAL.fullmatch(path)
    if match is None:
        return None
    uids = [uid for name, uid in match.groupdict().items() if uid is not None and name != "frames"]
    if any(len(uid) > _MAX_UID_LENGTH for uid in uids):
        return None
    return uids[-1] if uids else None, query is not None


async def rewritten(pieces: AsyncIterator[bytes], root: str) -> AsyncIterator[bytes]:
    """Rewrite the archive's addresses in JSON piece by piece.

    `root`: address of the service that replaces the archive's root, with a slash at its end.
    """
    replacement, rest = b'"' + root.encode(), b""
    async for piece in pieces:
        content = rest + piece
        # The beginning of a string waits for the next piece.
        quote = content.rfind(b'"', max(0, len(content) - _HELD))
        end = len(content) if quote < 0 else quote
        rest = content[end:]
        yield _ADDRESS.sub(lambda _: replacement, content[:end])
    yield _ADDRESS.sub(lambda _: replacement, rest)


class ArchiveReader:
    """Reads from the archive of the settings.

    Redirections are not followed, the environment's proxies are not used, and of the caller's headers only
    `Accept` is passed on.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.pacs_url is not None
        self._root, self._settings = settings.pacs_url, settings
        self._open = 0

    @cached_property
    def _client(self) -> httpx2.AsyncClient:
        timeout = httpx2.Timeout(_READ_S, connect=_CONNECT_S)
        limits = httpx2.Limits(max_connections=_CONCURRENT)
        client = httpx2.AsyncClient(
            timeout=timeout, limits=limits, **client_options(self._root, self._settings)
        )
        client.headers.update({"User-Agent": "recoquest", "Accept-Encoding": "identity"})
        del client.headers["Connection"]
        return client

    async def get(self, path: str, query: str, accept: str) -> httpx2.Response:
        """Ask the archive; `release` ends what was got.

        Raises:
            RequestError: The archive does not answer in time, or not with the requested content.
        """
        if self._open >= _CONCURRENT:
            raise RequestError(_BUSY, "Ask again in a moment.")
        self._open += 1
        answer = None
        try:
            answer = await self._ask(path, query, accept)
            _check(answer.status_code, answer.headers.get("Content-Type"))
        except BaseException:
            await self.release(answer)
            raise
        return answer

    async def release(self, answer: httpx2.Response | None) -> None:
        """Release the slot and the connection of an answer; unread data is discarded."""
        self._open -= 1
        if answer is not None:
            await answer.aclose()

    async def close(self) -> None:
        """Take no more requests."""
        if "_client" in vars(self):
            await self._client.aclose()

    async def _ask(self, path: str, query: str, accept: str) -> httpx2.Response:
        address = f"{self._root}/{path}" + (f"?{query}" if query else "")
        try:
            request = self._client.build_request("GET", address, headers={"Accept": accept or "*/*"})
            return await self._client.send(request, stream=True)
        except httpx2.TimeoutException:
            raise RequestError(LATE, "The archive did not answer in time: ask again, or for less.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            # The library's own message contains the whole address.
            _log.warning("the archive does not answer", error=type(error).__name__)
            raise RequestError(
                UNAVAILABLE, "The archive cannot be reached: see that it runs, and RECOQUEST_PACS_URL."
            ) from None


def archive_of(settings: Settings) -> ArchiveReader | None:
    """Return the reader of the archive; None: the settings do not open it to viewers.

    Raises:
        SettingsError: The settings open it, and all collections to everybody.
    """
    if not settings.dicomweb:
        return None
    if settings.open_reading:
        # A key for one collection would open the films of all.
        raise SettingsError(
            "RECOQUEST_DICOMWEB does not go with RECOQUEST_OPEN_READING: the archive has names of patients. "
            "Leave one of them out."
        )
    return ArchiveReader(settings)


def _check(status: int, content_type: str | None) -> None:
    """Refuse an answer that is not to be passed on."""
    if status == HTTPStatus.NOT_FOUND:
        raise RequestError(NOT_FOUND, "The archive has nothing there: check the UIDs.")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or 300 <= status < 400:
        raise RequestError(
            UNAVAILABLE,
            f"The archive refuses the service or sends it elsewhere (status {status}): see the settings "
            "RECOQUEST_PACS_URL, RECOQUEST_PACS_USER and RECOQUEST_PACS_TOKEN.",
        )
    if 400 <= status < 500:
        raise RequestError(
            _REFUSED, f"The archive refuses the request with status {status}: see its parameters and Accept."
        )
    if status not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
        raise RequestError(UNAVAILABLE, f"The archive failed with status {status}: see its log.")
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if status == HTTPStatus.OK and media_type not in _MEDIA_TYPES:
        raise RequestError(
            UNAVAILABLE, "The archive answers in a media type that is not passed on: see Accept."
        )


@router.get(f"{PREFIX}/{{path:path}}", dependencies=[may("reader", everywhere=True)])
@operation("view", "read")
async def read_archive(
    path: str, request: Request, services: InjectedServices, principal: InjectedPrincipal
) -> Response:
    """Pass a query (QIDO-RS) or a retrieval (WADO-RS) on to the archive of the settings, and its answer back.

    The archive has data that collections leave out, such as names of patients: nobody reads it without a key
    or a session, even if other reading is open.
    """
    if principal.kind == "anonymous":
        raise RequestError(KEY_NEEDED, "The archive is read with a key or a session only.")
    reader = services.archive
    if not isinstance(reader, ArchiveReader):
        raise RequestError(
            _OFF, "No archive is open here: RECOQUEST_DICOMWEB opens the one of RECOQUEST_PACS_URL."
        )
    parsed = parse_path(path)
    if parsed is None:
        raise RequestError(
            NOT_FOUND, "This is no address of DICOMweb that reads studies, series or instances."
        )
    uid, is_query = parsed
    query = request.scope["query_string"].decode("latin-1")
    note(
        request,
        Noted(
            action="browse" if is_query else "view",
            objects=[] if uid is None else [uid],
            query={"dicomweb": _attributes(query)} if is_query and query else None,
        ),
    )
    answer = await reader.get(path, query, ",".join(request.headers.getlist("accept")))
    return _PassedOn(reader, answer, f"{service_url(request, services.settings)}{PREFIX}/")


def _attributes(query: str) -> list[str]:
    """Return the attributes that a query compares; their values are names and numbers of patients."""
    names = (name for name, _ in parse_qsl(query, keep_blank_values=True))
    return [name for name in names if name.isascii() and name.isalnum()]


class _PassedOn(StreamingResponse):
    def __init__(self, reader: ArchiveReader, answer: httpx2.Response, root: str) -> None:
        self._reader, self._answer = reader, answer
        body, headers = _pieces(answer), dict(_POLICY)
        # 204 has no body.
        content_type = answer.headers.get("Content-Type", "") if answer.status_code == HTTPStatus.OK else ""
        if content_type.partition(";")[0].strip().lower() in JSON_TYPES:
            body = rewritten(body, root)
        elif content_type and "Content-Length" in answer.headers:
            headers["Content-Length"] = answer.headers["Content-Length"]
        super().__init__(body, answer.status_code, headers, media_type=content_type or None)

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
            await self._reader.release(self._answer)


async def _pieces(answer: httpx2.Response) -> AsyncIterator[bytes]:
    """Read a body; an incomplete one breaks the connection, so that the caller notices."""
    until = time.monotonic() + _ANSWER_S
    try:
        async for piece in answer.aiter_raw():
            if time.monotonic() > until:
                raise httpx2.ReadTimeout("")
            yield piece
    except httpx2.HTTPError as error:
        _log.warning("the archive ended its answer too soon", error=type(error).__name__)
        raise ClientDisconnect from None
