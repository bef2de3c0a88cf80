"""DICOM files sent by STOW-RS: by dicomweb-client, by a real Orthanc, and by nobody who may not."""

import io
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pydicom
import pytest
from dicomweb_client import DICOMwebClient
from dicomweb_client.session_utils import create_session
from fastapi.testclient import TestClient
from pydicom.uid import DeflatedExplicitVRLittleEndian

from app.application import create_app
from app.radiology import stow
from tests.access import ADMIN_KEY, AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.test_uploads import IMAGES
from tests.app.search.test_search import ids, page_of
from tests.browser.service import running
from tests.dicom_films import MARKER, encoded, make_film, uid
from tests.orthanc import OrthancServer

HERE = f"/v1/collections/{COLLECTION}/dicomweb/studies"
KIND = 'multipart/related; type="application/dicom"; boundary=frontier'
REASON, SOP, CLASS = "00081197", "00081155", "00081150"


@pytest.fixture(scope="module")
def client(make_indexed: Callable[..., Indexed]) -> Iterator[TestClient]:
    with serve(make_indexed(), key=False) as running_client:
        yield running_client


def _body(*files: bytes, end: bytes = b"--") -> bytes:
    head = b"--frontier\r\nContent-Type: application/dicom\r\n\r\n"
    return b"".join(head + file + b"\r\n" for file in files) + b"--frontier" + end


def _post(client: TestClient, content: bytes, kind: str = KIND, address: str = HERE) -> Any:
    return client.post(address, content=content, headers={**AS_ADMIN, "Content-Type": kind})


def _send(client: TestClient, *files: bytes, address: str = HERE) -> Any:
    return _post(client, _body(*files), address=address)


def _items(answer: Any, sequence: str) -> list[dict[str, Any]]:
    result = answer.json().get(sequence, {}).get("Value", [])
    assert isinstance(result, list)
    return result


def test_films_are_there_once_they_are_stored_and_say_nothing_of_their_patient(client: TestClient) -> None:
    films = [make_film(n, study=1, patient=n) for n in range(2)]
    for _ in range(2):
        answer = _send(client, *map(encoded, films))
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/dicom+json")
        assert [item[SOP]["Value"][0] for item in _items(answer, "00081199")] == [
            film.SOPInstanceUID for film in films
        ]
        assert "00081198" not in answer.json()
    kept = client.get(f"{IMAGES}/{uid('film', 0)}").json()
    assert kept["metadata"]["study"] == uid("study", 1)
    assert kept["group"] == kept["metadata"]["patient"]
    assert MARKER not in json.dumps(kept) + answer.text
    result = page_of(client, like=[{"id": uid("film", 0)}], limit=1)
    assert ids(result) == [uid("film", 1)]
    content = client.get(f"{IMAGES}/{uid('film', 0)}/content", headers=AS_ADMIN)
    assert content.status_code == 200
    assert MARKER.encode() not in content.content


def test_a_film_that_is_sent_again_keeps_its_texts_and_its_report(client: TestClient) -> None:
    film, address = make_film(41, study=41), f"{IMAGES}/{uid('film', 41)}"
    _send(client, encoded(film))
    said = {"texts": ["A small effusion."], "report": "A small effusion on the left."}
    assert client.patch(address, json=said, headers=AS_ADMIN).status_code == 200
    for sent in (film, make_film(41, study=41, ViewPosition="AP")):
        _send(client, encoded(sent))
        assert said.items() <= client.get(address).json().items()
    _send(client, encoded(make_film(41, study=42)))
    assert client.get(address).json()["report"] is None


def test_an_instance_is_retrieved_from_the_address_that_the_answer_names(client: TestClient) -> None:
    frames = make_film(1, NumberOfFrames=2)
    frames.PixelData *= 2
    answer = _send(client, encoded(make_film(0)), encoded(frames))
    assert answer.status_code == 200
    for item, name in zip(_items(answer, "00081199"), (uid("film", 0), f"{uid('film', 1)}.1"), strict=True):
        (address,) = item["00081190"]["Value"]
        assert client.get(address).json()["id"] == name


