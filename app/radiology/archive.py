"""An image archive over DICOMweb: JSON and DICOM files, with retries, limits of time, and a pace."""

import json
import random
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ssl import SSLError, create_default_context
from threading import Lock
from typing import Any, Final, Literal, TypeVar

import httpx2
from python_multipart.multipart import parse_options_header

from app.radiology.settings import checked_archive_url
from app.settings import Settings
from training.common.errors import RecoquestError

KIND: Final = "multipart/related"
# Headers of a part are a few lines.
_MOST_HEADER_BYTES: Final = 8192
_LONGEST_BOUNDARY: Final = 256
_LINE: Final = b"\r\n"
# What follows a boundary: the last one, or spaces and the end of the line.
_END_OF_BOUNDARY: Final = re.compile(rb"--|[ \t]{0,254}\r\n")
# What an answer with one file may have in addition to it.
_MOST_FRAMING: Final = 1 << 16
_HOURS: Final = re.compile(r"([01]?\d|2[0-4])-([01]?\d|2[0-4])")
_LONGEST_PAUSE: Final = 30.0
_Answer = TypeVar("_Answer")
_CONNECT_S: Final = 10.0
_READ_S: Final = 60.0
# Limit for a complete answer.
_ANSWER_S: Final = 900.0
_PAUSES: Final = (1.0, 3.0, 9.0)
_LONGEST_RETRY_AFTER: Final = 60.0
_AGAIN: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_MOST_JSON_BYTES: Final = 256 << 20
_JSON: Final = "application/dicom+json, application/json"
# In the stored transfer syntax; without this parameter, some archives convert every file.
_DICOM: Final = 'multipart/related; type="application/dicom"; transfer-syntax=*'
_FAILED: Final = "00081198"
_REASON: Final = "00081197"
_SOP: Final = "00081155"
_ANSWERS: Final = (HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.CONFLICT)
# The archive has an instance of this UID: it was stored by an earlier try.
_DUPLICATE: Final = 0x0111
# Failure reasons of PS3.18, table I.2-2, and of PS3.4, annex B.2.3, by the bits that distinguish them.
_REASONS: Final[Sequence[tuple[int, int, str]]] = (
    (0xFFFF, 0x0110, "it failed to process it"),
    (0xFFFF, 0x0122, "it does not take objects of this class"),
    (0xFFFF, 0x0124, "its user may not store"),
    (0xFF00, 0xA700, "it has no space left"),
    (0xFF00, 0xA900, "the object does not fit its class"),
    (0xF000, 0xC000, "it cannot understand the object"),
)


class MultipartError(RecoquestError):
    """A body is not multipart/related, or ends before its last boundary."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a body.

    Attributes:
        media_type: Its media type, without parameters, in lower case; "" where it names none.
        content: Its bytes; None: they are too many.
    """

    media_type: str
    content: bytes | None


def boundary_of(content_type: str) -> bytes:
    """Return the boundary that a Content-Type header names.

    Raises:
        MultipartError: It is not multipart/related, or names none.
    """
    kind, parameters = parse_options_header(content_type)
    if kind.decode("latin-1").lower() != KIND:
        raise MultipartError(f"The body is not {KIND}.")
    boundary = parameters.get(b"boundary", b"")
    if not boundary:
        raise MultipartError(f"The Content-Type of {KIND} names no boundary.")
    return boundary


def read_parts(body: bytes | bytearray, boundary: bytes, max_bytes: int, most: int) -> list[Part]:
    """Return the parts of a body (RFC 2046, section 5.1); reading ends at the first one beyond `most`.

    What comes before the first boundary and after the last one is ignored. A part of more than `max_bytes`
    is skipped.

    Raises:
        MultipartError: The body is malformed, or its boundary is too long.
    """
    if len(boundary) > _LONGEST_BOUNDARY:
        raise MultipartError("The boundary of the body cannot be used: it is too long.")
    delimiter = _LINE + b"--" + boundary
    # The first boundary may begin the body.
    begins = body.startswith(delimiter[2:])
    end = begins and _END_OF_BOUNDARY.match(body, len(delimiter) - 2)
    end = end or _boundary(body, delimiter, 0)[1]
    parts: list[Part] = []
    while end[0] != b"--" and len(parts) <= most:
        # The end of the boundary's line: without headers, it is the first half of the empty line.
        start = end.end() - len(_LINE)
        empty_line = body.find(2 * _LINE, start, start + _MOST_HEADER_BYTES)
        # The empty line before the content may be the beginning of a boundary.
        last, end = _boundary(body, delimiter, max(start, empty_line + len(_LINE)))
        # Lines that begin with a space continue the one before.
        lines = re.sub(rb"\r\n[ \t]+", b" ", bytes(body[start:empty_line])).split(_LINE)[1:]
        if empty_line < 0 or not all(b":" in line for line in lines):
            raise MultipartError(f"The body is not well-formed {KIND}.")
        headers = {name.strip().lower(): value for name, _, value in (line.partition(b":") for line in lines)}
        kind, _ = parse_options_header(headers.get(b"content-type", b"").strip())
        first = empty_line + 2 * len(_LINE)
        content = bytes(memoryview(body)[first : max(first, last)]) if last - first <= max_bytes else None
        parts.append(Part(kind.decode("latin-1").lower(), content))
    return parts


