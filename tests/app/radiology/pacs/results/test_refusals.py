"""Archives that refuse results, in part or whole, answer late, or are not there."""

import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pydicom
import pytest
from fastapi.testclient import TestClient

from app.radiology import archive as dicomweb
from app.radiology.archive import Archive, ArchiveError, store_instances
from index.audit.listing import Selection, read_events
from tests.app.radiology.pacs.conftest import Home
from tests.app.radiology.pacs.results.conftest import BODY, FILMS, serving, write
from tests.app.radiology.pacs.small_archive import Answer, SmallArchive, serve
from tests.app.search.test_search import problem
from tests.dicom_films import MARKER, uid

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
    ("answer", "said"),
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
def test_an_archive_that_takes_nothing_is_asked_once(answer: Answer, said: str) -> None:
    small = SmallArchive(store_answers=[answer])
    with serve(small), pytest.raises(ArchiveError, match=said) as failure:
        store_instances(Archive(small.url), "1.1", {"1.2": b"one"})
    assert len(small.stored) == 1
    assert "secret" not in str(failure.value)


def _sent(body: bytes) -> dict[str, str]:
    """The UIDs of the objects of a body by modality."""
    found = {}
    for part in body.split(b"Content-Type: application/dicom\r\n\r\n")[1:]:
        made = pydicom.dcmread(io.BytesIO(part), stop_before_pixels=True)
        found[str(made.Modality)] = str(made.SOPInstanceUID)
    return found


def test_what_was_stored_of_several_forms_is_told(followed: Home) -> None:
    small = SmallArchive([*FILMS])
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
    small = SmallArchive([*FILMS], store_answers=[(500, {}, b"")])
    with _serving(small, followed, "capture") as client:
        answer = write(client)
        said = problem(answer, 502, "archive-unavailable")
    assert "fails with status 500" in said["detail"]
    assert "Look into the study" in said["detail"]
    with followed.engine.home.catalogue.read() as session:
        entries = read_events(session, Selection(action="create"), limit=1000)
    (entry,) = [one for one in entries if one.record["request"] == answer.headers["X-Request-ID"]]
    assert (entry.record["outcome"], entry.record["details"]["stored"]) == ("failure", 0)
    assert set(_sent(small.stored[0]).values()) <= set(entry.ids)


def test_archives_that_are_gone_or_have_another_film_are_told(followed: Home) -> None:
    small = SmallArchive([])
    with _serving(small, followed, "report") as client:
        problem(write(client), 502, "archive-unavailable")
        small.faults = [(404, {}, b"")]
        assert "Nothing was sent" in problem(write(client), 404, "not-in-archive")["detail"]
        for content in (
            b"[]",
            b"{}",
            b"no JSON",
            json.dumps([{"00080018": {"Value": [BODY["sop"]]}}]).encode(),
        ):
            small.faults = [(200, KIND, content)]
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
    small = SmallArchive([*FILMS])

    def late(*_: Any) -> Answer:
        time.sleep(0.5)
        return 200, {}, b""

    monkeypatch.setattr(small, "store", late)
    with _serving(small, followed, "report") as client:
        answer = problem(write(client), 504, "archive-timeout")
    assert "does not answer in time" in answer["detail"]


@pytest.mark.parametrize(
    "patient", [{"vr": "LO", "Value": [{"x": MARKER}]}, {"vr": "LO", "Value": MARKER}, MARKER, [], None]
)
def test_identity_that_is_no_dicom_is_refused(followed: Home, patient: object) -> None:
    film = FILMS[0]
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
