"""Similar cases written to an archive: by callers, as notes of jobs, and refused by the archive."""

import io
import json
import logging
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pydicom
import pytest
from fastapi.testclient import TestClient
from fhir.resources.bundle import Bundle
from fhir.resources.imagingselection import ImagingSelection
from PIL import Image
from pydantic import ValidationError
from pydicom import Dataset
from pydicom.config import RAISE, settings
from pydicom.uid import XRayAngiographicImageStorage

from app.application import create_app
from app.radiology import archive as dicomweb
from app.radiology.archive import Archive, ArchiveError, store_instances
from app.radiology.result_objects import ChosenCases
from app.radiology.write_back import note_forms, write_note
from app.settings import Settings
from index.audit.listing import Selection, read_events
from index.generations.models import create_collection
from tests.access import AS_ADMIN
from tests.app.radiology.conftest import FILMS, Home, opened, with_key
from tests.app.radiology.small_archive import Answer, SmallArchive, serve
from tests.app.search.test_search import problem
from tests.dicom_films import MARKER, make_film, uid
from tests.needed import needed
from tests.orthanc import OrthancServer

QUERY: Final = 1
PRIOR: Final = 2
OTHER: Final = 3
SEVERAL: Final = 5
# The film that is searched with, one of another study of the same patient, and three of other patients; the
# last has two frames.
ARCHIVED: Final = (
    make_film(QUERY, study=1, patient=1, PatientName="Müller^Jörg"),
    make_film(PRIOR, study=2, patient=1, StudyDate="20240113"),
    make_film(OTHER, study=3, patient=3),
    make_film(4, study=4, patient=4),
    make_film(
        SEVERAL,
        study=5,
        patient=5,
        SOPClassUID=XRayAngiographicImageStorage,
        Modality="XA",
        NumberOfFrames=2,
        PixelData=2 * make_film(SEVERAL).PixelData,
    ),
)
IDENTITY: Final = ("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID")
RESULTS: Final = f"/v1/collections/{FILMS}/studies/{uid('study', 1)}/results"
BODY: Final = {"sop": uid("film", QUERY), "hits": [uid("film", PRIOR), uid("film", OTHER)]}