def _boundary(body: bytes | bytearray, delimiter: bytes, start: int) -> tuple[int, re.Match[bytes]]:
    """Return where the next boundary begins, and its end."""
    while (at := body.find(delimiter, start)) >= 0:
        end = _END_OF_BOUNDARY.match(body, at + len(delimiter))
        if end is not None:
            return at, end
        # The boundary is the beginning of another line.
        start = at + 1
    raise MultipartError("The body ends before its last boundary.")


class OutsideHoursError(Exception):
    """The hours in which the archive may be used are over."""


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of the day, in the machine's local time, such as 20 to 6: from the first, before the last."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Hours":
        """Read hours such as 20-06."""
        match = _HOURS.fullmatch(text.strip())
        first, last = (int(part) % 24 for part in match.groups()) if match else (0, 0)
        if match is None or first == last:
            raise ValueError(f"{text!r} is not two different hours of the day, such as 20-06")
        return cls(first, last)

    def include(self, hour: int) -> bool:
        """Return whether an hour of the day is one of these."""
        return (hour - self.first) % 24 < (self.last - self.first) % 24

    def seconds_until(self, at: datetime) -> float:
        """Return the seconds until they begin; 0: they have."""
        if self.include(at.hour):
            return 0.0
        begin = at.replace(minute=0, second=0, microsecond=0) + timedelta(hours=(self.first - at.hour) % 24)
        return (begin - at).total_seconds()


