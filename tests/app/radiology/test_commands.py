"""`recoquest reports` and `findings`: what becomes of images, and what is printed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from index.audit.listing import Selection, read_events
from index.catalogue.images import StoredImage
from index.catalogue.tables import ReportRow
from index.errors import CatalogueError
from index.keys.home_secret import patient_key
from index.writes.live import remove_images
from tests.app.commands import run_command, said
from tests.app.conftest import COLLECTION, Indexed
from tests.app.radiology.reports.films import give_studies, holding, set_details, stored
from tests.index.audit.trails import taking_no_events
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
from training.clinical.findings import CHEXPERT_LABELS, FINDINGS
from training.clinical.pseudonyms import keyed_hash
from training.common.errors import RecoquestError

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


def _stated(image: StoredImage) -> set[tuple[str, str]]:
    return {(finding.finding, finding.state) for finding in image.findings}


def _counted(said: str) -> str:
    return next(line for line in said.splitlines() if " found = " in line).partition(": ")[2]


def test_reports_reach_all_images_of_their_studies(films: Indexed, tmp_path: Path) -> None:
    folder = _write(tmp_path / "in", a=hl7_report(), b=hl7_report(["Nodule."], accession="A3", study=None))
    _write(
        folder, c=hl7_report(accession="unknown", study=None), d=hl7_report(study=f"{STUDY}.4", accession="Q")
    )
    (folder / "e.hl7").write_text("nothing")
    (folder / "f.pdf").write_text("nothing")
    said = _run(films, folder)
    assert _counted(said) == "6 found = 2 matched + 1 waiting + 2 refused + 1 left out; 3 images changed."
    assert "Refused: File 4, message 1: its patient is another one than that of its study's images." in said
    assert "Refused: File 5: it has no message that begins with MSH." in said
    assert "File numbers are places in: find SOURCE ! -type d | LC_ALL=C sort." in said
    assert "Left out: 1 files (.pdf: not known as a format of reports)." in said
    for name in ("image-1", "image-2"):
        image = stored(films, name)
        assert image.report == KEPT
        assert image.texts == ("Small left effusion.", "No pneumothorax.", "Left effusion.")
        assert image.labels == ("own", "Pleural Effusion")
        assert image.metadata["report_status"] == "final"
        assert _stated(image) == {("pleural effusion", "present"), ("pneumothorax", "absent")}
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
    said = _run(films, folder)
    assert _counted(said) == "4 found = 3 matched + 0 waiting + 1 refused + 0 left out; 2 images changed."
    assert "File 3, message 1: images of several patients have its study, and it names no patient." in said
    assert "Of another patient than the images of their study: 1 of the refused reports." in said
    assert "Matched, without text that describes the image: 1 reports (File 4, message 1)." in said
    assert [stored(films, f"image-{n}").report for n in (1, 2)] == [
        "IMPRESSION: Mass.",
        "IMPRESSION: Nodule.",
    ]
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
    # An image of the study that comes after all of this gets the report, too.
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
    steps = [
        (hl7_report(["FINDINGS: Mass?"], status="P", issued="20240301"), "FINDINGS: Mass?", "preliminary"),
        (hl7_report(["IMPRESSION: No mass."], issued="20240302"), "IMPRESSION: No mass.", "final"),
        (hl7_report(["IMPRESSION: Late."], status="P", issued="20240303"), "IMPRESSION: No mass.", "final"),
        (
            hl7_report(["ADDENDUM: A rib fracture."], issued="20240304"),
            "IMPRESSION: No mass.\n\nADDENDUM: A rib fracture.",
            "final",
        ),
        (
            hl7_report(["IMPRESSION: Small mass."], status="C", issued="20240305"),
            "IMPRESSION: Small mass.\n\nADDENDUM: A rib fracture.",
            "corrected",
        ),
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
    said = _run(films, folder)
    assert _counted(said).startswith("6 found = 4 matched + 1 waiting + 1 refused")
    for marker in (*MARKERS, ACCESSION, PATIENT):
        assert holding(films.settings.home, marker) == [], marker
        assert marker.lower() not in caplog.text.lower()
        assert marker.lower() not in said.lower()


def test_reports_go_with_the_last_image_of_their_study(films: Indexed, tmp_path: Path) -> None:
    _run(
        films, _write(tmp_path / "in", a=hl7_report(), b=hl7_report(["Nodule."], accession="A3", study=None))
    )
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


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("arguments", "told", "not_told"),
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
def test_findings_are_printed_for_people(arguments: list[str], told: list[str], not_told: list[str]) -> None:
    shown = run_command("findings", *arguments).stdout
    assert [part for part in told if part not in shown] == []
    assert [part for part in not_told if part in shown] == []


def _finding(finding: str, state: str, start: int, end: int, *, prior: bool = False) -> dict[str, object]:
    return {"finding": finding, "state": state, "start": start, "end": end, "prior": prior}


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("arguments", "found"),
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], found: object
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.txt").write_text("Œdème? No oedema.", encoding="utf-8")
    assert json.loads(run_command("findings", *arguments, "--json").stdout) == found


@pytest.mark.usefixtures("plain")
def test_without_a_text_all_findings_are_listed() -> None:
    assert run_command("findings").stdout.split("\n") == [*FINDINGS, ""]


@pytest.mark.usefixtures("plain")
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
    assert message in said(run_command("findings", *options, "--file", file, code=2 if options else 1))