def test_what_cannot_be_taken_is_named_with_its_reason_and_the_rest_is_there(client: TestClient) -> None:
    damaged = encoded(make_film(2))[:-400]
    capture = encoded(make_film(3, BurnedInAnnotation="YES"))
    report = make_film(4, SOPClassUID="1.2.840.10008.5.1.4.1.1.88.11")
    answer = _send(client, encoded(make_film(1)), damaged, b"no film at all", capture, encoded(report))
    assert answer.status_code == 202
    assert [item[SOP]["Value"][0] for item in _items(answer, "00081199")] == [uid("film", 1)]
    failed = _items(answer, "00081198")
    assert [(item.get(SOP, {}).get("Value"), item[REASON]["Value"][0]) for item in failed] == [
        ([uid("film", 2)], 0xC000),
        (None, 0xC000),
        ([uid("film", 3)], 0x0110),
        ([uid("film", 4)], 0x0122),
    ]
    none = _send(client, capture)
    assert none.status_code == 409
    assert "00081199" not in none.json()


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"x", 415),
        ("multipart/form-data; boundary=frontier", _body(b"x"), 415),
        ('multipart/related; type="application/dicom"', _body(b"x"), 415),
        (KIND, _body(), 422),
        (KIND, _body(b"x", end=b""), 422),
        (KIND, _body(*[b"x"] * 65), 422),
        (KIND, _body(b"x").replace(b"application/dicom", b"text/plain"), 415),
    ],
)
def test_a_body_of_another_form_is_refused(client: TestClient, kind: str, body: bytes, status: int) -> None:
    answer = _post(client, body, kind)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_file_is_sent_without_parts(client: TestClient) -> None:
    film = encoded(make_film(11))
    for kind in ("application/dicom", 'Application/DICOM; transfer-syntax="1.2.840.10008.1.2.1"'):
        answer = _post(client, film, kind)
        assert answer.status_code == 200
        assert [item[SOP]["Value"] for item in _items(answer, "00081199")] == [[uid("film", 11)]]
    damaged = _post(client, b"x", "application/dicom")
    assert (damaged.status_code, _items(damaged, "00081198")[0][REASON]["Value"]) == (409, [0xC000])


def test_a_preamble_is_no_part(client: TestClient) -> None:
    body = b"This is a message in several parts.\r\n" + _body(encoded(make_film(12)))
    answer = _post(client, body)
    assert [item[SOP]["Value"] for item in _items(answer, "00081199")] == [[uid("film", 12)]]


def test_instances_are_sent_to_their_study_and_those_of_another_fail_each(client: TestClient) -> None:
    own, other = make_film(13, study=6), make_film(14, study=7)
    without = make_film(15)
    del without.StudyInstanceUID
    files = (encoded(own), encoded(other), encoded(without), b"no film")
    address = f"{HERE}/{uid('study', 6)}"
    answer = _send(client, *files, address=address)
    assert answer.status_code == 202
    assert [item[SOP]["Value"] for item in _items(answer, "00081199")] == [[uid("film", 13)]]
    assert [item[REASON]["Value"] for item in _items(answer, "00081198")] == [[0xA900], [0xA900], [0xC000]]
    assert client.get(f"{IMAGES}/{uid('film', 14)}", headers=AS_ADMIN).status_code == 404
    assert _send(client, encoded(other), address=address).status_code == 409
    assert client.post(address, content=_body(*files), headers={"Content-Type": KIND}).status_code == 401


def test_films_without_uids_are_stored_by_their_file_meta_information(client: TestClient) -> None:
    stripped = make_film(16)
    for keyword in ("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID"):
        delattr(stripped, keyword)
    answer = _send(client, encoded(stripped))
    assert [item[SOP]["Value"] for item in _items(answer, "00081199")] == [[uid("film", 16)]]


