"""An image archive over HTTP: JSON and DICOM files, with retries, limits of time, and a pace."""

import json
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import local
from typing import Any, Final, TypeVar

import requests
from requests.auth import HTTPBasicAuth

from app.radiology.pacs.dicomweb.multipart import MultipartError, Part, PartReader, boundary_of
from app.radiology.pacs.dicomweb.pace import Pace
from app.radiology_settings import RadiologySettings, checked_archive_url
from training.common.errors import RecoquestError

_Answer = TypeVar("_Answer")

_CONNECT_S: Final = 10.0
_READ_S: Final = 60.0
# Limit for a complete answer.
_ANSWER_S: Final = 900.0
_PAUSES: Final = (1.0, 3.0, 9.0)
_LONGEST_RETRY_AFTER: Final = 60.0
_AGAIN: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_MOST_JSON_BYTES: Final = 256 << 20
_CHUNK: Final = 1 << 18
_JSON: Final = "application/dicom+json, application/json"
# In the stored transfer syntax; without this parameter, some archives convert every file.
_DICOM: Final = 'multipart/related; type="application/dicom"; transfer-syntax=*'


class ArchiveError(RecoquestError):
    """The archive does not answer, or not as DICOMweb says.

    Attributes:
        status: Status of its answer; None: it gave none that can be used.
        passing: Whether the same request may succeed after a pause.
        retry_after: Seconds that the archive asks for before that.
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


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials for an archive, and certificates that it is trusted by.

    Attributes:
        user: Name of the user; None: none.
        password: The user's password.
        token: Bearer token instead of both; None: none.
        ca: File with the certificates that sign those of the archive; None: those of the system.
    """

    user: str | None = None
    password: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None

    @classmethod
    def of(cls, settings: RadiologySettings) -> "Access":
        """Return the credentials of the settings."""
        password, token = settings.pacs_password, settings.pacs_token
        return cls(
            settings.pacs_user,
            "" if password is None else password.get_secret_value(),
            None if token is None else token.get_secret_value(),
            settings.pacs_ca,
        )


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """An answer in JSON.

    Attributes:
        value: The parsed JSON; None where the answer is empty, as for nothing found.
        partial: Whether the archive says that it has more results than these.
    """

    value: Any
    partial: bool