def serving(home: Home, url: str, *forms: str, **settings: Any) -> TestClient:
    given = {**home.settings.model_dump(), "pacs_url": url, "pacs_write_back": forms, **settings}
    application = create_app(home.settings.model_validate(given))
    return TestClient(application, "http://localhost", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def _home(tmp_path_factory: pytest.TempPathFactory, orthanc_server: OrthancServer) -> Iterator[Home]:
    with opened(tmp_path_factory.mktemp("followed")) as home:
        assert home.follow(orthanc_server, *ARCHIVED)[1].taken == len(ARCHIVED)
        orthanc_server.clear()
        yield home


@pytest.fixture(scope="module")
def _service(_home: Home, orthanc_server: OrthancServer) -> Iterator[TestClient]:
    with serving(_home, orthanc_server.dicom_web, "capture", "report", "selection") as client:
        yield client


@pytest.fixture
def followed(_home: Home, orthanc: OrthancServer) -> Home:
    """The collection after a sync with the archive."""
    orthanc.store(ARCHIVED)
    return _home


@pytest.fixture
def client(_service: TestClient, followed: Home) -> TestClient:
    """Everything may be written back."""
    return _service


def write(
    client: TestClient, body: dict[str, Any] = BODY, headers: Mapping[str, str] = MappingProxyType({})
) -> Any:
    return client.post(RESULTS, json=body, headers={**AS_ADMIN, **headers})


_SIMILAR = f"/v1/collections/{FILMS}/studies/{uid('study', 1)}/instances/{uid('film', QUERY)}/similar"


def _file(orthanc: OrthancServer, sop: str) -> bytes:
    (result,) = orthanc.http.post("/tools/lookup", content=sop).raise_for_status().json()
    return orthanc.http.get(f"{result['Path']}/file").raise_for_status().content


def _read(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Read a file; a value that its representation does not allow is an error."""
    with monkeypatch.context() as strict:
        strict.setattr(settings, "_reading_validation_mode", RAISE)
        dataset = pydicom.dcmread(io.BytesIO(content))
        # Values are converted where they are looked at.
        dataset.walk(lambda _, element: element.value)
    return dataset


def _program(name: str, package: str, *arguments: str, path: Path) -> str:
    program = needed(shutil.which(name), name, f"`apt-get install {package}` brings it")
    done = subprocess.run([program, *arguments, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _objects(orthanc: OrthancServer, answer: Any) -> dict[str, bytes]:
    assert answer.status_code == 200, answer.text
    assert [one["status"] for one in answer.json()["objects"]] == ["stored", "stored"]
    return {one["form"]: _file(orthanc, one["sop"]) for one in answer.json()["objects"]}


def test_results_are_in_the_study_with_its_identity_and_nobody_elses(
    client: TestClient, orthanc: OrthancServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    series = f"studies/{uid('study', 1)}/series/{ARCHIVED[0].SeriesInstanceUID}/instances"
    before = orthanc.http.get(f"/dicom-web/{series}").json()
    files = _objects(orthanc, write(client))
    assert orthanc.http.get(f"/dicom-web/{series}").json() == before
    studies = orthanc.http.get("/dicom-web/studies").json()
    assert len(studies) == len(ARCHIVED)
    for content in files.values():
        made = _read(content, monkeypatch)
        assert made.StudyInstanceUID == uid("study", 1)
        assert made.SeriesInstanceUID not in {film.SeriesInstanceUID for film in ARCHIVED}
        for name in IDENTITY:
            assert made[name].value == ARCHIVED[0][name].value
        assert made.Manufacturer == "recoquest"
        for number in (3, 4):
            assert f"{MARKER}P{number}".encode() not in content
            assert f"{MARKER}^NAME{number}".encode() not in content
        path = tmp_path / "object.dcm"
        path.write_bytes(content)
        message = _program("dciodvfy", "dicom3tools", path=path)
        assert "Error" not in message, message
        _program("dcm2json", "dcmtk", path=path)


def test_every_archive_shows_the_capture(
    client: TestClient, orthanc: OrthancServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = write(client, {**BODY, "forms": ["capture"]})
    (one,) = answer.json()["objects"]
    content = _file(orthanc, one["sop"])
    made = _read(content, monkeypatch)
    assert made.SOPClassUID.name == "Secondary Capture Image Storage"
    assert (made.Modality, made.BurnedInAnnotation, made.ConversionType) == ("OT", "YES", "WSD")
    assert made.SourceImageSequence[0].ReferencedSOPInstanceUID == uid("film", QUERY)
    assert "Not for diagnosis" in made.DerivationDescription
    (result,) = orthanc.http.post("/tools/lookup", content=one["sop"]).json()
    shown = Image.open(io.BytesIO(orthanc.http.get(f"{result['Path']}/preview").raise_for_status().content))
    np.testing.assert_array_equal(np.asarray(shown), made.pixel_array)
    path = tmp_path / "capture.dcm"
    path.write_bytes(content)
    _program("dcmj2pnm", "dcmtk", "--write-png", str(path), path=tmp_path / "capture.png")
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "capture.png")), made.pixel_array)
    # The film, its two cases and the lines above them are there.
    assert (made.pixel_array[130:690, 24:584] > 100).mean() > 0.05
    assert (made.pixel_array[130:430, 630:930] > 100).mean() > 0.05
    assert (made.pixel_array[130:430, 960:1250] > 100).mean() > 0.05
    assert (made.pixel_array[640:, 640:] == 0).all()


def test_the_report_names_cases_by_scores_and_uids_and_refers_to_the_film_alone(
    client: TestClient, orthanc: OrthancServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    similar = client.get(_SIMILAR, params={"same_patient": True, "limit": 10}).json()["hits"]
    scores = {hit["sop"]: hit["score"] for hit in similar}
    answer = write(client, {**BODY, "forms": ["report"]})
    (one,) = answer.json()["objects"]
    content = _file(orthanc, one["sop"])
    made = _read(content, monkeypatch)
    assert made.ContentTemplateSequence[0].TemplateIdentifier == "1500"
    groups = made.ContentSequence[7].ContentSequence
    told = {}
    for group in groups:
        assert group.ContentTemplateSequence[0].TemplateIdentifier == "1501"
        uids = [item.UID for item in group.ContentSequence if item.ValueType == "UIDREF"][1:]
        (number,) = [item for item in group.ContentSequence if item.ValueType == "NUM"]
        told[uids[2]] = float(number.MeasuredValueSequence[0].NumericValue)
        assert uids[:2] == [uid("study", 2 if uids[2] == uid("film", PRIOR) else 3), *uids[1:2]]
    assert told == pytest.approx({sop: scores[sop] for sop in BODY["hits"]}, abs=1e-5)
    assert list(told) == sorted(told, key=lambda sop: -told[sop])
    referred = (element for element in made.iterall() if element.keyword == "ReferencedSOPInstanceUID")
    assert {element.value for element in referred} == {uid("film", QUERY)}
    path = tmp_path / "report.dcm"
    path.write_bytes(content)
    message = _program("dsrdump", "dcmtk", "--print-all-codes", path=path)
    assert message.count('"Measurement Group")') == 2
    assert "Another patient" in message
    doubts = [line for line in message.splitlines() if line.startswith(("E:", "W:"))]
    # DCMTK checks no values in UTF-8.
    assert [line for line in doubts if "Specific Character Set" not in line] == []


def test_frames_are_named_on_both_sides(
    client: TestClient, orthanc: OrthancServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = uid("film", SEVERAL)
    path = RESULTS.replace(uid("study", 1), uid("study", 5))
    payload = {"sop": several, "hits": [uid("film", OTHER)]}
    problem(client.post(path, json=payload, headers=AS_ADMIN), 422, "invalid-request", "frame")
    answer = client.post(path, json={**payload, "frame": 2}, headers=AS_ADMIN)
    files = _objects(orthanc, answer)
    capture, report = _read(files["capture"], monkeypatch), _read(files["report"], monkeypatch)
    assert capture.SourceImageSequence[0].ReferencedFrameNumber == 2
    image = report.ContentSequence[6].ContentSequence[0].ContentSequence[0]
    assert image.ReferencedSOPSequence[0].ReferencedFrameNumber == 2
    selected = answer.json()["selection"]["entry"][0]["resource"]
    assert selected["instance"] == [{"uid": several, "subset": ["2"]}]
    result = write(client, {**BODY, "hits": [f"{several}.1"]})
    report = _read(_objects(orthanc, result)["report"], monkeypatch)
    told = list(report.ContentSequence[7].ContentSequence[0].ContentSequence)
    assert [item.UID for item in told if item.ValueType == "UIDREF"][3] == several
    assert "1" in [item.TextValue for item in told if item.ValueType == "TEXT"]
    for number, content in enumerate(files.values()):
        (tmp_path / f"{number}.dcm").write_bytes(content)
        assert "Error" not in _program("dciodvfy", "dicom3tools", path=tmp_path / f"{number}.dcm")


def test_a_sync_takes_no_result_for_a_film_and_no_search_finds_one(
    client: TestClient, followed: Home, orthanc: OrthancServer
) -> None:
    followed.sync(Archive(orthanc.dicom_web)).run()
    before = client.get(_SIMILAR, params={"same_patient": True}).json()
    _objects(orthanc, write(client))
    report = followed.sync(Archive(orthanc.dicom_web)).run()
    assert (report.taken, report.left_out, report.quarantined, report.refused) == (0, 2, 0, 0)
    films = {film.SOPInstanceUID for film in ARCHIVED} - {uid("film", SEVERAL)}
    assert followed.ids() == films | {f"{uid('film', SEVERAL)}.{frame}" for frame in (1, 2)}
    assert client.get(_SIMILAR, params={"same_patient": True}).json() == before


def test_a_request_that_is_sent_again_stores_nothing_twice(
    client: TestClient, orthanc: OrthancServer
) -> None:
    first = write(client, headers={"Idempotency-Key": "one"})
    there = orthanc.instances()
    assert len(there) == len(ARCHIVED) + 2
    again = write(client, headers={"Idempotency-Key": "one"})
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == first.json()
    assert orthanc.instances() == there
    assert write(client).json()["objects"][0]["sop"] not in there


def test_the_selection_is_a_document_and_goes_nowhere(client: TestClient, orthanc: OrthancServer) -> None:
    before = orthanc.instances()
    answer = write(client, {**BODY, "forms": ["selection"]}).json()
    assert answer["objects"] == []
    assert orthanc.instances() == before
    bundle = answer["selection"]
    assert (bundle["resourceType"], bundle["type"]) == ("Bundle", "collection")
    selections = [entry["resource"] for entry in bundle["entry"]]
    # By the definitions of FHIR R5, which know no other fields.
    Bundle.model_validate_json(json.dumps(bundle))
    with pytest.raises(ValidationError):
        ImagingSelection.model_validate_json(json.dumps({**selections[0], "study": "1.2"}))
    hits = client.get(_SIMILAR, params={"same_patient": True}).json()["hits"]
    ranked = [hit["sop"] for hit in hits if hit["sop"] in BODY["hits"]]
    assert [one["instance"][0]["uid"] for one in selections] == [uid("film", QUERY), *ranked]
    for one in selections:
        assert (one["resourceType"], one["status"]) == ("ImagingSelection", "available")
        study = {"system": "urn:dicom:uid", "value": f"urn:oid:{one['studyUid']}"}
        assert one["derivedFrom"][0]["identifier"] == study
        assert "subject" not in one
        assert one["code"]["coding"][0]["code"] == "113000"
    assert MARKER not in json.dumps(answer)


def test_nothing_is_written_where_the_settings_do_not_allow_it(
    followed: Home, orthanc: OrthancServer
) -> None:
    before = orthanc.instances()
    with serving(followed, orthanc.dicom_web) as client:
        refused = problem(write(client), 409, "write-back-off")
        assert "RECOQUEST_PACS_WRITE_BACK" in refused["detail"]
        assert client.get(_SIMILAR, headers=AS_ADMIN).json()["write_back"] is None
    with serving(followed, orthanc.dicom_web, "capture") as client:
        refused = problem(write(client, {**BODY, "forms": ["capture", "report"]}), 409, "write-back-off")
        assert "capture, and not report" in refused["detail"]
        offered = client.get(_SIMILAR, headers=AS_ADMIN).json()["write_back"]
        assert offered == {"method": "POST", "path": RESULTS, "forms": ["capture"]}
        # Nothing is offered to readers without a key.
        assert client.get(_SIMILAR).json()["write_back"] is None
    assert orthanc.instances() == before


def test_who_may_judge_in_the_collection_writes_and_nobody_without_a_key(
    followed: Home, orthanc: OrthancServer
) -> None:
    create_collection(followed.engine.home, "others", same_as=FILMS)
    before = orthanc.instances()
    with serving(followed, orthanc.dicom_web, "report") as client:
        for refused in (with_key(client, "reader", FILMS), with_key(client, "judge", "others")):
            assert write(client, headers=refused).status_code == 403
        assert orthanc.instances() == before
        assert write(client, headers=with_key(client, "judge", FILMS)).status_code == 200
        # The other collection has none of the films.
        elsewhere = client.post(RESULTS.replace(FILMS, "others", 1), json=BODY, headers=AS_ADMIN)
        problem(elsewhere, 422, "invalid-request", "sop")
    with serving(followed, orthanc.dicom_web, "report", open_feedback=True) as client:
        there = orthanc.instances()
        problem(client.post(RESULTS, json=BODY), 401, "authentication-needed")
        assert orthanc.instances() == there


def test_what_is_no_similar_case_is_named(client: TestClient, orthanc: OrthancServer) -> None:
    before = orthanc.instances()
    changes: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"hits": [uid("film", 99)]}, ("hits",)),
        ({"hits": [uid("film", QUERY)]}, ("hits",)),
        ({"sop": uid("film", 99)}, ("sop",)),
        ({"sop": uid("film", OTHER)}, ("sop",)),
        ({"frame": 2}, ("sop",)),
        ({"hits": []}, ("hits",)),
        ({"hits": [str(number) for number in range(7)]}, ("hits",)),
        ({"hits": [uid("film", OTHER)] * 2}, ("hits",)),
        ({"sop": "../1"}, ("sop",)),
        ({"forms": ["paper"]}, ("forms.0",)),
    ]
    for change, fields in changes:
        problem(write(client, {**BODY, **change}), 422, "invalid-request", *fields)
    assert orthanc.instances() == before


def test_logs_and_the_audit_trail_name_objects_and_nobody(
    client: TestClient, followed: Home, orthanc: OrthancServer, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = write(client)
    orthanc.delete(uid("study", 1))
    problem(write(client), 404, "not-in-archive")
    followed_events = _events(followed)
    (event,) = [one for one in followed_events if one["request"] == answer.headers["X-Request-ID"]]
    assert (event["action"], event["collection"], event["outcome"]) == ("create", FILMS, "success")
    assert event["details"]["stored"] == 2
    stored = [one["sop"] for one in answer.json()["objects"]]
    assert set(event["ids"]) == {BODY["sop"], *BODY["hits"], *stored}
    out, err = capfd.readouterr()
    log = json.dumps(followed_events) + caplog.text + out + err + answer.text
    for secret in (MARKER, "Müller", "19600102"):
        assert secret not in log


def _events(home: Home) -> list[dict[str, Any]]:
    with home.engine.home.catalogue.read() as session:
        events = read_events(session, Selection(), limit=1000)
    return [{**entry.record, "ids": [*entry.ids]} for entry in events]


STUDY: Final = uid("study", 1)
FORMS: Final = ("capture", "report")
LATER: Final = [make_film(7, study=1, patient=1, view="LL")]


class Recorded:
    """Cases and objects of the notes that were sent."""

    def __init__(self) -> None:
        self.notes: list[tuple[ChosenCases, Sequence[str]]] = []

    def __call__(self, cases: ChosenCases, sops: Sequence[str]) -> None:
        self.notes.append((cases, sops))


def test_a_note_has_the_most_similar_studies_of_other_patients_and_is_there_once(
    followed: Home, orthanc: OrthancServer
) -> None:
    archive, recorded = Archive(orthanc.dicom_web), Recorded()
    source = f"/dicom-web/studies/{STUDY}/series/{ARCHIVED[0].SeriesInstanceUID}/instances"
    before, series = orthanc.instances(), orthanc.http.get(source).json()
    message = write_note(followed.engine, archive, FILMS, STUDY, ["report"], recorded)
    assert message == "Note written: 3 of the most similar studies of other patients."
    ((cases, sops),) = recorded.notes
    assert cases.query.id == uid("film", QUERY)
    assert [hit.same_patient for hit in cases.hits] == [False] * 3
    assert uid("film", PRIOR) not in {hit.sop for hit in cases.hits}
    assert [hit.score for hit in cases.hits] == sorted((hit.score for hit in cases.hits), reverse=True)
    assert orthanc.instances() - before == set(sops)
    # A missing part is added, in a series of its own.
    write_note(followed.engine, archive, FILMS, STUDY, FORMS, recorded)
    there = orthanc.instances()
    assert len(there) == len(before) + 2
    assert orthanc.http.get(source).json() == series
    for sop in there - before:
        result = _metadata(orthanc, sop)
        assert result.StudyInstanceUID == STUDY
        assert result.PatientID == ARCHIVED[0].PatientID
        assert f"{MARKER}P3" not in result.to_json()
    for _ in range(2):
        message = write_note(followed.engine, archive, FILMS, STUDY, FORMS, recorded)
        assert message == "The study has its note already."
    assert (len(recorded.notes), orthanc.instances()) == (2, there)


def test_a_study_without_films_or_others_like_it_gets_no_note(home: Home, orthanc: OrthancServer) -> None:
    archive, recorded = Archive(orthanc.dicom_web), Recorded()
    # Both are of one patient.
    home.follow(orthanc, *ARCHIVED[:2])
    for study in (STUDY, uid("study", 9)):
        message = write_note(home.engine, archive, FILMS, study, FORMS, recorded)
        assert message.startswith("No note: "), message
    assert recorded.notes == []
    assert orthanc.instances() == {uid("film", QUERY), uid("film", PRIOR)}


def test_films_that_come_to_a_study_bring_another_note_and_other_studies_none(
    home: Home, orthanc: OrthancServer
) -> None:
    archive, recorded = Archive(orthanc.dicom_web), Recorded()
    for coming, message in (
        (ARCHIVED[:3], "Note written"),
        (ARCHIVED[3:], "already"),
        (LATER, "Note written"),
    ):
        home.follow(orthanc, *coming)
        assert message in write_note(home.engine, archive, FILMS, STUDY, ["report"], recorded)
    assert len({sop for _, sops in recorded.notes for sop in sops}) == 2


def test_a_note_that_the_archive_refuses_is_an_error_after_its_event(followed: Home) -> None:
    recorded, small = Recorded(), SmallArchive([*ARCHIVED], store_answers=[(413, {}, b"")])
    with serve(small), pytest.raises(ArchiveError, match="status 413"):
        write_note(followed.engine, Archive(small.url), FILMS, STUDY, ["report"], recorded)
    assert len(recorded.notes) == len(small.stored) == 1


def test_notes_have_the_forms_that_are_stored() -> None:
    assert note_forms(Settings(pacs_url="http://h/x", pacs_write_back=("selection", "report"))) == ["report"]
    assert note_forms(Settings(pacs_url="http://h/x", pacs_write_back=("selection",))) == []


def _metadata(orthanc: OrthancServer, sop: str) -> pydicom.Dataset:
    (result,) = orthanc.http.get("/dicom-web/instances", params={"SOPInstanceUID": sop}).json()
    study, series, instance = (result[tag]["Value"][0] for tag in ("0020000D", "0020000E", "00080018"))
    path = f"/dicom-web/studies/{study}/series/{series}/instances/{instance}/metadata"
    return pydicom.Dataset.from_json(orthanc.http.get(path).json()[0])


def test_the_setting_names_known_forms_and_needs_an_archive() -> None:
    chosen = Settings.model_validate({"pacs_url": "http://pacs/x", "pacs_write_back": "capture, report"})
    assert chosen.pacs_write_back == ("capture", "report")
    assert Settings().pacs_write_back == ()
    with pytest.raises(ValueError, match="RECOQUEST_PACS_URL"):
        Settings.model_validate({"pacs_write_back": "capture"})
    with pytest.raises(ValueError, match="selection"):
        Settings.model_validate({"pacs_url": "http://pacs/x", "pacs_write_back": "paper"})


KIND: Final = {"Content-Type": "application/dicom+json"}


def _answer(status: int, failed: dict[str, int | None]) -> Answer:
    items = [
        {
            "00081155": {"vr": "UI", "Value": [sop]},
            **({} if reason is None else {"00081197": {"vr": "US", "Value": [reason]}}),
        }
        for sop, reason in failed.items()
    ]
    return status, KIND, json.dumps({"00081198": {"vr": "SQ", "Value": items}}).encode()


@contextmanager
def _serving(archive: SmallArchive, home: Home, *forms: str) -> Iterator[TestClient]:
    with serve(archive), serving(home, archive.url, *forms) as client:
        yield client


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((200, {}, b""), {}),
        ((200, {"Content-Type": "application/dicom+xml"}, b"<x/>"), {}),
        (_answer(202, {"1.2": 0xA700}), {"1.2": "it has no space left"}),
        (_answer(202, {"1.2": 0xA901}), {"1.2": "the object does not fit its class"}),
        (_answer(202, {"1.3": 0xCABC}), {"1.3": "it cannot understand the object"}),
        (_answer(202, {"1.2": 0x0111}), {}),
        (
            _answer(409, {"1.2": 0x0122, "1.3": None}),
            {"1.2": "it does not take objects of this class", "1.3": "it gives no reason"},
        ),
        (
            _answer(409, {"1.2": 0x1234, "1.3": 0x0124}),
            {"1.2": "its reason is 1234", "1.3": "its user may not store"},
        ),
    ],
)
def test_reasons_of_the_archive_are_told_in_words(answer: Answer, expected: dict[str, str]) -> None:
    small = SmallArchive(store_answers=[answer])
    with serve(small):
        failed = store_instances(Archive(small.url), "1.1", {"1.2": b"one", "1.3": b"other"})
    assert failed == expected
    (body,) = small.stored
    assert (body.count(b"Content-Type: application/dicom\r\n\r\none\r\n"), body.count(b"other")) == (1, 1)
    ((path, headers),) = small.requests
    assert path == "/dicom-web/studies/1.1"
    assert headers["content-type"].startswith('multipart/related; type="application/dicom"; boundary=')


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((202, {}, b""), "did not store everything"),
        ((409, {}, b"<html>"), "did not store everything"),
        (_answer(409, {"1.9": 1}), "does not say in JSON what"),
        ((400, {}, b"secret"), "fails with status 400"),
        ((401, {}, b""), "refuses access"),
        ((413, {}, b""), "fails with status 413"),
        ((503, {}, b""), "fails with status 503"),
        ((302, {"Location": "http://elsewhere.invalid"}, b""), "sends elsewhere"),
    ],
)
def test_an_archive_that_takes_nothing_is_asked_once(answer: Answer, expected: str) -> None:
    small = SmallArchive(store_answers=[answer])
    with serve(small), pytest.raises(ArchiveError, match=expected) as failure:
        store_instances(Archive(small.url), "1.1", {"1.2": b"one"})
    assert len(small.stored) == 1
    assert "secret" not in str(failure.value)


def _sent(body: bytes) -> dict[str, str]:
    """The UIDs of the objects of a body by modality."""
    results = {}
    for part in body.split(b"Content-Type: application/dicom\r\n\r\n")[1:]:
        made = pydicom.dcmread(io.BytesIO(part), stop_before_pixels=True)
        results[str(made.Modality)] = str(made.SOPInstanceUID)
    return results


@pytest.mark.slow
def test_what_was_stored_of_several_forms_is_told(followed: Home) -> None:
    small = SmallArchive([*ARCHIVED])
    with _serving(small, followed, "capture", "report") as client:
        first = write(client, headers={"Idempotency-Key": "first"}).json()
        assert [one["status"] for one in first["objects"]] == ["stored", "stored"]
        # The archive knows by now what it takes.
        refused = {"Idempotency-Key": "refused"}
        small.store_answers = [(500, {}, b"")]
        problem(write(client, headers=refused), 502, "archive-unavailable")
        sops = _sent(small.stored[-1])
        small.store_answers = [_answer(409, dict.fromkeys(sops.values(), 0x0122))]
        answer = problem(write(client, headers=refused), 502, "not-stored")
        assert "capture: it does not take objects of this class" in answer["detail"]
        assert "Nothing was stored" in answer["detail"]
        small.store_answers = [_answer(202, {sops["SR"]: 0xC000})]
        partly = write(client, headers=refused)
        assert partly.status_code == 200
        assert [(one["form"], one["status"], one["reason"]) for one in partly.json()["objects"]] == [
            ("capture", "stored", None),
            ("report", "refused", "it cannot understand the object"),
        ]
        # All tries with the key have sent the same objects.
        assert [_sent(body) for body in small.stored[1:]] == [sops] * 3
        assert _sent(small.stored[0]) != sops


def test_an_unknown_outcome_is_an_event(followed: Home) -> None:
    small = SmallArchive([*ARCHIVED], store_answers=[(500, {}, b"")])
    with _serving(small, followed, "capture") as client:
        answer = write(client)
        message = problem(answer, 502, "archive-unavailable")
    assert "fails with status 500" in message["detail"]
    assert "Look into the study" in message["detail"]
    (event,) = [one for one in _events(followed) if one["request"] == answer.headers["X-Request-ID"]]
    assert (event["action"], event["outcome"], event["details"]["stored"]) == ("create", "failure", 0)
    assert set(_sent(small.stored[0]).values()) <= set(event["ids"])


def test_archives_that_are_gone_or_have_another_film_are_told(followed: Home) -> None:
    small = SmallArchive([])
    with _serving(small, followed, "report") as client:
        problem(write(client), 502, "archive-unavailable")
        small.faults = [(404, {}, b"")]
        assert "Nothing was sent" in problem(write(client), 404, "not-in-archive")["detail"]
        other = json.dumps([{"00080018": {"Value": [BODY["sop"]]}}])
        for content in ("[]", "{}", "no JSON", other):
            small.faults = [(200, KIND, content.encode())]
            problem(write(client), 502, "archive-unavailable")
    with serving(followed, small.url, "report") as client:
        answer = problem(write(client), 502, "archive-unavailable")
    assert "cannot be reached" in answer["detail"]
    assert MARKER not in json.dumps(answer)
    assert small.stored == []


def test_an_archive_that_is_too_slow_is_not_waited_for(
    followed: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dicomweb, "_READ_S", 0.05)
    small = SmallArchive([*ARCHIVED])

    def late(*_: Any) -> Answer:
        time.sleep(0.5)
        return 200, {}, b""

    monkeypatch.setattr(small, "store", late)
    with _serving(small, followed, "report") as client:
        answer = problem(write(client), 504, "archive-timeout")
    assert "does not answer in time" in answer["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "patient", [{"vr": "LO", "Value": [{"x": MARKER}]}, {"vr": "LO", "Value": MARKER}, MARKER, [], None]
)
def test_identity_that_is_no_dicom_is_refused(followed: Home, patient: object) -> None:
    film = ARCHIVED[0]
    metadata = {
        "00080016": {"vr": "UI", "Value": [film.SOPClassUID]},
        "00080018": {"vr": "UI", "Value": [film.SOPInstanceUID]},
        "0020000D": {"vr": "UI", "Value": [uid("study", 1)]},
        "00100020": patient,
    }
    small = SmallArchive([], faults=[(200, KIND, json.dumps([metadata]).encode())])
    with _serving(small, followed, "report") as client:
        answer = problem(write(client), 502, "archive-unavailable")
    assert MARKER not in json.dumps(answer)
    assert small.stored == []
