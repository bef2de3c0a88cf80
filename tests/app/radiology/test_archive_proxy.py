"""The archive on the service's own origin: what is passed on, to whom, and what is not."""

import asyncio
import base64
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from typing import Any, Final

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from app.application import create_app
from app.radiology import archive_proxy
from app.radiology.archive_proxy import parse_path, rewritten
from app.settings import Settings, SettingsError
from index.audit.listing import Selection, audit_event, read_events
from tests.access import ADMIN_KEY, AS_ADMIN
from tests.answering import answering
from tests.app.audit.written import written_events
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.radiology.conftest import with_key
from tests.app.search.test_search import problem
from tests.browser.service import running
from tests.dicom_films import make_film
from tests.orthanc import OrthancServer

FRAME: Final = 'multipart/related; type="application/octet-stream"'


def application_of(home: Indexed, url: str, **settings: Any) -> FastAPI:
    """A service that passes an archive on."""
    given = {"open_reading": False, "pacs_url": url, "dicomweb": True, **settings}
    return create_app(home.settings.model_validate({**home.settings.model_dump(), **given}))


def serving(home: Indexed, url: str, **settings: Any) -> TestClient:
    application = application_of(home, url, **settings)
    return TestClient(application, "http://localhost", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def orthanc(orthanc_server: OrthancServer) -> Iterator[OrthancServer]:
    """An archive with the films that all tests here read."""
    orthanc_server.store([make_film(1, study=1), make_film(2, study=1, view="LL"), make_film(3, study=3)])
    yield orthanc_server
    orthanc_server.clear()


@pytest.fixture(scope="module")
def proxy(indexed: Indexed, orthanc: OrthancServer) -> Iterator[TestClient]:
    with serving(indexed, orthanc.dicom_web) as client:
        yield client


def _of(film_number: int, study: int, view: str = "PA") -> str:
    film = make_film(film_number, study=study, view=view)
    return f"studies/{film.StudyInstanceUID}/series/{film.SeriesInstanceUID}/instances/{film.SOPInstanceUID}"


def test_queries_are_answered_as_by_the_archive(proxy: TestClient, orthanc: OrthancServer) -> None:
    query = "includefield=00081030&PatientName=*NAME3&limit=5&x=a%2cb"
    own = proxy.get(f"/dicomweb/studies?{query}", headers=AS_ADMIN)
    direct = httpx.get(f"{orthanc.dicom_web}/studies?{query}", headers={"Accept": "application/dicom+json"})
    assert own.status_code == 200, own.text
    assert own.headers["content-type"] == "application/dicom+json"
    (result,) = own.json()
    address = result.pop("00081190")["Value"][0]
    (expected,) = direct.json()
    assert expected.pop("00081190")["Value"][0].startswith(orthanc.dicom_web)
    assert result == expected
    assert address == f"http://localhost/dicomweb/studies/{result['0020000D']['Value'][0]}"
    assert orthanc.url not in own.text


def test_pixels_and_files_come_byte_for_byte(proxy: TestClient, orthanc: OrthancServer) -> None:
    path = _of(2, 1, "LL")
    film = make_film(2, study=1, view="LL")
    frame = proxy.get(f"/dicomweb/{path}/frames/1", headers={**AS_ADMIN, "Accept": FRAME})
    assert frame.status_code == 200, frame.text
    assert frame.headers["content-type"].startswith("multipart/related")
    assert film.PixelData in frame.content
    rendered = proxy.get(f"/dicomweb/{path}/rendered", headers={**AS_ADMIN, "Accept": "image/png"})
    direct = httpx.get(f"{orthanc.dicom_web}/{path}/rendered", headers={"Accept": "image/png"})
    assert rendered.headers["content-type"] == "image/png"
    assert rendered.content == direct.content
    metadata = proxy.get(f"/dicomweb/{path}/metadata", headers=AS_ADMIN).json()
    assert metadata[0]["00080018"]["Value"] == [film.SOPInstanceUID]


def test_answers_can_run_nothing_and_are_kept_nowhere(proxy: TestClient) -> None:
    answer = proxy.get("/dicomweb/studies", headers=AS_ADMIN)
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "server" not in answer.headers


def test_what_the_archive_does_not_have_or_take_is_a_problem(proxy: TestClient) -> None:
    problem(proxy.get("/dicomweb/studies/1.2.3", headers=AS_ADMIN), 404, "not-in-archive")
    refused = proxy.get(f"/dicomweb/{_of(1, 1)}/frames/1", headers={**AS_ADMIN, "Accept": "text/plain"})
    problem(refused, 400, "refused-by-archive")
    empty = proxy.get("/dicomweb/studies?PatientID=nobody", headers=AS_ADMIN)
    assert (empty.status_code, empty.content.strip()) in {(204, b""), (200, b"[]"), (200, b"[ ]")}


@pytest.mark.parametrize(
    "path", ["", "../system", "%2e%2e/system", "studies/../../system", "patients", "studies/1%0a"]
)
def test_other_paths_of_the_archive_are_not_reached(proxy: TestClient, path: str) -> None:
    answer = proxy.get(f"/dicomweb/{path}", headers=AS_ADMIN)
    assert answer.status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_is_written(proxy: TestClient, orthanc: OrthancServer, method: str) -> None:
    before = orthanc.instances()
    study = make_film(3, study=3).StudyInstanceUID
    assert proxy.request(method, f"/dicomweb/studies/{study}", headers=AS_ADMIN).status_code == 405
    assert orthanc.instances() == before


def test_only_readers_of_all_collections_read_the_archive(proxy: TestClient) -> None:
    assert proxy.get("/dicomweb/studies", headers=with_key(proxy, "reader", "*")).status_code == 200
    for headers in (with_key(proxy, "admin", COLLECTION), with_key(proxy, "auditor", "*")):
        problem(proxy.get("/dicomweb/studies", headers=headers), 403, "role-needed")
    problem(proxy.get("/dicomweb/studies"), 401, "authentication-needed")


def test_a_session_of_a_browser_reads(proxy: TestClient) -> None:
    assert proxy.post("/v1/session", headers=AS_ADMIN).status_code == 200
    assert proxy.get("/dicomweb/studies").status_code == 200
    proxy.cookies.clear()
    assert proxy.get("/dicomweb/studies").status_code == 401


def test_reads_are_in_the_audit_trail(proxy: TestClient) -> None:
    path = _of(3, 3)
    sop = path.rpartition("/")[2]
    proxy.get(f"/dicomweb/{path}/metadata", headers=AS_ADMIN)
    proxy.get("/dicomweb/studies?PatientID=RQ7&StudyID=RQ8", headers=AS_ADMIN)
    events = written_events(proxy, AS_ADMIN)
    (read,) = [event for event in events if event["ids"] == [sop]]
    assert (read["action"], read["details"]["operation"]) == ("view", "read_archive")
    (asked,) = [event for event in events if event["query"] == {"dicomweb": ["PatientID", "StudyID"]}]
    assert asked["action"] == "browse"
    catalogue = proxy.app.state.services.engine.home.catalogue  # type: ignore[attr-defined]
    with catalogue.read() as session:
        entries = read_events(session, Selection(action="view"), limit=1000)
    (entry,) = [entry for entry in entries if [*entry.ids] == [sop]]
    resource = audit_event(entry, "service")
    assert resource["entity"][0]["what"]["identifier"]["value"] == sop
    assert resource["subtype"][0]["code"] == "read"


def test_without_the_setting_there_is_no_archive(indexed: Indexed) -> None:
    with serve(indexed, key=False) as client:
        problem(client.get("/dicomweb/studies", headers=AS_ADMIN), 404, "no-archive")
        problem(client.get("/dicomweb/studies"), 401, "authentication-needed")


def test_an_archive_is_not_opened_to_everybody() -> None:
    with pytest.raises(SettingsError, match="RECOQUEST_OPEN_READING"):
        create_app(Settings(open_reading=True, dicomweb=True, pacs_url="http://127.0.0.1:1/x"))
    with pytest.raises(ValueError, match="RECOQUEST_PACS_URL"):
        Settings(dicomweb=True)


@pytest.fixture
def other() -> Iterator[Any]:
    """Another archive; `gives` says what it answers a path, and `asked` keeps what it was asked."""
    requests: list[tuple[str, dict[str, str]]] = []
    answers: dict[str, tuple[int, bytes, int, float, dict[str, str]]] = {}

    class Archive(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            requests.append((self.path, dict(self.headers)))
            status, content, length, seconds, headers = answers[self.path.split("?")[0]]
            time.sleep(seconds)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = length > len(content)

    def gives(
        path: str,
        status: int,
        content: bytes,
        length: int | None = None,
        seconds: float = 0,
        **headers: str,
    ) -> None:
        answers[path] = (status, content, len(content) if length is None else length, seconds, headers)

    with answering(Archive) as running:
        server: Any = running
        server.gives, server.asked = gives, requests
        server.url = f"http://127.0.0.1:{server.server_port}/root"
        yield server


def test_nothing_of_the_caller_but_its_accept_reaches_the_archive(indexed: Indexed, other: Any) -> None:
    kept_back = {"Set_Cookie": "a=b", "Location": "x", "Server": "secret/1"}
    other.gives("/root/studies", 200, b"[]", Content_Type="application/dicom+json", **kept_back)
    sent = {
        **AS_ADMIN, "Accept": "application/dicom+json", "Cookie": "recoquest=x", "X-Forwarded-For": "1.2.3.4",
        "Referer": "http://localhost/x", "Origin": "http://localhost", "User-Agent": "a browser",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }  # fmt: skip
    with serving(indexed, other.url, pacs_user="us\u00e9r", pacs_password="pass") as client:
        answer = client.get("/dicomweb/studies?PatientName=a%5Eb&x=1,2&y=%2C", headers=sent)
    assert answer.json() == []
    ((path, headers),) = other.asked
    assert path == "/root/studies?PatientName=a%5Eb&x=1,2&y=%2C"
    basic = base64.b64decode(headers.pop("Authorization").removeprefix("Basic ")).decode()
    assert basic == "us\u00e9r:pass"
    assert headers == {
        "Host": other.url.split("/")[2],
        "Accept": "application/dicom+json",
        "Accept-Encoding": "identity",
        "User-Agent": "recoquest",
    }
    assert not {"set-cookie", "location", "server"} & {*answer.headers}


@pytest.mark.parametrize(
    ("status", "content_type", "kind", "expected"),
    [
        *((status, "application/json", "archive-unavailable", 502) for status in (302, 401, 500, 299, 999)),
        *(
            (200, kind, "archive-unavailable", 502)
            for kind in ("text/html", "image/svg+xml", "application/dicom+xml")
        ),
        (406, "application/json", "refused-by-archive", 400),
    ],
)
def test_other_answers_are_not_passed_on(
    indexed: Indexed, other: Any, status: int, content_type: str, kind: str, expected: int
) -> None:
    headers = {"Content_Type": content_type, "Location": f"{other.url}/elsewhere"}
    other.gives("/root/studies", status, b"<script>secret</script>", **headers)
    with serving(indexed, other.url) as client:
        answer = client.get("/dicomweb/studies", headers=AS_ADMIN)
    problem(answer, expected, kind)
    assert "secret" not in answer.text
    assert [path for path, _ in other.asked] == ["/root/studies"]


def test_an_archive_that_is_gone_or_slow_is_told(
    indexed: Indexed, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(indexed, "http://127.0.0.1:9/root") as client:
        answer = client.get("/dicomweb/studies", headers=AS_ADMIN)
        problem(answer, 502, "archive-unavailable")
        assert "127.0.0.1" not in answer.text
    monkeypatch.setattr(archive_proxy, "_READ_S", 0.2)
    other.gives("/root/studies", 200, b"[]", seconds=1)
    with serving(indexed, other.url) as client:
        problem(client.get("/dicomweb/studies", headers=AS_ADMIN), 504, "archive-timeout")


def test_an_answer_that_breaks_off_breaks_off(indexed: Indexed, other: Any) -> None:
    path = "/root/studies/1.2/series/3/instances/4"
    other.gives(path, 200, b"x" * 200_000, length=400_000, Content_Type="application/octet-stream")
    application = application_of(indexed, other.url)
    with running(application) as address:
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(f"{address}/dicomweb{path.removeprefix('/root')}", headers=AS_ADMIN)
        # The place of the answer is free again.
        assert application.state.services.archive._open == 0


def test_callers_who_take_nothing_keep_no_place(indexed: Indexed, other: Any) -> None:
    other.gives("/root/studies/1.2", 200, b"x" * 5_000_000, Content_Type="application/octet-stream")
    application = application_of(indexed, other.url)
    with running(application) as address:
        for _ in range(3):
            with httpx.stream("GET", f"{address}/dicomweb/studies/1.2", headers=AS_ADMIN) as answer:
                assert answer.status_code == 200
        deadline = time.monotonic() + 10
        while application.state.services.archive._open:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize("reads", [0, 1000])
def test_callers_who_read_slowly_lose_their_places(
    indexed: Indexed, other: Any, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    monkeypatch.setattr(archive_proxy, "_CONCURRENT", 2)
    monkeypatch.setattr(archive_proxy, "_CALLER_S", 0.5)
    monkeypatch.setattr(archive_proxy, "_CALLER_RATE", 100_000_000)
    other.gives("/root/studies/1.2", 200, b"x" * 50_000_000, Content_Type="application/octet-stream")
    head = (
        f"GET /dicomweb/studies/1.2 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN_KEY}\r\n\r\n"
    )
    application = application_of(indexed, other.url)
    with running(application) as address, ExitStack() as opened:
        port = int(address.rpartition(":")[2])
        callers = [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)]
        for caller in callers:
            caller.sendall(head.encode())
            assert caller.recv(12) == b"HTTP/1.1 200"
        busy = httpx.get(f"{address}/dicomweb/studies/1.2", headers=AS_ADMIN)
        assert busy.status_code == 503
        deadline = time.monotonic() + 20
        while application.state.services.archive._open:
            assert time.monotonic() < deadline
            for caller in callers if reads else ():
                # Nothing comes after the end.
                with suppress(ConnectionError):
                    caller.recv(reads)
            time.sleep(0.05)
        monkeypatch.setattr(archive_proxy, "_CALLER_S", 60.0)
        whole = httpx.get(f"{address}/dicomweb/studies/1.2", headers=AS_ADMIN)
        assert len(whole.content) == 50_000_000


def test_so_many_answers_at_a_time_and_no_more(
    indexed: Indexed, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_proxy, "_CONCURRENT", 0)
    with serving(indexed, other.url) as client:
        answer = client.get("/dicomweb/studies", headers=AS_ADMIN)
    problem(answer, 503, "archive-busy")
    assert other.asked == []


ROOT = "https://images.example.org/dicomweb/"
FOUND = [
    {
        "00081190": {"vr": "UR", "Value": ["http://10.0.0.7:8042/dicom-web/studies/1.2/series/3"]},
        "00420011": {"vr": "OB", "BulkDataURI": "https://pacs/a/b/studies/1.2/bulk/00420011"},
        "00104000": {"vr": "LT", "Value": ['He said "http://x/y", and studies/1.2 too', "http://pacs/other/1"]},
        "00100010": {"vr": "PN", "Value": [{"Alphabetic": "Strauß^\u6c34\\\""}]},
    }
] * 3  # fmt: skip
EXPECTED = json.loads(
    json.dumps(FOUND).replace("http://10.0.0.7:8042/dicom-web/", ROOT).replace("https://pacs/a/b/", ROOT)
)


async def _sent(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _rewritten(pieces: list[bytes]) -> list[bytes]:
    async def read() -> list[bytes]:
        return [piece async for piece in rewritten(_sent(pieces), ROOT)]

    return asyncio.run(read())


@given(st.lists(st.integers(0, 1500)), st.booleans())
def test_addresses_lead_to_the_service_however_the_json_is_cut(cuts: list[int], ascii_only: bool) -> None:
    content = json.dumps(FOUND, ensure_ascii=ascii_only).encode()
    positions = [0, *sorted(cuts), len(content)]
    pieces = [content[start:end] for start, end in pairwise(positions)]
    assert json.loads(b"".join(_rewritten(pieces))) == EXPECTED


def test_a_long_text_without_a_quote_is_not_kept_back() -> None:
    first, _ = _rewritten([b'["' + b"x" * 10_000])
    assert len(first) > 9_000


@pytest.mark.parametrize(
    ("path", "uid", "is_query"),
    [
        *((resource, None, True) for resource in ("studies", "series", "instances")),
        ("studies/1.2.3/series", "1.2.3", True),
        ("studies/1.2.3/instances", "1.2.3", True),
        ("studies/1.2.3/series/4.5/instances", "4.5", True),
        *((f"studies/1.2{part}", "1.2", False) for part in ("", "/metadata", "/thumbnail")),
        ("studies/1.2/series/3.4/rendered", "3.4", False),
        *(
            (f"studies/1.2/series/3.4/instances/5{part}", "5", False)
            for part in ("", "/frames/1", "/frames/1,2,30/rendered", "/bulk/00420011")
        ),
        ("studies/1.2/bulkdata/a/b-c/7", "1.2", False),
    ],
)
def test_queries_and_retrievals(path: str, uid: str | None, is_query: bool) -> None:
    assert parse_path(path) == (uid, is_query)


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "studies/", "studies//series", "patients", "studies/1.2/..", "studies/../instances",
        "studies/1.2/series/.",
        "studies/1.2/bulkdata/../../instances", "studies/1.2/bulkdata/", "studies/a.b", "studies/1..2",
        "studies/1.2?x=1",
        "studies/1.2#x", "studies/1.2\n", "studies/1.2/series/3/instances/4/frames/", "studies/1.2/frames/1",
        "studies/1.2/series/3/instances/4/frames/1,", "studies/" + "1" * 65,
        "studies/1.2/bulkdata" + "/a" * 33,
        "studies/1.2/series/3/instances/4/frames/" + ",".join("1" * 600), "../system",
        "%2e%2e/system", "studies/\uff11.2",
    ],
)  # fmt: skip
def test_all_else_is_no_path(path: str) -> None:
    assert parse_path(path) is None
