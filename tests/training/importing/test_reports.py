"""Reports in every format give the same sections, nothing that names anybody, and get to their images."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tests.training.clinical.reports.documents import (
    ACCESSION,
    KEY,
    MARKERS,
    PATIENT,
    STUDY,
    TEXT,
    as_json,
    code,
    fhir_report,
    hl7_report,
    structured_report,
    text_report,
)
from tests.training.importing.report_reading import read_all, read_one, texts_of
from training.clinical.pseudonyms import keyed_hash
from training.clinical.reports.study_report import ReportError, StudyReport
from training.common.errors import DataError
from training.common.manifest import read_manifest, write_manifest
from training.common.record import Record
from training.importing.reports import ORDER, LeftOutFile, ReadReport, attach_source, read_reports

ACCESSION_KEY = f"accession:{keyed_hash(KEY, 'accession', ACCESSION)}"


def _write(folder: Path, kind: str) -> Path:
    path = (
        folder
        / {"hl7": "a.hl7", "fhir": "a.json", "sr": "a.dcm", "csv": "a.csv", "text": f"{ACCESSION}.txt"}[kind]
    )
    if kind == "hl7":
        path.write_bytes(hl7_report())
    elif kind == "fhir":
        path.write_text(as_json(fhir_report()))
    elif kind == "sr":
        structured_report().save_as(path, enforce_file_format=True)
    elif kind == "csv":
        lines = [
            "Study Instance UID;Accession Number;Patient ID;Patient Name;Radiologist;report;Report Date;Note",
            f"{STUDY};{ACCESSION};{PATIENT};{MARKERS[0]};Dr. {MARKERS[1]};"
            f'"{TEXT}";04.03.2024 12:00;{MARKERS[2]}',
        ]
        path.write_text("\n".join(lines))
    else:
        path.write_text(text_report())
    return path


@pytest.mark.parametrize("kind", ["hl7", "fhir", "sr", "csv"])
def test_every_format_gives_the_same_report(tmp_path: Path, kind: str) -> None:
    report = read_one(_write(tmp_path, kind))
    assert report.keys[:2] == (f"study:{STUDY}", ACCESSION_KEY)
    assert report.patient == keyed_hash(KEY, "patient", PATIENT)
    assert report.status == "final"
    assert [section.kind for section in report.sections] == ["indication", "findings", "impression"]
    assert [section.text for section in report.sections] == [
        "Cough.",
        "Small left effusion. No pneumothorax.",
        "Left effusion.",
    ]
    assert report.issued is not None
    assert not report.issued.startswith("2024-03-04")


@pytest.mark.parametrize("ending", [".dcm", ""])
def test_a_structured_report_without_preamble_is_read(tmp_path: Path, ending: str) -> None:
    whole = _write(tmp_path, "sr")
    content, expected = whole.read_bytes(), read_one(whole)
    whole.unlink()
    starts = content.index(b"DICM") + 4, content.index(b"\x08\0\x16\0UI")
    for number, start in enumerate(starts):
        (tmp_path / f"{number}{ending}").write_bytes(content[start:])
        assert read_one(tmp_path / f"{number}{ending}") == expected


def test_a_text_file_is_named_after_its_study(tmp_path: Path) -> None:
    report = read_one(_write(tmp_path, "text"))
    assert report.keys == (ACCESSION_KEY,)
    assert texts_of(report) == {
        "EXAM": "Chest, ___",
        "HISTORY": "Mr. ___ has a cough since ___.",
        "COMPARISON": "Film of ___.",
        "FINDINGS": "Small left effusion. No pneumothorax.",
        "IMPRESSION": "1. Left effusion.\nFindings were discussed with ___.",
    }
    by_uid = tmp_path / f"{STUDY}.txt"
    by_uid.write_text("No effusion.")
    assert read_one(by_uid).keys == (f"study:{STUDY}",)


@pytest.mark.parametrize("kind", ["hl7", "fhir", "sr", "csv", "text"])
def test_no_marker_is_left(tmp_path: Path, kind: str) -> None:
    kept = repr(read_one(_write(tmp_path, kind))).lower()
    assert [marker for marker in MARKERS if marker.lower() in kept] == []
    for secret in (ACCESSION, PATIENT, "1950", "4711", "2024"):
        assert secret.lower() not in kept


def test_names_of_the_head_are_taken_out_of_the_text(tmp_path: Path) -> None:
    name = MARKERS[2]
    path = tmp_path / "a.hl7"
    path.write_bytes(
        hl7_report([f"FINDINGS: {name} has an effusion; {name.upper()}'s heart is normal. ID {PATIENT}."])
    )
    assert texts_of(read_one(path)) == {"FINDINGS": "___ has an effusion; ___ heart is normal. ID ___."}


def test_a_folder_counts_what_it_passes_over(tmp_path: Path) -> None:
    for kind in ("hl7", "fhir", "sr", "csv", "text"):
        _write(tmp_path, kind)
    (tmp_path / "b.pdf").write_bytes(b"%PDF")
    (tmp_path / "._a.txt").write_bytes(b"x")
    (tmp_path / "@eaDir").mkdir()
    (tmp_path / "@eaDir" / "a.txt").write_text("x")
    (tmp_path / "win.txt").write_bytes("Befund: Ödem.".encode("cp1252"))
    found = list(read_reports(tmp_path, KEY))
    listed = subprocess.run(
        ORDER.replace("SOURCE", str(tmp_path)), shell=True, capture_output=True, text=True, check=True
    )
    place = listed.stdout.splitlines().index(str(tmp_path / "b.pdf")) + 1
    assert [own.location for own in found if isinstance(own, LeftOutFile)] == [f"File {place}"]
    reports = [own.report for own in found if isinstance(own, ReadReport)]
    assert sum(isinstance(report, StudyReport) for report in reports) == 5
    (refused,) = [report for report in reports if isinstance(report, ReportError)]
    assert "is not UTF-8" in str(refused)
    read = list(read_reports(tmp_path / "win.txt", KEY, encoding="windows-1252"))
    assert isinstance(read[0], ReadReport)
    assert isinstance(read[0].report, StudyReport)


def test_a_table_without_its_columns_ends_with_a_sentence(tmp_path: Path) -> None:
    for table, message in (
        ("report,date\nx,y", "no column for the study"),
        ("accession,date\nx,y", "no column with reports"),
        ("accession,accession,report\nx,y,z", "its first line names each column once"),
    ):
        (tmp_path / "a.csv").write_text(table)
        with pytest.raises(DataError, match=message):
            read_all(tmp_path / "a.csv")


def test_rows_of_a_table_that_cannot_be_taken_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = ["accession,findings,impression,status,date", "A1,No effusion.,Normal chest.,final,2024-01-31"]
    rows += ["A2,No effusion.,,odd,", "A3,No effusion.,,,yesterday", ",No effusion.,,,", "A5,,,,", "A6,a,b"]
    path.write_text("\n".join(rows))
    found = [own for own in read_reports(path, KEY) if isinstance(own, ReadReport)]
    assert isinstance(found[0].report, StudyReport)
    assert texts_of(found[0].report) == {"FINDINGS": "No effusion.", "IMPRESSION": "Normal chest."}
    assert [own.location for own in found] == [f"File 1, line {line}" for line in range(2, 8)]
    assert all(isinstance(own.report, ReportError) for own in found[1:])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "accession,findings\nA1,Zqxmüller\n".encode("latin-1")),
        ("b.csv", b"accession,zqxmarker,zqxmarker,findings\nA1,,,No effusion.\n"),
        ("c.csv", b"zqxmarker,zqxother\n1,2\n"),
        ("d.csv", b'{"accession": "A1", "report": {"zqxmarker": 1}}\n'),
        ("e.txt", b"Patient: Zqxm\xfcller\nIMPRESSION: Normal."),
        ("f.json", b'{"zqxmarker": 1}'),
        ("g.ndjson", b"zqxmarker\n"),
        ("h.hl7", b"zqxmarker"),
        ("i.zqxmarker", b"zqxmarker"),
        ("j.hl7", b"MSH|^~\\&|zqxmarker||||||ORU^R01|1|P|2.5|||||||ZQXMARKER\rPID|zqxmarker"),
    ],
)
def test_refusals_say_nothing_of_a_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "zqxfolder").mkdir()
    (tmp_path / "zqxfolder" / f"zqx{name}").write_bytes(content)
    found = list(read_reports(tmp_path, KEY))
    assert found
    for own in found:
        reason = own.reason if isinstance(own, LeftOutFile) else own.report
        assert isinstance(reason, str | ReportError)
        assert "zqx" not in f"{own.location} {reason}".lower()
    with pytest.raises(DataError, match="is not there") as raised:
        list(read_reports(tmp_path / "zqxnone", KEY))
    assert "zqx" not in str(raised.value)


def test_a_manifest_gets_the_reports_of_a_folder(tmp_path: Path) -> None:
    data, source = tmp_path / "data", tmp_path / "reports"
    data.mkdir()
    source.mkdir()
    Image.new("L", (8, 8)).save(data / "a.png")
    accession = {"accession": keyed_hash(KEY, "accession", ACCESSION)}
    record = Record(id="a", image="a.png", split="test", metadata=accession)
    other = Record(id="b", image="a.png", split="test")
    known = {"study": STUDY, "patient": keyed_hash(KEY, "patient", PATIENT)}
    film = Record(id="c", image="a.png", split="test", metadata=known)
    write_manifest(data, [record, other])
    (source / "a.hl7").write_bytes(hl7_report(["IMPRESSION: Left effusion."]))
    (source / "b.hl7").write_bytes(hl7_report(accession="Q", study=None))
    (source / "c.hl7").write_bytes(b"")
    (source / "d.pdf").write_bytes(b"")
    for _ in range(2):
        attached = attach_source(data, source, KEY)
        assert attached.refused == ("File 3: it has no message that begins with MSH.",)
        assert attached.sentences == (
            "Reports: 4 found = 1 matched + 1 without an image + 1 refused + 1 left out.",
            "Left out: 1 files (.pdf: not known as a format of reports).",
        )
        a, b = read_manifest(data).records
        assert a == replace(
            record,
            texts=("Left effusion.",),
            report="IMPRESSION: Left effusion.",
            labels=("Pleural Effusion",),
            metadata={**accession, "report_status": "final"},
        )
        assert b == other
        assert (attached.contents.texts, attached.contents.with_texts, attached.contents.records) == (1, 1, 2)
    write_manifest(data, [film])
    (source / "a.hl7").write_bytes(hl7_report(["INDICATION: Cough.", "COMPARISON: None."]))
    (source / "b.hl7").write_bytes(hl7_report(patient="Q"))
    measured = [code("126000", "DCM", "Imaging Measurement Report of Jane Roe")]
    structured_report(ConceptNameCodeSequence=measured).save_as(source / "c.hl7", enforce_file_format=True)
    attached = attach_source(data, source, KEY)
    assert attached.refused == (
        "File 2, message 1: its patient is another one than that of its study's images.",
    )
    assert attached.sentences == (
        "Reports: 4 found = 1 matched + 0 without an image + 1 refused + 2 left out.",
        "Left out: 1 files (.pdf: not known as a format of reports).",
        "Left out: 1 files (measurements or results of programs: Imaging Measurement Report).",
        "Of another patient than the images of their study: 1 of the refused reports.",
        "Matched, without text that describes the image: 1 reports (File 1, message 1).",
    )
    assert (attached.contents.texts, attached.contents.with_texts) == (0, 0)
    assert not any("fragments" in sentence for sentence in attached.contents.sentences())
