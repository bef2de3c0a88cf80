"""`recoquest pacs sync` as it is typed: films of an archive are found, and nothing of a patient is kept."""

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.engine import open_engine
from app.radiology.reports import ReportIntake
from app.settings import Settings
from index.keys.home_secret import patient_key
from tests.access import OPEN
from tests.app.conftest import make_bundle
from tests.app.radiology.pacs.conftest import ids_of
from tests.dicom_films import MARKER, make_film, uid
from tests.e2e.work import COMMAND, run_here
from tests.orthanc import OrthancPrograms, OrthancServer, serve_orthanc
from training.clinical.reports.study_report import StudyReport
from training.importing.report_files import ReadReport, read_reports

FILMS = [make_film(n, study=n // 2, view=("PA", "LL")[n % 2]) for n in range(6)]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "bundle", seed=0)


def _command(home: Path, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        _words(home, *arguments), capture_output=True, text=True, env=_environment(**settings), check=False
    )


def _here(home: Path, *arguments: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in this process, which has imported everything already."""
    return run_here(["pacs", "sync", *arguments, "--home", str(home), "--device", "cpu"], **settings)


def _words(home: Path, *arguments: str) -> list[str]:
    return [*COMMAND, "pacs", "sync", *arguments, "--home", str(home), "--device", "cpu"]


def _environment(**settings: str) -> Mapping[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **settings}


def _ids(home: Path) -> set[str]:
    with closing(open_engine(Settings(home=home))) as engine:
        return ids_of(engine)


def test_films_of_the_archive_are_found_and_say_nothing_of_their_patients(
    orthanc: OrthancServer, bundle: Path, tmp_path: Path
) -> None:
    orthanc.store(FILMS)
    home = tmp_path / "home"
    done = _command(home, "films", "--url", orthanc.dicom_web, "--bundle", str(bundle))
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "films: 3 studies; 6 instances found = 6 taken + 0 up to date + 0 refused + 0 left out + "
        "0 quarantined.\n"
    )
    again = _here(home, "films", "--url", orthanc.dicom_web)
    assert "6 instances found = 0 taken + 6 up to date" in again.stdout
    settings = Settings(home=home, threads=1, device="cpu", **OPEN)
    with TestClient(create_app(settings), "http://localhost") as client:
        found = client.post("/v1/collections/films/search", json={"text": "a heart", "limit": 3})
        hits = found.json()["hits"]
        assert len(hits) == 3
        metadata = hits[0]["metadata"]
        assert metadata["modality"] == "DX"
        assert metadata["sop"] == hits[0]["id"]
        assert re.fullmatch("[0-9a-f]{16}", metadata["patient"])
    _assert_no_trace(home, done.stdout, done.stderr, again.stdout, again.stderr, found.text)


def test_named_studies_are_taken_over_and_absent_ones_named_by_their_number(
    orthanc: OrthancServer, bundle: Path, tmp_path: Path
) -> None:
    orthanc.store(FILMS)
    home, named = tmp_path / "home", ("--study", uid("study", 1), "--study", uid("study", 8))
    done = _here(home, "films", "--url", orthanc.dicom_web, "--bundle", str(bundle), *named)
    assert done.returncode == 1
    assert "films: 1 studies; 2 instances found = 2 taken" in done.stdout
    assert "Of the studies, 1 are not in the archive, or left out by the filters." in done.stderr
    assert _ids(home) == {uid("film", 2), uid("film", 3)}
    again = _here(home, "films", "--url", orthanc.dicom_web, *named[:2])
    assert (again.returncode, "0 taken + 2 up to date" in again.stdout) == (0, True)


def test_reports_that_wait_get_to_the_films_that_come(
    orthanc: OrthancServer, bundle: Path, tmp_path: Path
) -> None:
    orthanc.store(FILMS[:2])
    home, report = tmp_path / "home", tmp_path / f"{uid('study', 1)}.txt"
    assert _here(home, "films", "--url", orthanc.dicom_web, "--bundle", str(bundle)).returncode == 0
    report.write_text("IMPRESSION: Left effusion.")
    settings = Settings(home=home, threads=1, device="cpu", **OPEN)
    engine = open_engine(settings)
    (read,) = read_reports(report, patient_key(home))
    assert isinstance(read, ReadReport)
    assert isinstance(read.report, StudyReport)
    assert ReportIntake(engine, settings, "films", "reports").take([read.report]).waiting == 1
    engine.close()
    orthanc.store(FILMS)
    done = _here(home, "films", "--url", orthanc.dicom_web)
    assert "Reports that waited are at 2 films now." in done.stderr
    with TestClient(create_app(settings), "http://localhost") as client:
        image = client.get(f"/v1/collections/films/images/{uid('film', 2)}").json()
        assert image["report"] == "IMPRESSION: Left effusion."


def _assert_no_trace(home: Path, *texts: str) -> None:
    """Markers are in every name and id; the original date and the archive's address are kept nowhere."""
    assert not any(MARKER in text for text in texts)
    for path in home.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert MARKER.encode() not in content, path
            assert b"dicom-web" not in content, path
            assert b"20240115" not in content, path
            assert b"2024-01-15" not in content, path


def test_credentials_come_from_settings_and_are_shown_nowhere(
    orthanc_programs: OrthancPrograms, bundle: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("pass-word\n")
    settings = {"AuthenticationEnabled": True, "RegisteredUsers": {"reader": "pass-word"}}
    arguments = ("films", "--bundle", str(bundle), "--user", "reader")
    home = tmp_path / "home"
    with serve_orthanc(orthanc_programs, settings, auth=("reader", "pass-word")) as orthanc:
        orthanc.store(FILMS[:1])
        environment = {"RECOQUEST_PACS_URL": orthanc.dicom_web}
        refused = _here(home, *arguments, **environment)
        assert refused.returncode == 1
        assert refused.stderr.strip().splitlines()[-1].endswith("check user, password or token.")
        done = _here(home, *arguments, RECOQUEST_PACS_PASSWORD_FILE=str(secret), **environment)
    assert "1 taken" in done.stdout, done.stderr
    assert not any(b"pass-word" in path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert "pass-word" not in refused.stderr + done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("films",), "give the archive's address"),
        (("films", "--url", "http://reader:word@pacs/dicom-web"), "without a user"),
        (("films", "--url", "http://pacs", "--from", "2024"), "'2024' is not a date"),
        (("films", "--url", "http://pacs", "--from", "2024-02-01", "--to", "2024-01-01"), "--from is after"),
        (("films", "--url", "http://pacs", "--hours", "6"), "not two different hours"),
        (("films", "--url", "http://pacs", "--once", "--every", "5"), "not both"),
        (("films", "--url", "http://pacs", "--study", "7"), "give a Study Instance UID"),
        (("films", "--url", "http://pacs", "--study", "1.2.3.4", "--every", "5"), "--study and --every"),
        (("films", "--url", "http://pacs", "--note"), "give --study, too"),
        (("films", "--url", "http://pacs", "--note", "--study", "1.2.3.4"), "RECOQUEST_PACS_WRITE_BACK"),
        (("films", "--url", "http://pacs", "--quarantined", "/"), "/ cannot be written (Is a directory)"),
        (("films", "--url", "http://127.0.0.1:9/dicom-web"), "There is no collection 'films'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = _here(tmp_path / "home", *arguments)
    assert done.returncode in (1, 2)
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert "word@" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_any_moment_it_goes_on_with_nothing_missing_or_doubled(
    orthanc: OrthancServer, bundle: Path, tmp_path: Path, seed: int
) -> None:
    films = [make_film(1000 + n, study=n // 2, view=("PA", "LL")[n % 2]) for n in range(240)]
    orthanc.store(films)
    home, draw = tmp_path / "home", random.Random(seed)
    arguments = ("films", "--url", orthanc.dicom_web, "--bundle", str(bundle))
    for attempt in range(4):
        process = subprocess.Popen(
            _words(home, *arguments), env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        # The first may end before it writes anything, the others while they do.
        time.sleep(draw.uniform(2.0, 9.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if attempt == 1:
            orthanc.delete(uid("study", 3))
            orthanc.store([make_film(5000)])
    done = _command(home, *arguments)
    assert done.returncode == 0, done.stderr
    assert _ids(home) == orthanc.instances()
    assert len(orthanc.instances()) == 239
    again = _command(home, *arguments)
    assert "239 instances found = 0 taken + 239 up to date" in again.stdout


@pytest.mark.slow
def test_it_follows_the_archive_until_it_is_stopped(
    orthanc: OrthancServer, bundle: Path, tmp_path: Path
) -> None:
    orthanc.store(FILMS[:2])
    home = tmp_path / "home"
    words = _words(home, "films", "--url", orthanc.dicom_web, "--bundle", str(bundle), "--every", "1")
    process = subprocess.Popen(
        words, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert "2 taken" in process.stdout.readline()
        orthanc.store(FILMS[2:4])
        assert "2 taken + 2 up to date" in process.stdout.readline()
        orthanc.delete(FILMS[0].StudyInstanceUID)
        assert "Removed: 2." in process.stdout.readline()
    finally:
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the same command goes on from there" in told
    assert _ids(home) == orthanc.instances()
