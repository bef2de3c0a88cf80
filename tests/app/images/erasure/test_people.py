"""Erasure of a patient and of a study: images, their reports, and reports that came before images."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from app.radiology.reports import ReportIntake
from index.audit.listing import Selection, read_events
from index.catalogue.database import Catalogue
from index.catalogue.tables import ReportRow
from index.keys.home_secret import patient_key
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.images.erasure.homes import HERE, holding
from tests.app.radiology.films import give_studies
from tests.training.clinical.reports.documents import PATIENT, STUDY, hl7_report
from training.clinical.pseudonyms import keyed_hash
from training.clinical.reports.hl7 import parse_message, read_message
from training.clinical.reports.study_report import deidentified

WAITING = f"{STUDY}.77"


@pytest.fixture
def films(own: Indexed) -> Indexed:
    """Films of a patient with a report, and reports that wait for films of that patient and of others."""
    give_studies(own)
    reports = (
        hl7_report(["IMPRESSION: Xylophonic scar."]),
        hl7_report(["IMPRESSION: Yttrium clip."], study=WAITING, accession="W1"),
        hl7_report(["IMPRESSION: Zirconium implant."], study=f"{STUDY}.78", accession="W2", patient="P2"),
        hl7_report(["IMPRESSION: Wolfram coil."], study=None, accession="W3", patient=""),
    )
    with _intake(own) as intake:
        _take(intake, own, *reports)
        assert intake.waiting() == 3
    return own


@contextmanager
def _intake(indexed: Indexed, **settings: object) -> Iterator[ReportIntake]:
    with indexed.engine() as engine:
        yield ReportIntake(engine, indexed.settings.model_copy(update=settings), COLLECTION, "hl7")


def _take(intake: ReportIntake, indexed: Indexed, *messages: bytes) -> None:
    key = patient_key(indexed.settings.home)
    for message in messages:
        intake.take([deidentified(report, key) for report in read_message(parse_message(message))])


def _words(indexed: Indexed) -> set[str]:
    """Return the words of the reports that are found in any file of the home."""
    words = ("Xylophonic", "Yttrium", "Zirconium", "Wolfram")
    return {word for word in words if holding(indexed.settings.home, word.encode())}


def test_a_waiting_report_goes_by_any_id_of_its_patient(films: Indexed) -> None:
    with _intake(films) as intake:
        _take(intake, films, hl7_report(study=f"{STUDY}.79", accession="W4", patient="NAT~P9"))
        assert intake.waiting() == 4
        films.run("erase", COLLECTION, "--patient", "P9")
        assert intake.waiting() == 3


@pytest.mark.parametrize("form", ["id", "hash"])
def test_a_patient_goes_with_all_reports(films: Indexed, form: str) -> None:
    hashed = keyed_hash(patient_key(films.settings.home), "patient", PATIENT)
    told = films.run("erase", COLLECTION, "--patient", PATIENT if form == "id" else hashed).output
    assert f"{COLLECTION}: 3 images and 1 waiting reports are erased." in told
    assert _words(films) == {"Zirconium", "Wolfram"}
    assert holding(films.settings.home, PATIENT.encode()) == []
    with films.read() as session:
        (event,) = read_events(session, Selection(action="erase"), limit=10)
    assert event.record["details"] == {"operation": "erase", "reports": 1}
    assert event.ids == (None, None, None)
    films.run("erase", COLLECTION, "--patient", PATIENT, code=1)


@pytest.mark.parametrize(
    ("study", "left"),
    [
        (WAITING, {"Xylophonic", "Zirconium", "Wolfram"}),
        ("W3", {"Xylophonic", "Yttrium", "Zirconium"}),
        (STUDY, {"Yttrium", "Zirconium", "Wolfram"}),
    ],
)
def test_a_study_goes_with_its_reports(films: Indexed, study: str, left: set[str]) -> None:
    with serve(films) as client:
        answer = client.post(f"{HERE}/erase", json={"study": study}, headers={"Idempotency-Key": "once"})
        again = client.post(f"{HERE}/erase", json={"study": study}, headers={"Idempotency-Key": "once"})
        nothing = client.post(f"{HERE}/erase", json={})
    assert answer.status_code == 200, answer.text
    images = ["image-1", "image-2"] if study == STUDY else []
    assert (answer.json()["erased"], answer.json()["reports"]) == (images, int(study != STUDY))
    # The ids are kept nowhere, so the answer that is given again lacks them.
    assert again.json() == answer.json() | {"erased": []}
    assert _words(films) == left
    assert nothing.status_code == 422


def test_reports_that_wait_for_the_study_of_an_erased_image_go(films: Indexed) -> None:
    with _intake(films) as intake:
        _take(intake, films, hl7_report(["IMPRESSION: Yttrium clip, again."], study=None, accession="A3"))
        catalogue = intake.engine.home.catalogue
        _let_wait(catalogue)
        assert intake.waiting() == 5
    assert "Reports that waited for them: 1, erased." in films.run("erase", COLLECTION, "image-3").output
    with _intake(films) as intake:
        assert intake.waiting() == 4


def _let_wait(catalogue: Catalogue) -> None:
    """Let all reports wait, as those do that came before their images were indexed."""
    with catalogue.write() as session:
        for row in session.execute(select(ReportRow)).scalars():
            row.study = None


def test_an_erasure_of_reports_alone_goes_on_after_a_stop(
    films: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_: Catalogue) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Catalogue, "compact", stopped)
        films.run("erase", COLLECTION, "--study", WAITING, code=130)
    (note,) = (films.settings.home / "erasures").glob("*.json")
    assert json.loads(note.read_text())["ids"] == []
    assert PATIENT not in note.read_text()
    films.run("erase", COLLECTION)
    assert _words(films) == {"Xylophonic", "Zirconium", "Wolfram"}
    assert list((films.settings.home / "erasures").iterdir()) == []


@pytest.mark.parametrize(("days", "left"), [(90, 1), (0, 3), (91, 3)])
def test_reports_wait_so_many_days(films: Indexed, days: int, left: int) -> None:
    _receive_earlier(films.settings.home, 90)
    with _intake(films, keep_waiting_reports_days=days) as intake:
        _take(intake, films, hl7_report(["IMPRESSION: Wolfram."], study=f"{STUDY}.79", accession="W4"))
        assert intake.waiting() == left + (days != 90)
        _receive_earlier(films.settings.home, 90)
        # Once a day is enough.
        _take(intake, films, hl7_report(["IMPRESSION: Wolfram."], study=f"{STUDY}.80", accession="W5"))
        assert intake.waiting() == left + 1 + (days != 90)
        with intake.engine.home.catalogue.read() as session:
            events = read_events(session, Selection(action="delete"), limit=10)
    assert [event.record["details"] for event in events] == (
        [{"operation": "hl7", "reports": 3}] if days == 90 else []
    )


def test_tidy_forgets_reports_that_waited_too_long(films: Indexed) -> None:
    assert "forgot" not in films.run("tidy").output
    _receive_earlier(films.settings.home, 90)
    assert f"{COLLECTION}: forgot 3 reports that waited for their images." in films.run("tidy").output


def _receive_earlier(home: Path, days: int) -> None:
    day = datetime.now(UTC).date() - timedelta(days=days)
    with sqlite3.connect(home / "catalogue.sqlite3") as connection:
        connection.execute("UPDATE reports SET received = ?", (day.isoformat(),))