def _deflated(data: bytes) -> bytes:
    """A file whose data set is said to be deflated, with this in its place."""
    film = make_film(5)
    film.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    content = encoded(film)
    length = int.from_bytes(content[140:144], "little")
    return content[: 144 + length] + data


@pytest.mark.slow
def test_a_deflated_file_takes_no_more_memory_than_a_file_may(own: Indexed) -> None:
    inflater = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    bomb = inflater.compress(b"\x09\0\x10\0UN\0\0" + (1 << 27).to_bytes(4, "little") + bytes(1 << 27))
    files = [_deflated(data) for data in (bomb + inflater.flush(), b"\xff not deflated", bomb[:100])]
    with serve(own, key=False, max_image_bytes=1 << 20) as client:
        tracemalloc.start()
        answer = _send(client, *files)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (answer.status_code, len(_items(answer, "00081198"))) == (409, 3)
    assert {item[REASON]["Value"][0] for item in _items(answer, "00081198")} == {0xC000}
    assert most < 1 << 26


@pytest.mark.slow
def test_films_that_inflate_are_written_some_at_a_time(own: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stow, "_AT_ONCE_BYTES", 4 << 20)
    pixels = np.repeat(np.arange(1000, dtype=np.uint16)[:, None] * 4, 1000, axis=1)
    films = []
    for number in range(16):
        film = make_film(number, rows=1000, columns=1000)
        film.PixelData = pixels.tobytes()
        film.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
        films.append(encoded(film))
    assert sum(map(len, films)) < 1 << 20
    with serve(own, key=False) as client:
        # Of two films of one instance, in groups of their own, the last counts.
        films.append(encoded(make_film(0, view="LL")))
        tracemalloc.start()
        answer = _send(client, *films)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (answer.status_code, len(_items(answer, "00081199"))) == (200, 17)
        listed = client.get(IMAGES, params={"limit": 100}).json()
        assert {uid("film", number) for number in range(16)} <= {image["id"] for image in listed["images"]}
        first = client.get(f"{IMAGES}/{uid('film', 0)}").json()
        assert first["metadata"]["view"] == "LL"
    # All films together have 32 MB, and each is in two copies while it is written.
    assert most < 24 << 20


@pytest.fixture
def service(own: Indexed) -> Iterator[str]:
    with running(create_app(own.settings)) as url:
        yield url


@pytest.mark.slow
def test_dicomweb_client_stores_films(service: str) -> None:
    session = create_session()
    session.headers.update(AS_ADMIN)
    sender = DICOMwebClient(f"{service}/v1/collections/{COLLECTION}/dicomweb", session=session)
    films = [pydicom.dcmread(io.BytesIO(encoded(make_film(n)))) for n in range(3)]
    stored = sender.store_instances(films).ReferencedSOPSequence
    assert [item.ReferencedSOPInstanceUID for item in stored] == [film.SOPInstanceUID for film in films]


@pytest.mark.slow
def test_orthanc_sends_what_it_stores(service: str, orthanc: OrthancServer) -> None:
    films = [make_film(n, study=1) for n in range(3)]
    names = orthanc.store(films)
    peer = {
        "Url": f"{service}/v1/collections/{COLLECTION}/dicomweb/",
        "HttpHeaders": {"Authorization": f"Bearer {ADMIN_KEY}"},
    }
    orthanc.http.put("/dicom-web/servers/recoquest", json=peer).raise_for_status()
    whole = {"Resources": names, "Synchronous": True}
    sent = orthanc.http.post("/dicom-web/servers/recoquest/stow", json=whole)
    assert sent.status_code == 200, sent.text
    for film in films:
        got = httpx.get(f"{service}{IMAGES}/{film.SOPInstanceUID}", headers=AS_ADMIN)
        assert got.status_code == 200