class Archive:
    """An archive; threads may share it.

    Args:
        url: Root of its DICOMweb services.
        access: Credentials.
        pace: Called before every request.
        pauses: Seconds before each repetition of a request that failed.

    Raises:
        ArchiveError: The URL is no address of an archive.
    """

    def __init__(
        self,
        url: str,
        access: Access | None = None,
        pace: Pace | None = None,
        *,
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        try:
            self.url = checked_archive_url(url)
        except ValueError as error:
            raise ArchiveError(f"This is no archive: {error}.") from None
        self._access = access or Access()
        self._pace = pace or Pace()
        self._pauses = pauses
        self._sessions = local()

    def get_json(self, path: str, params: Mapping[str, Sequence[str]] | None = None) -> JsonAnswer:
        """Get JSON.

        Args:
            path: Path below the root, or below the parent of the root where it begins with "../".
            params: Parameters.

        Raises:
            ArchiveError: The archive does not answer in JSON.
            OutsideHoursError: The archive may not be asked now.
        """

        def read(answer: requests.Response) -> JsonAnswer:
            body = b"".join(_chunks(answer, _MOST_JSON_BYTES))
            # 299: there are more results (PS3.18, section 8.3.4.4).
            partial = answer.headers.get("Warning", "").startswith("299")
            try:
                return JsonAnswer(json.loads(body) if body.strip() else None, partial)
            except (ValueError, RecursionError):
                raise ArchiveError(
                    "The archive answers in something else than JSON: is the address that of its DICOMweb?",
                    answer.status_code,
                ) from None

        return self._get(path, params or {}, _JSON, read)

    def get_file(self, path: str, max_bytes: int) -> bytes | None:
        """Get the DICOM file of an instance by WADO-RS; None: it is too large.

        Raises:
            ArchiveError: The archive does not give it whole.
            OutsideHoursError: The archive may not be asked now.
        """

        def read(answer: requests.Response) -> bytes | None:
            kind = answer.headers.get("Content-Type", "")
            if kind.lower().startswith("application/dicom"):
                # Some archives send the file alone, against the standard.
                return _whole(answer, max_bytes)
            parts = list(_parts(answer, kind, max_bytes))
            if len(parts) != 1:
                raise ArchiveError("The archive gives several files for one instance.", answer.status_code)
            return parts[0].content

        return self._get(path, {}, _DICOM, read)

    def post(self, path: str, body: bytes, content_type: str, answers: Collection[int]) -> tuple[int, bytes]:
        """Send a body, once, and return the status and the body of the answer.

        Args:
            path: Path below the root.
            body: What is sent.
            content_type: Its media type.
            answers: Statuses that are no errors.

        Raises:
            ArchiveError: The archive answers with another status, or not at all.
            OutsideHoursError: The archive may not be asked now.
        """

        def read(answer: requests.Response) -> tuple[int, bytes]:
            return answer.status_code, b"".join(_chunks(answer, _MOST_JSON_BYTES))

        headers = {"Accept": _JSON, "Content-Type": content_type}
        return self._once("POST", path, headers, read, data=body, answers=answers)

    def _get(
        self,
        path: str,
        params: Mapping[str, Sequence[str]],
        accept: str,
        read: Callable[[requests.Response], _Answer],
    ) -> _Answer:
        """Get an answer, and again after a pause where it failed in a way that may pass."""
        for pause in (*self._pauses, None):
            try:
                return self._once("GET", path, {"Accept": accept}, read, params=params)
            except ArchiveError as error:
                if pause is None or not error.passing:
                    raise
                wait = max(pause * random.uniform(0.8, 1.2), error.retry_after)
            time.sleep(wait)
        raise AssertionError

    def _once(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        read: Callable[[requests.Response], _Answer],
        *,
        params: Mapping[str, Sequence[str]] | None = None,
        data: bytes | None = None,
        answers: Collection[int] = (),
    ) -> _Answer:
        """Send a request once; statuses of `answers` are read whatever they say."""
        self._pace.wait()
        base = self.url
        if path.startswith("../"):
            base, path = base.rpartition("/")[0], path.removeprefix("../")
        try:
            answer = self._session.request(
                method,
                f"{base}/{path}",
                params=params,
                data=data,
                headers=dict(headers),
                timeout=(_CONNECT_S, _READ_S),
                stream=True,
                allow_redirects=False,
            )
            with answer:
                if answer.status_code not in answers:
                    _check(answer)
                return read(answer)
        except (requests.RequestException, MultipartError, OSError) as error:
            # Errors of the library hold the whole address, with what identifies a study.
            raise ArchiveError(
                f"The archive {_why(error)}.",
                passing=_passes(error),
                late=isinstance(error, requests.Timeout),
            ) from None

    @property
    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._sessions, "session", None)
        if session is None:
            session = requests.Session()
            # Neither .netrc nor a proxy of the environment gets to know of patients.
            session.trust_env = False
            access = self._access
            if access.token is not None:
                session.headers["Authorization"] = f"Bearer {access.token}"
            elif access.user is not None:
                session.auth = HTTPBasicAuth(access.user.encode(), access.password.encode())
            if access.ca is not None:
                session.verify = str(access.ca)
            self._sessions.session = session
        return session


def _check(answer: requests.Response) -> None:
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
        raise ArchiveError(
            f"The archive fails with status {status}.",
            status,
            passing=status in _AGAIN,
            retry_after=_seconds(answer.headers.get("Retry-After")),
        )


def _seconds(text: str | None) -> float:
    """Return the seconds of a Retry-After header; dates count for nothing."""
    return min(float(text), _LONGEST_RETRY_AFTER) if text is not None and text.isdecimal() else 0.0


def _why(error: Exception) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "has a certificate that is not trusted: RECOQUEST_PACS_CA names the file of who signed it"
    if isinstance(error, requests.Timeout):
        return "does not answer in time"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached, or closed the connection"
    if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
        return "cannot be asked, as the file of RECOQUEST_PACS_CA cannot be used"
    return "ended its answer too soon, or wrote it in another form"


def _passes(error: Exception) -> bool:
    if isinstance(error, requests.exceptions.SSLError):
        return False
    return isinstance(error, requests.RequestException | MultipartError)


def _chunks(answer: requests.Response, most: int) -> Iterator[bytes]:
    until, size = time.monotonic() + _ANSWER_S, 0
    for chunk in answer.iter_content(_CHUNK):
        size += len(chunk)
        if size > most:
            raise ArchiveError(f"The archive's answer has over {most / 1e6:,.0f} MB.", answer.status_code)
        if time.monotonic() > until:
            raise requests.Timeout
        yield chunk


def _whole(answer: requests.Response, max_bytes: int) -> bytes | None:
    body = bytearray()
    for chunk in _chunks(answer, 1 << 62):
        body += chunk
        if len(body) > max_bytes:
            return None
    return bytes(body)


def _parts(answer: requests.Response, content_type: str, max_bytes: int) -> Iterator[Part]:
    reader = PartReader(boundary_of(content_type), max_bytes)
    for chunk in _chunks(answer, 1 << 62):
        yield from reader.feed(chunk)
    reader.close()
