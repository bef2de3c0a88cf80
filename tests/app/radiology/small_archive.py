"""A small DICOMweb server whose limits and faults tests choose; a real Orthanc has few of them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from pydicom import Dataset

from app.radiology.archive import Archive, Pace
from tests.answering import answering
from tests.dicom_films import encoded

BOUNDARY = "-=parts=-"
PIXELS = "7FE00010"
Answer = tuple[int, Mapping[str, str], bytes]


@dataclass
class SmallArchive:
    """Films, and how the server tells of them.

    Attributes:
        films: All that it has.
        cap: Most studies of an answer; None: no limit.
        pages: Whether it heeds an offset.
        warns: Whether it says that an answer is cut.
        faults: Answers that the next requests get instead, if any.
        requests: Paths and headers of the requests so far.
        stored: Bodies that were posted.
        store_answers: Answers to posts, in their order; then 200.
        url: Root of its DICOMweb.
    """

    films: list[Dataset] = field(default_factory=list)
    cap: int | None = None
    pages: bool = True
    warns: bool = False
    faults: list[Answer | None] = field(default_factory=list)
    requests: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    stored: list[bytes] = field(default_factory=list)
    store_answers: list[Answer] = field(default_factory=list)
    url: str = ""

    def answer(self, target: str, headers: Mapping[str, str]) -> Answer:
        self.requests.append((target, dict(headers)))
        if self.faults:
            fault = self.faults.pop(0)
            if fault is not None:
                return fault
        parts = urlsplit(target)
        path = [part for part in parts.path.split("/") if part][1:]
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if path == ["studies"]:
            return self._studies(given)
        if path[-1:] == ["instances"] and path[:1] == ["studies"]:
            films = [film for film in self.films if film.StudyInstanceUID == path[1]]
            return self._page([_listed(film) for film in films], given)
        if path[6:] == ["metadata"]:
            results = [film.to_json_dict() for film in self.films if film.SOPInstanceUID == path[5]]
            return self._page(
                [{tag: value for tag, value in film.items() if tag != PIXELS} for film in results], {}
            )
        if len(path) == 6:
            film = next((film for film in self.films if film.SOPInstanceUID == path[5]), None)
            return (404, {}, b"") if film is None else multipart([encoded(film)])
        return 404, {}, b""

    def store(self, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        self.requests.append((target, dict(headers)))
        self.stored.append(body)
        return self.store_answers.pop(0) if self.store_answers else (200, {}, b"")

    def _studies(self, value: Mapping[str, str]) -> Answer:
        results: dict[str, list[Dataset]] = {}
        for film in self.films:
            results.setdefault(film.StudyInstanceUID, []).append(film)
        listed = []
        for uid, films in results.items():
            expected = value.get("StudyInstanceUID", uid) == uid
            day, time = films[0].get("StudyDate") or "", films[0].get("StudyTime") or ""
            if expected and _within(day, value.get("StudyDate")) and _within(time, value.get("StudyTime")):
                listed.append(
                    {
                        "0020000D": {"vr": "UI", "Value": [uid]},
                        "00080020": {"vr": "DA", "Value": [day]},
                        "00201208": {"vr": "IS", "Value": [len(films)]},
                    }
                )
        return self._page(listed, value)

    def _page(self, listed: Sequence[object], value: Mapping[str, str]) -> Answer:
        offset = int(value.get("offset", 0)) if self.pages else 0
        most = min(int(value.get("limit", 10**9)), self.cap or 10**9)
        page = listed[offset : offset + most]
        more = self.warns and offset + len(page) < len(listed)
        warning = {"Warning": '299 pacs: "There are more results"'} if more else {}
        if not page:
            return 204, {}, b""
        return 200, {"Content-Type": "application/dicom+json", **warning}, json.dumps(page).encode()


def multipart(files: Sequence[bytes], *, end: str = "--") -> Answer:
    """Return an answer of several DICOM files; without `end`, it is cut."""
    body = b"".join(
        f"--{BOUNDARY}\r\nContent-Type: application/dicom\r\n\r\n".encode() + file + b"\r\n" for file in files
    )
    kind = f'multipart/related; type="application/dicom"; boundary="{BOUNDARY}"'
    return 200, {"Content-Type": kind}, body + f"--{BOUNDARY}{end}".encode()


def _listed(film: Dataset) -> dict[str, object]:
    return {
        "00080018": {"vr": "UI", "Value": [film.SOPInstanceUID]},
        "00080016": {"vr": "UI", "Value": [film.SOPClassUID]},
        "00080060": {"vr": "CS", "Value": [film.Modality]},
        "0020000E": {"vr": "UI", "Value": [film.SeriesInstanceUID]},
    }


def _within(value: str, expected: str | None) -> bool:
    if expected is None:
        return True
    first, dash, last = expected.partition("-")
    if not dash:
        return value == expected
    return bool(value) and (not first or value >= first) and (not last or value <= last)


def archive_of(archive: SmallArchive, pace: Pace | None = None) -> Archive:
    """The archive as it is read, without pauses between attempts."""
    return Archive(archive.url, pace=pace, pauses=())


@contextmanager
def serve(archive: SmallArchive, wrap: Callable[[ThreadingHTTPServer], None] | None = None) -> Iterator[None]:
    """Run the server on loopback until the block ends; `wrap` may put TLS around it."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(archive.answer(self.path, {k.lower(): v for k, v in self.headers.items()}))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._send(archive.store(self.path, {k.lower(): v for k, v in self.headers.items()}, body))

        def _send(self, answer: Answer) -> None:
            status, headers, body = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with answering(Answers, wrap) as server:
        archive.url = f"http{'' if wrap is None else 's'}://127.0.0.1:{server.server_port}/dicom-web"
        yield
