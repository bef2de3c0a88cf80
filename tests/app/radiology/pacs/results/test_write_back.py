"""Similar cases in a real archive: read back by it and by other programs, and never taken for films."""

import io
import json
import logging
import shutil
import subprocess
from pathlib import Path
from typing import Any

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

from app.radiology.archive import Archive
from index.audit.listing import Selection, read_events
from index.generations.models import create_collection
from tests.access import AS_ADMIN
from tests.app.radiology.conftest import with_key
from tests.app.radiology.pacs.conftest import COLLECTION, Home
from tests.app.radiology.pacs.results.conftest import (
    BODY,
    FILMS,
    OTHER,
    PRIOR,
    QUERY,
    RESULTS,
    SEVERAL,
    serving,
    write,
)
from tests.app.search.test_search import problem
from tests.dicom_films import MARKER, uid
from tests.needed import needed
from tests.orthanc import OrthancServer

_SIMILAR = f"/v1/collections/{COLLECTION}/studies/{uid('study', 1)}/instances/{uid('film', QUERY)}/similar"


def _file(orthanc: OrthancServer, sop: str) -> bytes:
    (found,) = orthanc.http.post("/tools/lookup", content=sop).raise_for_status().json()
    return orthanc.http.get(f"{found['Path']}/file").raise_for_status().content


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
    series = f"studies/{uid('study', 1)}/series/{FILMS[0].SeriesInstanceUID}/instances"
    before = orthanc.http.get(f"/dicom-web/{series}").json()
    files = _objects(orthanc, write(client))
    assert orthanc.http.get(f"/dicom-web/{series}").json() == before
    studies = orthanc.http.get("/dicom-web/studies").json()
    assert len(studies) == len(FILMS)
    for content in files.values():
        made = _read(content, monkeypatch)
        assert made.StudyInstanceUID == uid("study", 1)
        assert made.SeriesInstanceUID not in {film.SeriesInstanceUID for film in FILMS}
        for name in (
            "PatientName",
            "PatientID",
            "PatientBirthDate",
            "PatientSex",
            "AccessionNumber",
            "StudyID",
        ):
            assert made[name].value == FILMS[0][name].value
        assert made.Manufacturer == "recoquest"
        for number in (3, 4):
            assert f"{MARKER}P{number}".encode() not in content
            assert f"{MARKER}^NAME{number}".encode() not in content
        path = tmp_path / "object.dcm"
        path.write_bytes(content)
        said = _program("dciodvfy", "dicom3tools", path=path)
        assert "Error" not in said, said
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
    (found,) = orthanc.http.post("/tools/lookup", content=one["sop"]).json()
    shown = Image.open(io.BytesIO(orthanc.http.get(f"{found['Path']}/preview").raise_for_status().content))
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
    referred = set()
    made.walk(
        lambda _, element: (
            referred.add(element.value) if element.keyword == "ReferencedSOPInstanceUID" else None
        )
    )
    assert referred == {uid("film", QUERY)}
    path = tmp_path / "report.dcm"
    path.write_bytes(content)
    said = _program("dsrdump", "dcmtk", "--print-all-codes", path=path)
    assert said.count('"Measurement Group")') == 2
    assert "Another patient" in said
    doubts = [line for line in said.splitlines() if line.startswith(("E:", "W:"))]
    # DCMTK checks no values in UTF-8.
    assert [line for line in doubts if "Specific Character Set" not in line] == []


def test_frames_are_named_on_both_sides(
    client: TestClient, orthanc: OrthancServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = uid("film", SEVERAL)
    path = RESULTS.replace(uid("study", 1), uid("study", 5))
    asked = {"sop": several, "hits": [uid("film", OTHER)]}
    problem(client.post(path, json=asked, headers=AS_ADMIN), 422, "invalid-request", "frame")
    answer = client.post(path, json={**asked, "frame": 2}, headers=AS_ADMIN)
    files = _objects(orthanc, answer)
    capture, report = _read(files["capture"], monkeypatch), _read(files["report"], monkeypatch)
    assert capture.SourceImageSequence[0].ReferencedFrameNumber == 2
    image = report.ContentSequence[6].ContentSequence[0].ContentSequence[0]
    assert image.ReferencedSOPSequence[0].ReferencedFrameNumber == 2
    assert answer.json()["selection"]["entry"][0]["resource"]["instance"] == [
        {"uid": several, "subset": ["2"]}
    ]
    found = write(client, {**BODY, "hits": [f"{several}.1"]})
    report = _read(_objects(orthanc, found)["report"], monkeypatch)
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
    films = {film.SOPInstanceUID for film in FILMS} - {uid("film", SEVERAL)}
    assert followed.ids() == films | {f"{uid('film', SEVERAL)}.{frame}" for frame in (1, 2)}
    assert client.get(_SIMILAR, params={"same_patient": True}).json() == before


def test_a_request_that_is_sent_again_stores_nothing_twice(
    client: TestClient, orthanc: OrthancServer
) -> None:
    first = write(client, headers={"Idempotency-Key": "one"})
    there = orthanc.instances()
    assert len(there) == len(FILMS) + 2
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
    assert [one["instance"][0]["uid"] for one in selections] == [uid("film", QUERY), *_ranked(client)]
    for one in selections:
        assert (one["resourceType"], one["status"]) == ("ImagingSelection", "available")
        assert one["derivedFrom"][0]["identifier"] == {
            "system": "urn:dicom:uid",
            "value": f"urn:oid:{one['studyUid']}",
        }
        assert "subject" not in one
        assert one["code"]["coding"][0]["code"] == "113000"
    assert MARKER not in json.dumps(answer)


def _ranked(client: TestClient) -> list[str]:
    hits = client.get(_SIMILAR, params={"same_patient": True}).json()["hits"]
    return [hit["sop"] for hit in hits if hit["sop"] in BODY["hits"]]


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
    create_collection(followed.engine.home, "others", same_as=COLLECTION)
    before = orthanc.instances()
    with serving(followed, orthanc.dicom_web, "report") as client:
        for refused in (with_key(client, "reader", COLLECTION), with_key(client, "judge", "others")):
            assert write(client, headers=refused).status_code == 403
        assert orthanc.instances() == before
        assert write(client, headers=with_key(client, "judge", COLLECTION)).status_code == 200
        # The other collection has none of the films.
        elsewhere = client.post(RESULTS.replace(COLLECTION, "others", 1), json=BODY, headers=AS_ADMIN)
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
    assert (event["action"], event["collection"], event["outcome"]) == ("create", COLLECTION, "success")
    assert event["details"]["stored"] == 2
    stored = [one["sop"] for one in answer.json()["objects"]]
    assert set(event["ids"]) == {BODY["sop"], *BODY["hits"], *stored}
    out, err = capfd.readouterr()
    told = json.dumps(followed_events) + caplog.text + out + err + answer.text
    for secret in (MARKER, "Müller", "19600102"):
        assert secret not in told


def _events(home: Home) -> list[dict[str, Any]]:
    with home.engine.home.catalogue.read() as session:
        found = read_events(session, Selection(), limit=100)
    return [{**entry.record, "ids": [*entry.ids]} for entry in found]
