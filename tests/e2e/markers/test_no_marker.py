"""Films and reports with markers in every text come in by every way: no marker is kept or said anywhere."""

import io
import json
import socket
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.access import ADMIN_KEY
from tests.app.conftest import make_bundle
from tests.dicom_films import MARKER, encoded, uid
from tests.e2e.markers.sources import (
    LATER,
    film_with_reports,
    films,
    messages,
    refused_films,
    write_reports,
    zipped,
)
from tests.e2e.markers.walk import Walk
from tests.orthanc import OrthancServer
from tests.training.clinical.reports.documents import MARKERS, STUDY

FILMS: Final = "/v1/collections/films"
RENDITIONS: Final[tuple[dict[str, int | str], ...]] = ({"size": 64}, {"size": 64, "window": "2048,1024"})
# Described GETs that are not sent, with the reason.
NOT_SENT: Final = {
    "stream_job_events": "continues as long as the job; its values are those of get_job",
}
MULTIPART: Final = 'multipart/related; type="application/dicom"; boundary=frontier'


@pytest.mark.parametrize("word", [MARKER, MARKER.lower(), MARKERS[15], "ACC20041", "2024-01-15"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_markers_are_found_in_files_names_and_what_was_said(tmp_path: Path, word: str, encoding: str) -> None:
    walk = Walk(tmp_path)
    assert walk.traces() == []
    (tmp_path / "packed").write_bytes(b"x" + zlib.compress(f"a {word} b".encode(encoding)))
    assert len(walk.traces()) == 1
    (tmp_path / word).mkdir()
    walk.keep("answer", f"a {word} b".encode(encoding))
    assert len(walk.traces()) == 3


@pytest.mark.slow
def test_no_marker_is_left_by_any_way_in(tmp_path: Path, orthanc: OrthancServer) -> None:
    walk = Walk(tmp_path / "written")
    walk.base.mkdir()
    sources = tmp_path / MARKER
    bundle = make_bundle(tmp_path / "bundle", seed=0)
    _import(walk, sources, bundle)
    _sync(walk, orthanc, bundle)
    _bring_reports(walk, sources)
    _listen(walk)
    _serve(walk, sources)
    for words in (
        ("collections",),
        ("feedback", "export", "films", walk.base / "judgements.jsonl"),
        ("audit", "export", walk.base / "trail.ndjson"),
        ("audit", "export", walk.base / "trail.fhir", "--format", "fhir"),
        ("search", "films", "a heart", "--json"),
        ("jobs", "list"),
        ("backup", walk.base / "backup.tar"),
    ):
        walk.run(*words)
    assert walk.traces() == []


def _import(walk: Walk, sources: Path, bundle: Path) -> None:
    """Import a folder and a zip archive with reports, what cannot be taken included, and index both."""
    plain = sources / "films"
    given = {**films(0), f"{MARKER}REPORTED": encoded(film_with_reports(10)), **refused_films(20)}
    for name, content in given.items():
        (plain / name).parent.mkdir(parents=True, exist_ok=True)
        (plain / name).write_bytes(content)
    write_reports(sources / "reports")
    packed = sources / f"{MARKER}.zip"
    packed.write_bytes(zipped({**films(100), **refused_films(120)}))
    rest = ("--max-rejected", 1, "--reports", sources / "reports")
    assert "9 taken" in walk.run("import", "dicom", plain, walk.base / "films", *rest)
    assert "8 taken" in walk.run("import", "dicom", packed, walk.base / "zipped", *rest)
    walk.run("import", "dicom", sources / MARKER, walk.base / "none", code=1)
    for data in ("films", "zipped"):
        walk.run("index", data, "--bundle", bundle, "--data", walk.base / data, "--device", "cpu")


def _sync(walk: Walk, orthanc: OrthancServer, bundle: Path) -> None:
    """Follow an archive, by the command and by a job of a worker; the archive loses one film."""
    taken = list(films(200).values())
    orthanc.store([*taken, encoded(film_with_reports(210)), *_storable(refused_films(220))])
    follow = ("pacs", "sync", "archive", "--url", orthanc.dicom_web, "--device", "cpu")
    assert "8 taken" in walk.run(*follow, "--bundle", bundle)
    orthanc.delete(uid("film", 201))
    url, what = orthanc.dicom_web, "archive"
    worker = ("worker", "--device", "cpu")
    with walk.beside("Working on", *worker, RECOQUEST_PACS_URL=url, RECOQUEST_PACS_SYNC=what):
        walk.run("jobs", "start", "pacs_sync", what, RECOQUEST_PACS_URL=url, RECOQUEST_PACS_SYNC=what)
        deadline = time.monotonic() + 120
        while "done" not in (listed := walk.run("jobs", "list")):
            assert time.monotonic() < deadline, listed
            time.sleep(1)


def _storable(files: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield those of the files that an archive takes."""
    for name, content in files.items():
        if name.partition(".")[2] in ("burned", "capture", "photometric"):
            yield content


def _bring_reports(walk: Walk, sources: Path) -> None:
    """Bring reports of all formats to the films, what cannot be taken included."""
    said = walk.run("reports", "films", sources / "reports", "--device", "cpu")
    assert "Refused: File" in said
    for path in sorted((sources / "reports").rglob("*")):
        if path.suffix == ".csv":
            walk.run("reports", "films", path, code=int(" " in path.name), RECOQUEST_DEVICE="cpu")
    walk.run("reports", "films", sources / "reports" / MARKER, code=1)
    walk.run("reports", "archive", sources / "reports", "--device", "cpu")


def _listen(walk: Walk) -> None:
    """Send messages, taken and refused, and bytes that are none."""
    with walk.beside("Listening for HL7", "hl7", "archive", "--port", 0, "--device", "cpu") as line:
        port = int(line.split(":")[1].partition(",")[0])
        for message in messages().values():
            walk.keep("MLLP", _sent(port, b"\x0b" + message + b"\x1c\r"))
        walk.keep("MLLP", _sent(port, MARKER.encode()))
        walk.keep("MLLP", _sent(port, b"\x0b" + MARKER.encode()))


def _sent(port: int, content: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while more := connection.recv(65_536):
            answer += more
    return answer


def _serve(walk: Walk, sources: Path) -> None:
    """Send films and reports to the service, and read all that it answers."""
    settings = {"RECOQUEST_ADMIN_KEY": ADMIN_KEY, "RECOQUEST_LOG_LEVEL": "debug", "RECOQUEST_DEVICE": "cpu"}
    with (
        walk.beside("Serving on", "serve", "--port", 0, **settings) as line,
        httpx.Client(
            base_url=line.split()[-1], headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=120
        ) as client,
    ):
        deadline = time.monotonic() + 120
        while client.get("/readyz").status_code != httpx.codes.OK:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        _upload(walk, client)
        _read_all(walk, client)


def _upload(walk: Walk, client: httpx.Client) -> None:
    taken, refused = films(300), refused_films(320)
    # A film of no study is taken.
    taken[f"{MARKER}.uid"] = refused.pop(f"{MARKER}.uid")
    head = f"--frontier\r\nContent-Type: application/dicom\r\nContent-Location: {MARKER}\r\n\r\n".encode()
    for files, status in ((taken, 200), ({**films(310), **refused}, 202), (refused, 409)):
        body = b"".join(head + content + b"\r\n" for content in files.values()) + b"--frontier--"
        stored = client.post(f"{FILMS}/dicomweb/studies", content=body, headers={"Content-Type": MULTIPART})
        assert stored.status_code == status
        _keep(walk, stored)
    for number, (name, content) in enumerate({**taken, **refused}.items()):
        image = {"image": (name, content, "application/dicom")}
        _keep(walk, client.put(f"{FILMS}/images/sent{number}", data={"record": "{}"}, files=image))
        _keep(walk, client.post(f"{FILMS}/search", data={"query": "{}"}, files=image))
        records = {"records": json.dumps([{"id": f"batch{number}"}])}
        _keep(walk, client.post(f"{FILMS}/images", data=records, files=[("images", image["image"])]))


def _read_all(walk: Walk, client: httpx.Client) -> None:
    """Send each GET that is described, for images of all forms, and each POST that reads."""
    listed = _keep(walk, client.get(f"{FILMS}/images", params={"limit": 100})).json()
    images = [image["id"] for image in listed["images"]]
    assert len(images) > 20
    filled = {
        "collection": ["films"],
        "image_id": images,
        "study": [STUDY, LATER, uid("study", 0)],
        "sop": [uid("film", 10)],
        "job": [str(job["id"]) for job in client.get("/v1/jobs").json()["jobs"]],
        "alias": ["films"],
        "case_list": ["taught"],
        "digest": [model["digest"] for model in client.get("/v1/models").json()["models"]],
    }
    assert _keep(walk, client.put(f"{FILMS}/cases/taught", json={"name": "Effusions"})).status_code == 201
    for image in (*images[:3], *(image for image in images if "." in image)):
        saved = client.put(f"{FILMS}/cases/taught/images/{image}", json={"note": "A case to be shown."})
        assert _keep(walk, saved).status_code == 200
    query: dict[str, Any] = {"text": "a heart", "limit": 50}
    like = {"like": [{"id": images[0]}], "limit": 50}
    filtered = {**query, "filter": {"field": "report_status", "eq": "final"}}
    found = client.post(f"{FILMS}/search", json=filtered).json()["hits"]
    assert "effusion" in client.get(f"{FILMS}/images/{found[0]['id']}").json()["report"]
    bodies: tuple[tuple[str, Any], ...] = (
        ("search", query),
        ("search", like),
        ("search", {"keywords": "effusion"}),
        ("search", {"text": "effusion", "target": "texts"}),
        ("search/batch", {"searches": [query, like]}),
        ("facets", {}),
        ("count", {"filter": {"field": "view", "eq": "PA"}}),
        ("feedback", {"query": {"text": "a heart"}, "hit": images[0], "relevant": True}),
        ("feedback", {"query": {"images": [images[1]]}, "hit": images[2], "relevant": False}),
        (f"images/{images[0]}/link", {"rendition": "content"}),
        (f"images/{images[0]}/similarity-map", {"text": "a heart"}),
    )
    for path, body in bodies:
        assert _keep(walk, client.post(f"{FILMS}/{path}", json=body)).status_code < 500
    for field in ("manufacturer", "study", "patient", "body_part", "report_status", "labels"):
        _keep(walk, client.get(f"{FILMS}/facets", params={"field": field}))
    # Without a setting, nothing is written back to an archive.
    off = client.post(f"{FILMS}/studies/{STUDY}/results", json={"sop": uid("film", 10), "hits": images[:1]})
    assert "Writing back is off" in _keep(walk, off).text
    embedded = _keep(walk, client.post("/v1/embeddings", json={"model": "films", "input": ["a heart"]}))
    assert embedded.status_code == httpx.codes.OK
    unanswered = {}
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        if "get" in methods and methods["get"]["operationId"] not in NOT_SENT:
            answers = [_keep(walk, client.get(one)) for one in _filled(path, filled)]
            if not any(answer.status_code == httpx.codes.OK for answer in answers):
                unanswered[methods["get"]["operationId"]] = [answer.text for answer in answers[:1]]
    assert not unanswered
    _keep_members(walk, client.get(f"{FILMS}/cases/taught/export").content)
    for image in images:
        for rendition in RENDITIONS:
            _keep(walk, client.get(f"{FILMS}/images/{image}/rendition", params=rendition))


def _filled(path: str, values: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield a path with each value of its parameters; none where one is not known."""
    name = path.partition("{")[2].partition("}")[0]
    if not name:
        yield path
    for value in values.get(name, ()):
        yield from _filled(path.replace(f"{{{name}}}", value), values)


def _keep_members(walk: Walk, content: bytes) -> None:
    """Keep what a zip archive holds, which is compressed in it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert "cases.csv" in archive.namelist()
        for name in archive.namelist():
            walk.keep(f"teaching file: {name}", name.encode() + archive.read(name))


def _keep(walk: Walk, answer: httpx.Response) -> httpx.Response:
    walk.keep(
        f"{answer.request.method} {answer.request.url.path}", answer.content + repr(answer.headers).encode()
    )
    return answer
