"""`recoquest reports`, `findings` and `pacs sync`: what becomes of images, and what is printed."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from app.application import create_app
from app.engine import open_engine
from app.radiology.reports import ReportIntake
from app.settings import Settings
from index.audit.listing import Selection, read_events
from index.catalogue.tables import ReportRow
from index.errors import CatalogueError
from index.keys.home_secret import patient_key
from index.writes.live import remove_images
from tests.access import OPEN
from tests.app.commands import plain_output, run_command
from tests.app.conftest import COLLECTION, Indexed, make_bundle
from tests.app.radiology import small_archive
from tests.app.radiology.conftest import ids_of
from tests.app.radiology.films import give_studies, holding, set_details, stored
from tests.dicom_films import MARKER, make_film, uid
from tests.e2e.work import COMMAND, run_here
from tests.index.audit.trails import taking_no_events
from tests.orthanc import OrthancPrograms, OrthancServer, serve_orthanc
from tests.training.clinical.reports.documents import (
    ACCESSION,
    MARKERS,
    PATIENT,
    STUDY,
    as_json,
    fhir_report,
    hl7_report,
    structured_report,
    text_report,
)
from training.clinical.findings import CHEXPERT_LABELS
from training.clinical.pseudonyms import keyed_hash
from training.clinical.reports.study_report import StudyReport
from training.clinical.text.vocabulary import FINDINGS
from training.common.errors import RecoquestError
from training.importing.reports import ReadReport, read_reports

KEPT = "INDICATION: Cough.\n\nFINDINGS: Small left effusion. No pneumothorax.\n\nIMPRESSION: Left effusion."


@pytest.fixture
def films(own: Indexed) -> Indexed:
    give_studies(own)
    return own


def _run(indexed: Indexed, *arguments: object) -> str:
    return indexed.run("reports", COLLECTION, *arguments, "--device", "cpu").output


def _write(folder: Path, **messages: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in messages.items():
        (folder / f"{name}.hl7").write_bytes(content)
    return folder


def _counted(output: str) -> str:
    return next(line for line in output.splitlines() if " found = " in line).partition(": ")[2]


def test_reports_reach_all_images_of_their_studies(films: Indexed, tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", a=hl7_report(), b=hl7_report(["Nodule."], accession="A3", study=None))
    other = hl7_report(study=f"{STUDY}.4", accession="Q")
    _write(folder, c=hl7_report(accession="unknown", study=None), d=other)
    (folder / "e.hl7").write_text("nothing")
    (folder / "f.pdf").write_text("nothing")
    output = _run(films, folder)
    assert _counted(output) == "6 found = 2 matched + 1 waiting + 2 refused + 1 left out; 3 images changed."
    assert "Refused: File 4, message 1: its patient is another one than that of its study's images." in output
    assert "Refused: File 5: it has no message that begins with MSH." in output
    assert "File numbers are places in: find SOURCE ! -type d | LC_ALL=C sort." in output
    assert "Left out: 1 files (.pdf: not known as a format of reports)." in output
    for name in ("image-1", "image-2"):
        image = stored(films, name)
        assert image.report == KEPT
        assert image.texts == ("Small left effusion.", "No pneumothorax.", "Left effusion.")
        assert image.labels == ("own", "Pleural Effusion")
        assert image.metadata["report_status"] == "final"
        stated = {(finding.finding, finding.state) for finding in image.findings}
        assert stated == {("pleural effusion", "present"), ("pneumothorax", "absent")}
        for finding in image.findings:
            text = image.report if finding.position is None else image.texts[finding.position]
            assert text[finding.start : finding.end] in ("effusion", "pneumothorax")
    assert stored(films, "image-3").report == "Nodule."
    assert stored(films, "image-4").report is None
    again = _run(films, folder)
    assert _counted(again) == "6 found = 2 matched + 1 waiting + 2 refused + 1 left out; 0 images changed."


def test_a_report_is_at_the_images_of_its_own_patient_alone(films: Indexed, tmp_path: Path) -> None:
    key = patient_key(films.settings.home)
    with films.engine() as engine:
        set_details(engine, "image-2", {"study": STUDY, "patient": keyed_hash(key, "patient", "P2")})
    folder = _write(
        tmp_path / "in",
        a=hl7_report(["IMPRESSION: Mass."], patient=f"NAT1~{PATIENT}"),
        b=hl7_report(["IMPRESSION: Nodule."], patient="P2~NAT2"),
        c=hl7_report(["IMPRESSION: Edema."], patient=""),
        d=hl7_report(["INDICATION: Cough."], patient="P2", issued="20240401"),
    )
    output = _run(films, folder)
    assert _counted(output) == "4 found = 3 matched + 0 waiting + 1 refused + 0 left out; 2 images changed."
    assert "File 3, message 1: images of several patients have its study, and it names no patient." in output
    assert "Of another patient than the images of their study: 1 of the refused reports." in output
    assert "Matched, without text that describes the image: 1 reports (File 4, message 1)." in output
    kept = [stored(films, f"image-{n}").report for n in (1, 2)]
    assert kept == ["IMPRESSION: Mass.", "IMPRESSION: Nodule."]
    _run(films, _write(tmp_path / "gone", a=hl7_report(status="X", patient="P2", issued="20240501")))
    assert [stored(films, f"image-{n}").report for n in (1, 2)] == ["IMPRESSION: Mass.", None]


def test_reports_wait_for_images_that_come_later(films: Indexed, tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", a=hl7_report(study="1.2.3.4.5", accession="later"))
    assert "1 waiting" in _run(films, folder)
    assert "0 reports matched, 1 waiting; 0 images changed" in _run(films)
    with films.engine() as engine:
        set_details(engine, "image-5", {"study": "1.2.3.4.5"})
    assert "1 reports matched, 0 waiting; 1 images changed" in _run(films)
    assert stored(films, "image-5").report == KEPT
    # An image of the study that arrives after all of this also gets the report.
    with films.engine() as engine:
        set_details(engine, "image-6", {"study": "1.2.3.4.5"})
    assert "1 images changed" in _run(films)
    assert stored(films, "image-6").report == KEPT


def test_waiting_reports_can_be_forgotten(films: Indexed, tmp_path: Path) -> None:
    _run(films, _write(tmp_path / "in", a=hl7_report(study="1.2.3.4.5", accession="later")))
    assert "1 reports that waited are forgotten" in _run(films, "--drop-waiting")
    assert "0 reports matched, 0 waiting" in _run(films)


def test_a_change_and_its_event_are_one(films: Indexed, tmp_path: Path) -> None:
    waiting = _write(tmp_path / "waiting", a=hl7_report(study="1.2.3.4.5", accession="later"))
    _run(films, waiting)
    with films.engine() as engine, taking_no_events(engine.home.catalogue):
        with pytest.raises(CatalogueError):
            _run(films, "--drop-waiting")
        with pytest.raises(CatalogueError):
            _run(films, _write(tmp_path / "in", a=hl7_report()))
    assert stored(films, "image-1").report is None
    assert "2 images changed" in _run(films, tmp_path / "in")
    assert "1 reports that waited are forgotten" in _run(films, "--drop-waiting")
    with films.read() as session:
        events = read_events(session, Selection(), limit=10)
    assert [(event.record["action"], event.ids) for event in events] == [
        ("change", ("image-1",)),
        ("change", ("image-2",)),
        ("delete", ()),
    ]
    assert events[2].record["details"] == {"operation": "reports", "reports": 1}


def test_versions_of_a_report(films: Indexed, tmp_path: Path) -> None:
    rib, small = "ADDENDUM: A rib fracture.", "IMPRESSION: Small mass."
    steps = [
        (hl7_report(["FINDINGS: Mass?"], status="P", issued="20240301"), "FINDINGS: Mass?", "preliminary"),
        (hl7_report(["IMPRESSION: No mass."], issued="20240302"), "IMPRESSION: No mass.", "final"),
        (hl7_report(["IMPRESSION: Late."], status="P", issued="20240303"), "IMPRESSION: No mass.", "final"),
        (hl7_report([rib], issued="20240304"), f"IMPRESSION: No mass.\n\n{rib}", "final"),
        (hl7_report([small], status="C", issued="20240305"), f"{small}\n\n{rib}", "corrected"),
        (hl7_report(["IMPRESSION: Older."], issued="20240229"), None, "corrected"),
        (hl7_report(status="X", issued="20240306"), "", None),
    ]
    for number, (message, text, status) in enumerate(steps):
        _run(films, _write(tmp_path / f"in{number}", a=message))
        image = stored(films, "image-1")
        if text is not None:
            assert (image.report or "") == text
        assert image.metadata.get("report_status") == status
    assert (image.texts, image.labels) == ((), ("own",))


def test_no_marker_is_found_anywhere(
    films: Indexed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _write(tmp_path / "in", a=hl7_report(), b=hl7_report(study="1.2.3.4.5", accession="later"))
    (folder / f"{MARKERS[0]}.json").write_text(as_json(fhir_report()))
    structured_report().save_as(folder / "sr.dcm", enforce_file_format=True)
    (folder / f"{ACCESSION}.txt").write_text(text_report())
    (folder / "bad.hl7").write_bytes(hl7_report(kind="ADT^A01"))
    output = _run(films, folder)
    assert _counted(output).startswith("6 found = 4 matched + 1 waiting + 1 refused")
    for marker in (*MARKERS, ACCESSION, PATIENT):
        assert holding(films.settings.home, marker) == [], marker
        assert marker.lower() not in caplog.text.lower()
        assert marker.lower() not in output.lower()


def test_reports_go_with_the_last_image_of_their_study(films: Indexed, tmp_path: Path) -> None:
    other = hl7_report(["Nodule."], accession="A3", study=None)
    _run(films, _write(tmp_path / "in", a=hl7_report(), b=other))
    with films.engine() as engine:
        for image, left in ((None, 2), ("image-1", 2), ("image-2", 1), ("image-3", 0)):
            remove_images(engine.home, COLLECTION, [image] if image else [])
            with engine.home.catalogue.read() as session:
                assert len(session.execute(select(ReportRow.study)).all()) == left


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nowhere"], "is not there"), (["a.csv", "--format", "csv"], "no column for the study")],
)
def test_what_cannot_be_read_ends_in_a_sentence(
    films: Indexed, tmp_path: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(RecoquestError, match=message):
        _run(films, *arguments)


@pytest.mark.slow
def test_reports_are_brought_on_postgresql(
    make_indexed: Callable[..., Indexed], postgresql: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed = make_indexed(database_url=postgresql.new_database())  # type: ignore[attr-defined]
    monkeypatch.setenv("RECOQUEST_DATABASE_URL", indexed.settings.database_url or "")
    give_studies(indexed)
    folder = _write(tmp_path / "in", a=hl7_report(), b=hl7_report(accession="unknown", study=None))
    assert _counted(_run(indexed, folder)).startswith("2 found = 1 matched + 1 waiting")
    assert stored(indexed, "image-2").report == KEPT
    shutil.rmtree(folder)


REPORT = "No pneumothorax. Possible edema. Pacemaker."


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize(
    ("arguments", "expected", "not_told"),
    [
        (["No effusion[bold]. Possible mass."], ["pleural effusion", "absent", "3 to 11", "uncertain"], []),
        (["Two dogs."], ["`recoquest findings` lists it"], []),
        (["Sin pneumothorax ni derrame."], ["neither English nor German"], []),
        ([REPORT, "--labels"], ["No Finding", "uncertain"], []),
        (["Sin pneumothorax.", "--labels"], ["it has no labels"], []),
        (["No PTX. Blorf at the left apex."], ["Not understood: Blorf."], []),
        (["No PTX. Blorf at the left apex.", "--labels"], ["Not understood: Blorf."], []),
        (["No PTX. The lungs are clear."], ["pneumothorax"], ["Not understood"]),
        (["No PTX. The lungs are clear.", "--labels"], ["Pneumothorax"], ["Not understood"]),
        (["Blorf.", "--json"], ["[]"], ["Not understood"]),
    ],
)
def test_findings_are_printed_for_people(
    arguments: list[str], expected: list[str], not_told: list[str]
) -> None:
    shown = run_command("findings", *arguments).stdout
    assert [part for part in expected if part not in shown] == []
    assert [part for part in not_told if part in shown] == []


def _finding(finding: str, state: str, start: int, end: int, *, prior: bool = False) -> dict[str, object]:
    return {"finding": finding, "state": state, "start": start, "end": end, "prior": prior}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["No effusion."], [_finding("pleural effusion", "absent", 3, 11)]),
        (["--file", "report.txt"], [_finding("pulmonary edema", "absent", 10, 16)]),
        (["Two dogs."], []),
        (["Sin pneumothorax ni derrame."], []),
        (
            ["The effusion is unchanged since the prior film. Cardiomegaly."],
            [
                _finding("pleural effusion", "present", 4, 12, prior=True),
                _finding("cardiomegaly", "present", 48, 60),
            ],
        ),
        (
            [REPORT, "--labels"],
            {"Edema": "uncertain", "Pneumothorax": "absent", "Support Devices": "present"},
        ),
        (["--labels"], list(CHEXPERT_LABELS)),
    ],
)
def test_findings_are_printed_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: object
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.txt").write_text("Œdème? No oedema.", encoding="utf-8")
    assert json.loads(run_command("findings", *arguments, "--json").stdout) == expected


def test_without_a_text_all_findings_are_listed() -> None:
    assert run_command("findings").stdout.split("\n") == [*FINDINGS, ""]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, (), "cannot be read: No such file"),
        (b"\xff\xfe", (), "is not text in UTF-8"),
        (b"Mass.", ("Mass.",), "a text or a file, not both"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | None, options: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "report.txt"
    if content is not None:
        file.write_bytes(content)
    assert message in plain_output(
        run_command("findings", *options, "--file", file, code=2 if options else 1)
    )


# The date and the archive's address.
ORIGINAL = (b"20240115", b"2024-01-15", b"dicom-web")
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


@pytest.mark.slow
def test_films_of_the_archive_are_found_and_say_nothing_of_their_patients(
    orthanc: OrthancServer, bundle: Path, tmp_path: Path
) -> None:
    orthanc.store(FILMS)
    home = tmp_path / "home"
    done = _command(home, "films", "--url", orthanc.dicom_web, "--bundle", str(bundle))
    assert done.returncode == 0, done.stderr
    counts = "6 taken + 0 up to date + 0 refused + 0 left out + 0 quarantined"
    assert done.stdout == f"films: 3 studies; 6 instances found = {counts}.\n"
    again = _here(home, "films", "--url", orthanc.dicom_web)
    assert "6 instances found = 0 taken + 6 up to date" in again.stdout
    settings = Settings(home=home, threads=1, device="cpu", **OPEN)
    with TestClient(create_app(settings), "http://localhost") as client:
        response = client.post("/v1/collections/films/search", json={"text": "a heart", "limit": 3})
        hits = response.json()["hits"]
        assert len(hits) == 3
        metadata = hits[0]["metadata"]
        assert metadata["modality"] == "DX"
        assert metadata["sop"] == hits[0]["id"]
        assert re.fullmatch("[0-9a-f]{16}", metadata["patient"])
    _assert_no_trace(home, done.stdout, done.stderr, again.stdout, again.stderr, response.text)


@pytest.mark.slow
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


@pytest.mark.slow
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
            assert not any(one in content for one in (MARKER.encode(), *ORIGINAL)), path


@pytest.mark.slow
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
    ("arguments", "expected"),
    [
        (("films",), "give the archive's address"),
        (("films", "--url", "http://reader:word@pacs/dicom-web"), "without a user"),
        (("films", "--url", "http://pacs", "--from", "2024"), "'2024' is not a date"),
        (("films", "--url", "http://pacs", "--from", "2024-02-01", "--to", "2024-01-01"), "--from is after"),
        (("films", "--url", "http://pacs", "--hours", "6"), "not two different hours"),
        (("films", "--rate", "0.009"), "'--rate': Input should be greater than or equal to 0.01"),
        (("films", "--every", "0.9"), "'--every': Input should be greater than or equal to 1"),
        (("films", "--url", "http://pacs", "--once", "--every", "5"), "not both"),
        (("films", "--url", "http://pacs", "--study", "7"), "give a Study Instance UID"),
        (("films", "--url", "http://pacs", "--study", "1.2.3.4", "--every", "5"), "--study and --every"),
        (("films", "--url", "http://pacs", "--note"), "give --study as well"),
        (("films", "--url", "http://pacs", "--note", "--study", "1.2.3.4"), "RECOQUEST_PACS_WRITE_BACK"),
        (("films", "--url", "http://pacs", "--quarantined", "/"), "/ cannot be written (Is a directory)"),
        (("films", "--url", "http://127.0.0.1:9/dicom-web"), "There is no collection 'films'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    arguments: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    done = _here(tmp_path / "home", *arguments)
    assert done.returncode in (1, 2)
    assert expected in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert "word@" not in done.stderr


@pytest.mark.slow
def test_it_follows_the_archive_and_says_what_each_pass_changed(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, paused = small_archive.SmallArchive(FILMS[:1]), list[float]()
    burnt = make_film(9, BurnedInAnnotation="YES")

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 5:
            raise KeyboardInterrupt
        # Nothing is new at first; then the archive fails; then there is another film, and then none.
        archive.faults = [(403, {}, b"")] if len(paused) == 2 else []
        archive.films = ([], FILMS[:1], FILMS[:1], [*FILMS[:1], burnt], [])[len(paused)]

    monkeypatch.setattr("app.radiology.commands.time", SimpleNamespace(sleep=pause))
    options = ("films", "--bundle", str(bundle), "--every", "2.5")
    with small_archive.serve(archive):
        done = _here(tmp_path / "home", *options, "--url", archive.url)
    assert (done.returncode, paused) == (130, [2.5] * 5)
    one = "1 studies; 1 instances found = 1 taken + 0 up to date + 0 refused + 0 left out + 0 quarantined"
    assert done.stdout.splitlines() == [f"films: {one}.", f"films: {one.replace('1 ', '0 ')}. Removed: 1."]
    output = [line for line in done.stderr.splitlines() if not line.startswith("Syncing")]
    assert output[0].endswith("user, password or token. The next pass is in 2.5 seconds.")
    assert output[1] == "1 quarantined: BurnedInAnnotation is YES."
    assert output[2:] == [
        "recoquest: Stopped. What is written is kept; the same command continues from there."
    ]


@pytest.mark.slow
def test_a_process_follows_the_archive_until_it_is_stopped(
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
    assert "the same command continues from there" in told
    assert _ids(home) == orthanc.instances()


@pytest.mark.usefixtures("json_log")
def test_reports_are_listened_for_where_this_machine_alone_reaches_them(
    films: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    monkeypatch.setattr("app.radiology.reports.Listener.run", lambda *of: ran.append(of[1].getsockname()[1]))
    shown = films.run("hl7", COLLECTION, "--port", 0).stderr
    assert shown == f"Listening for HL7 on 127.0.0.1:{ran[0]}, for {COLLECTION}.\n"
    with pytest.raises(RecoquestError, match=r"Everybody who reaches 0\.0\.0\.0 could write reports"):
        films.run("hl7", COLLECTION, "--port", 0, "--host", "0.0.0.0")


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