class Pace:
    """Lets threads ask the archive one after another.

    Args:
        rate: Most requests a second; None: no limit.
        hours: Hours in which requests are allowed; None: all.
        waits: Whether a request outside these hours waits for them; else it is refused.
    """

    def __init__(
        self,
        rate: float | None = None,
        hours: Hours | None = None,
        *,
        waits: bool = False,
        now: Callable[[], datetime] = datetime.now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pause = 0.0 if rate is None else 1 / rate
        self._hours = hours
        self._waits = waits
        self._now, self._sleep = now, sleep
        self._lock = Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Wait for the next allowed request, or raise `OutsideHoursError`."""
        while self._hours is not None and (remaining := self._hours.seconds_until(self._now())) > 0:
            if not self._waits:
                raise OutsideHoursError
            self._sleep(min(remaining, _LONGEST_PAUSE))
        if not self._pause:
            return
        with self._lock:
            at = max(time.monotonic(), self._next)
            self._next = at + self._pause
        remaining = at - time.monotonic()
        if remaining > 0:
            self._sleep(remaining)


class ArchiveError(RecoquestError):
    """The archive does not answer, or not as DICOMweb says.

    Attributes:
        status: Status of its answer; None: it gave none that can be used.
        passing: Whether the same request may succeed after a pause.
        late: Whether it did not answer in time.
    """

    def __init__(
        self,
        message: str,
        status: int | None = None,
        *,
        passing: bool = False,
        retry_after: float = 0.0,
        late: bool = False,
    ) -> None:
        self.status = status
        self.passing = passing
        self.retry_after = retry_after
        self.late = late
        super().__init__(message)


def client_options(url: str, settings: Settings) -> dict[str, Any]:
    """Return the arguments of an HTTP client of an archive that follows nothing and keeps nothing.

    It has the credentials of the settings: a bearer token, otherwise user and password.

    Raises:
        OSError: The file with the certificates cannot be used.
    """
    user, password, token = settings.pacs_user, settings.pacs_password, settings.pacs_token
    auth = None
    if user is not None and token is None:
        auth = httpx2.BasicAuth(user, "" if password is None else password.get_secret_value())
    is_tls, ca = not url.lower().startswith("http:"), settings.pacs_ca
    return {
        "auth": auth,
        "headers": {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}".encode()},
        # Reading the certificates of the system, or those of SSL_CERT_FILE, takes time.
        "verify": create_default_context(cafile=ca) if is_tls or ca is not None else False,
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())),
        # Neither .netrc nor a proxy of the environment gets to know of patients.
        "trust_env": False,
    }


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """An answer in JSON.

    Attributes:
        value: The parsed JSON; None if the answer is empty, as for no results.
        partial: Whether the archive reports that it has more results than these.
    """

    value: Any
    partial: bool


class Archive:
    """An archive; threads may share it. Outside the allowed hours, any request raises OutsideHoursError.

    Args:
        settings: Have the credentials; None: none are sent.
        pauses: Seconds before each repetition of a request that failed.

    Raises:
        ArchiveError: The URL is no address of an archive.
    """

    def __init__(
        self,
        url: str,
        settings: Settings | None = None,
        pace: Pace | None = None,
        *,
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        try:
            self.url = checked_archive_url(url)
        except ValueError as error:
            raise ArchiveError(f"This is no archive: {error}.") from None
        self._settings = settings or Settings.model_construct()
        self._pace = pace or Pace()
        self._pauses = pauses

    def get_json(self, path: str, params: Mapping[str, Sequence[str]] | None = None) -> JsonAnswer:
        """Get JSON.

        `path`: path below the root, or below the parent of the root where it begins with "../".

        Raises:
            ArchiveError: The archive does not answer in JSON.
        """
        return self._ask("GET", path, _JSON, _read_json, params=params or {})

    def get_file(self, path: str, max_bytes: int) -> bytes | None:
        """Get the DICOM file of an instance by WADO-RS; None: it is too large.

        Raises:
            ArchiveError: The archive does not return it completely.
        """
        return self._ask("GET", path, _DICOM, partial(_read_file, max_bytes=max_bytes))

    def post(self, path: str, body: bytes, content_type: str, answers: Collection[int]) -> tuple[int, bytes]:
        """Send a body, once, and return the status and the body of the answer.

        Raises:
            ArchiveError: The archive answers with another status, or not at all.
        """

        def read(answer: httpx2.Response) -> tuple[int, bytes]:
            return answer.status_code, b"".join(_chunks(answer, _MOST_JSON_BYTES))

        return self._ask("POST", path, _JSON, read, answers, content=body, kind=content_type)

    def _ask(
        self,
        method: Literal["GET", "POST"],
        path: str,
        accept: str,
        read: Callable[[httpx2.Response], _Answer],
        answers: Collection[int] = (),
        *,
        kind: str | None = None,
        **sent: Any,
    ) -> _Answer:
        """Send a request, a GET again after a pause where it failed in a way that may pass.

        `answers`: statuses whose body is read even if they report an error.
        """
        base, path = (self.url.rpartition("/")[0], path[3:]) if path.startswith("../") else (self.url, path)
        headers = {"Accept": accept} if kind is None else {"Accept": accept, "Content-Type": kind}
        for pause in (*(self._pauses if method == "GET" else ()), None):
            self._pace.wait()
            begun = False
            try:
                with self._client.stream(method, f"{base}/{path}", headers=headers, **sent) as answer:
                    begun = True
                    if answer.status_code not in answers:
                        _check(answer)
                    return read(answer)
            except ArchiveError as error:
                failure = error
            except (httpx2.HTTPError, httpx2.InvalidURL, MultipartError, OSError) as error:
                failure = _error(error, begun)
            if pause is None or not failure.passing:
                raise failure from None
            time.sleep(max(pause * random.uniform(0.8, 1.2), failure.retry_after))
        raise AssertionError

    @cached_property
    def _client(self) -> httpx2.Client:
        return httpx2.Client(
            timeout=httpx2.Timeout(_READ_S, connect=_CONNECT_S), **client_options(self.url, self._settings)
        )


def _read_json(answer: httpx2.Response) -> JsonAnswer:
    body = b"".join(_chunks(answer, _MOST_JSON_BYTES))
    # 299: there are more results (PS3.18, section 8.3.4.4).
    is_partial = answer.headers.get("Warning", "").startswith("299")
    try:
        return JsonAnswer(json.loads(body) if body.strip() else None, is_partial)
    except (ValueError, RecursionError):
        raise ArchiveError(
            "The archive doesn't answer in JSON: is the address that of its DICOMweb interface?",
            answer.status_code,
        ) from None


def _read_file(answer: httpx2.Response, max_bytes: int) -> bytes | None:
    kind = answer.headers.get("Content-Type", "")
    # Some archives send the file alone, against the standard.
    is_bare = kind.lower().startswith("application/dicom")
    boundary = b"" if is_bare else boundary_of(kind)
    body, most = bytearray(), max_bytes if is_bare else max_bytes + _MOST_FRAMING
    for chunk in _chunks(answer):
        body += chunk
        if len(body) > most:
            return None
    if is_bare:
        return bytes(body)
    parts = read_parts(body, boundary, max_bytes, most=1)
    if len(parts) != 1:
        raise ArchiveError("The archive gives several files for one instance.", answer.status_code)
    return parts[0].content


def _check(answer: httpx2.Response) -> None:
    status = answer.status_code
    if status in (401, 403):
        raise ArchiveError(
            f"The archive refuses access (status {status}): check user, password or token.", status
        )
    if 300 <= status < 400:
        raise ArchiveError(f"The archive sends elsewhere (status {status}): give that address.", status)
    if status == 404:
        raise ArchiveError("The archive has nothing at this address (status 404).", status)
    if status >= 400:
        after = answer.headers.get("Retry-After", "")
        # Dates count for nothing.
        wait = min(float(after), _LONGEST_RETRY_AFTER) if after.isdecimal() else 0.0
        raise ArchiveError(
            f"The archive fails with status {status}.", status, passing=status in _AGAIN, retry_after=wait
        )


def _error(error: Exception, begun: bool) -> ArchiveError:
    """Return what a failure means, without the library's words: these hold the address of a study.

    `begun`: whether the answer had begun.
    """
    if isinstance(error, httpx2.ConnectError) and _is_about_tls(error):
        return ArchiveError(
            "The archive has a certificate that is not trusted: RECOQUEST_PACS_CA names the file of who "
            "signed it."
        )
    if isinstance(error, httpx2.TimeoutException):
        return ArchiveError("The archive does not answer in time.", passing=True, late=True)
    if isinstance(error, httpx2.TransportError) and not begun:
        return ArchiveError("The archive cannot be reached, or closed the connection.", passing=True)
    if isinstance(error, OSError):
        return ArchiveError("The archive cannot be reached, as the file of RECOQUEST_PACS_CA cannot be used.")
    return ArchiveError("The archive ended its answer too soon, or wrote it in another form.", passing=True)


def _is_about_tls(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, SSLError) or _is_about_tls(error.__context__))


def _chunks(answer: httpx2.Response, most: int = 1 << 62) -> Iterator[bytes]:
    until, size = time.monotonic() + _ANSWER_S, 0
    for chunk in answer.iter_bytes():
        size += len(chunk)
        if size > most:
            raise ArchiveError(f"The archive's answer has over {most / 1e6:,.0f} MB.", answer.status_code)
        if time.monotonic() > until:
            raise httpx2.ReadTimeout("")
        yield chunk


def items(value: Any) -> list[Mapping[str, Any]]:
    """Return the data sets of an answer in DICOM JSON.

    Raises:
        ArchiveError: The answer is no list of data sets.
    """
    listed = [] if value is None else [value] if isinstance(value, dict) else value
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ArchiveError("The archive's answer isn't DICOM JSON: is the address right?", 200)
    return listed


def values(item: Mapping[str, Any], tag: str) -> list[Any]:
    """Return the values of an attribute in DICOM JSON that are not empty."""
    element = item.get(tag)
    listed = element.get("Value") if isinstance(element, dict) else None
    return [value for value in listed if value is not None] if isinstance(listed, list) else []


def text(item: Mapping[str, Any], tag: str) -> str:
    """Return the first value of an attribute as text; "" where there is none."""
    texts = values(item, tag)
    return str(texts[0]).strip() if texts else ""


def number(item: Mapping[str, Any], tag: str) -> int | None:
    """Return the first value of an attribute as a number; None where there is none."""
    digits = text(item, tag)
    return int(digits) if digits.isdecimal() else None


def store_instances(archive: Archive, study: str, files: Mapping[str, bytes]) -> dict[str, str]:
    """Store DICOM files in a study, in one request.

    Returns:
        Why instances were not stored, by SOP Instance UID; those that it does not name are stored.

    Raises:
        ArchiveError: The archive refuses the request, or does not answer.
    """
    boundary = uuid.uuid4().hex.encode()
    head = b"--" + boundary + b"\r\nContent-Type: application/dicom\r\n\r\n"
    body = b"".join(head + file + b"\r\n" for file in files.values()) + b"--" + boundary + b"--\r\n"
    kind = f'multipart/related; type="application/dicom"; boundary={boundary.decode()}'
    status, content = archive.post(f"studies/{study}", body, kind, _ANSWERS)
    try:
        listed = [item for answer in items(json.loads(content)) for item in items(values(answer, _FAILED))]
        failed = {text(item, _SOP): number(item, _REASON) for item in listed}
    except (ValueError, RecursionError, ArchiveError):
        failed = {}
    if status != HTTPStatus.OK and not (failed and failed.keys() <= files.keys()):
        raise ArchiveError(
            f"The archive did not store everything (status {status}), and does not say in JSON what: look "
            "into the study.",
            status,
        )
    return {uid: _words(reason) for uid, reason in failed.items() if reason != _DUPLICATE and uid in files}


def _words(reason: int | None) -> str:
    if reason is None:
        return "it gives no reason"
    matching = (words for mask, code, words in _REASONS if reason & mask == code)
    return next(matching, f"its reason is {reason:04X}")
