"""Reports in every format give the same sections, nothing that names anybody, and get to their images."""

import base64
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pydicom import Dataset
from pydicom.uid import DeflatedExplicitVRLittleEndian

from tests.training.clinical.reports.documents import (
    ACCESSION,
    KEY,
    MARKERS,
    PATIENT,
    STUDY,
    TEXT,
    as_json,
    code,
    container,
    fhir_report,
    hl7_report,
    item,
    structured_report,
    text_item,
    text_report,
)
from tests.training.importing.report_reading import read_all, read_one, texts_of
from training.clinical.findings.chexpert import chexpert_labels
from training.clinical.pseudonyms import keyed_hash
from training.clinical.reports import structured
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


def test_fhir_in_bundles_lines_and_parts(tmp_path: Path) -> None:
    observation: dict[str, Any] = {"resourceType": "Observation", "id": "o", "valueString": "Small effusion."}
    observation["code"] = {"text": "Findings"}
    bare = fhir_report(conclusion="Left effusion.", result=[{"reference": "Observation/o"}])
    del bare["presentedForm"]
    bare["text"] = {
        "status": "generated",
        "div": f"<div><p>Patient: {MARKERS[0]}</p><p>TECHNIQUE: PA &amp; lateral.</p></div>",
    }
    bundle = {"resourceType": "Bundle", "entry": [{"resource": bare}, {"resource": observation}]}
    path = tmp_path / "a.json"
    path.write_text(as_json(bundle))
    assert texts_of(read_one(path)) == {
        "TECHNIQUE": "PA & lateral.",
        "FINDINGS": "Small effusion.",
        "IMPRESSION": "Left effusion.",
    }
    lines = tmp_path / "b.ndjson"
    lines.write_text(f"{as_json(fhir_report())}\n\n{{\n{as_json({'resourceType': 'Patient'})}\n")
    report, broken, other = read_all(lines)
    assert isinstance(report, StudyReport)
    assert (broken, other) == ("it is not JSON", "it has no DiagnosticReport")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            {"contentType": "text/html", "data": "<h1>Findings</h1><p>No effusion.</p>"},
            {"FINDINGS": "No effusion."},
        ),
        (
            {"contentType": "text/plain; charset=iso-8859-1", "data": "Befund: Ödem.".encode("latin-1")},
            {"BEFUND": "Ödem."},
        ),
        ({"contentType": "application/pdf", "data": b"%PDF"}, "documents such as PDF"),
        ({"contentType": "text/html", "data": "<![other [<p>No effusion.</p>"}, "its HTML cannot be read"),
        ({"contentType": "text/plain", "data": b"\xff\xfe\xff"}, "is not text in its character set"),
    ],
)
def test_forms_of_fhir(tmp_path: Path, form: dict[str, Any], text: dict[str, str] | str) -> None:
    data = form["data"].encode() if isinstance(form["data"], str) else form["data"]
    path = tmp_path / "a.json"
    path.write_text(as_json(fhir_report(presentedForm=[form | {"data": base64.b64encode(data).decode()}])))
    (report,) = read_all(path)
    if isinstance(text, str):
        assert isinstance(report, str)
        assert text in report
    else:
        assert isinstance(report, StudyReport)
        assert texts_of(report) == text


def test_status_of_fhir(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    status = {"preliminary": "preliminary", "amended": "amended", "appended": "amended"}
    for given, own in {**status, "corrected": "corrected", "entered-in-error": "withdrawn"}.items():
        path.write_text(as_json(fhir_report(status=given)))
        assert read_one(path).status == own


@pytest.mark.parametrize("issued", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_at_the_ends_of_the_calendar_is_left_out(tmp_path: Path, issued: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(as_json(fhir_report(issued=issued)))
    assert read_one(path).issued is None


def test_other_json_is_refused(tmp_path: Path) -> None:
    for broken in ([], 3, {"resourceType": "DiagnosticReport"}, {"entry": 5, "resourceType": "Bundle"}):
        (tmp_path / "a.json").write_text(json.dumps(broken))
        (said,) = read_all(tmp_path / "a.json")
        assert isinstance(said, str)


def test_items_of_a_structured_report(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    nested = container("121070", "Findings", "Small effusion.")
    nested.ContentSequence.append(container("1", "Lungs", "No pneumothorax."))
    addendum = text_item("Addendum", "Rib fracture.", "121078")
    structured_report([nested, addendum], PreliminaryFlag="PRELIMINARY").save_as(
        path, enforce_file_format=True
    )
    report = read_one(path)
    assert report.status == "preliminary"
    assert texts_of(report) == {"FINDINGS": "Small effusion.\nNo pneumothorax.", "ADDENDUM": "Rib fracture."}
    deep = container("121070", "Findings")
    for _ in range(20):
        outer = container("121070", "Findings")
        outer.ContentSequence.append(deep)
        deep = outer
    structured_report([deep]).save_as(path, enforce_file_format=True)
    assert read_all(path) == ["its content tree is too large or too deep"]
    structured_report([item("IMAGE", nested.ConceptNameCodeSequence[0])]).save_as(
        path, enforce_file_format=True
    )
    assert read_all(path) == ["no clinical section was found in it"]


def _coded(name: str, value: str) -> Dataset:
    coded = item("CODE", code("1", "SCT", name))
    coded.ConceptCodeSequence = [code("2", "SCT", value)]
    return coded


def _measured(name: str, value: str, unit: str) -> Dataset:
    number, measured = item("NUM", code("1", "SCT", name)), Dataset()
    measured.NumericValue, measured.MeasurementUnitsCodeSequence = value, [code("1", "UCUM", unit)]
    number.MeasuredValueSequence = [measured]
    return number


def _template(number: str) -> list[Dataset]:
    template = Dataset()
    template.MappingResource, template.TemplateIdentifier = "DCMR", number
    return [template]


def _device() -> Dataset:
    observer = _coded("Observer Type", "Device")
    observer.RelationshipType = "HAS OBS CONTEXT"
    observer.ConceptCodeSequence[0].CodeValue = "121007"
    return observer


TEXTS = container("121070", "Findings", "Small effusion.")


@pytest.mark.parametrize(
    ("items", "attributes", "reason"),
    [
        ([TEXTS], {"ConceptNameCodeSequence": [code("126000", "DCM", "Zqx")]}, "Imaging Measurement Report"),
        ([TEXTS], {"ConceptNameCodeSequence": [code("126001", "DCM", "Zqx")]}, "Oncology Measurement Report"),
        ([TEXTS], {"ContentTemplateSequence": _template("1500")}, "Measurement Report"),
        ([TEXTS], {"ContentTemplateSequence": _template("5200")}, "Echocardiography Procedure Report"),
        ([_coded("Pneumothorax", "Absent")], {}, "without text"),
        ([_measured("Pneumothorax", "2", "Percent")], {}, "without text"),
        (
            [TEXTS],
            {
                "SOPClassUID": "1.2.840.10008.5.1.4.1.1.88.50",
                "ConceptNameCodeSequence": [code("111036", "DCM", "Zqx")],
            },
            "Mammography CAD Report",
        ),
        ([TEXTS], {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.88.40"}, "of other kinds than text"),
    ],
)
def test_results_of_programs_are_left_out_by_their_kind(
    tmp_path: Path, items: list[Dataset], attributes: dict[str, Any], reason: str
) -> None:
    structured_report(items, **attributes).save_as(tmp_path / "a.dcm", enforce_file_format=True)
    (found,) = read_reports(tmp_path, KEY)
    assert isinstance(found, LeftOutFile)
    assert reason in found.reason
    assert "Zqx" not in found.reason


def test_a_report_that_only_a_device_observes_is_left_out(tmp_path: Path) -> None:
    report = structured_report([TEXTS])
    person = report.ContentSequence[0]
    report.ContentSequence = [_device(), TEXTS]
    report.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert read_all(tmp_path) == ["measurements or results of programs: the observer is a device"]
    report.ContentSequence = [person, _device(), TEXTS]
    report.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    assert texts_of(read_one(tmp_path)) == {"FINDINGS": "Small effusion."}


def test_codes_have_their_names_and_numbers_are_no_findings(tmp_path: Path) -> None:
    items = [
        *(TEXTS, _coded("Pneumothorax", "Absent"), _coded("Finding", "Rib fracture")),
        *(_measured("Pneumonia", "97", "Percent"), _measured("Cardiothoracic ratio", "0.5", "ratio")),
        _coded("Patient name", "Zqx"),
    ]
    report = structured_report(items, OtherPatientIDs=["P7", "P8"])
    report.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    read = read_one(tmp_path / "a.dcm")
    lines = "Small effusion.\nPneumothorax: Absent.\nRib fracture.\nPneumonia: unknown (value 97 Percent).\n"
    lines += "Cardiothoracic ratio: 0.5 ratio."
    assert texts_of(read) == {"FINDINGS": lines}
    hashes = [keyed_hash(KEY, "patient", number) for number in (PATIENT, "P7", "P8")]
    assert all(read.may_be_of((one,), [(one,)]) for one in hashes)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"valueBoolean": False}, "Pneumothorax: Absent."),
        ({"valueBoolean": True}, "Pneumothorax: Present."),
        ({"valueCodeableConcept": {"text": "Not seen"}}, "Pneumothorax: Not seen."),
        (
            {"valueCodeableConcept": {"coding": [{"display": "Absent (qualifier value)"}]}},
            "Pneumothorax: Absent.",
        ),
        ({"valueCodeableConcept": {"coding": [{"code": "52101004"}]}}, "Pneumothorax: Present."),
        ({"valueString": "<p>Small, on the <b>left</b>.</p>"}, "Pneumothorax: Small, on the left."),
        ({"component": [{"code": {"text": "Edema"}, "valueBoolean": False}]}, "Edema: Absent."),
        ({"valueQuantity": {"value": 2, "unit": "%"}}, None),
        ({"valueString": "2 %"}, None),
        ({"dataAbsentReason": {"coding": [{"code": "unknown"}]}}, None),
        ({"valueRange": {"low": {"value": 2}}}, None),
        ({"valueBoolean": True, "status": "entered-in-error"}, ""),
    ],
)
def test_observations_of_fhir_are_named(tmp_path: Path, value: dict[str, Any], text: str | None) -> None:
    observation = {
        "resourceType": "Observation",
        "id": "o",
        "code": {"coding": [{"display": "Pneumothorax"}]},
    }
    report = fhir_report(result=[{"reference": "#o"}])
    report["contained"].append({**observation, **value})
    del report["presentedForm"]
    path = tmp_path / "a.json"
    path.write_text(as_json(report))
    (found,) = read_reports(path, KEY)
    if text is None:
        assert isinstance(found, LeftOutFile)
    elif not text:
        assert isinstance(found, ReadReport)
        assert isinstance(found.report, ReportError)
    else:
        assert texts_of(read_one(path)) == {"FINDINGS": text}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("Pneumothorax", {"valueString": "2 %"}, "Pneumothorax: unknown (value 2 %)."),
        ("Nodules", {"valueInteger": 1}, "Nodules: unknown (value 1)."),
        ("Lungs", {"dataAbsentReason": {"text": "unknown"}}, "Lungs: unknown (value missing)."),
        ("Edema", {"valueRatio": {}}, "Edema: unknown (value missing)."),
        ("Nodules", {"valueQuantity": {"value": 2, "unit": "lesions"}}, "Unnamed: unknown (value unread)."),
    ],
)
def test_observations_of_fhir_that_say_no_finding_are_named(
    tmp_path: Path, name: str, value: dict[str, Any], said: str
) -> None:
    given = {"o": (name, value), "p": ("Consolidation", {"valueString": "Negative"})}
    report = fhir_report(result=[{"reference": f"#{key}"} for key in (*given, "group")])
    report["contained"] += [
        {"resourceType": "Observation", "id": key, "code": {"text": own}, **one}
        for key, (own, one) in given.items()
    ]
    report["contained"].append(
        {"resourceType": "Observation", "id": "group", "hasMember": [{"reference": "#o"}]}
    )
    del report["presentedForm"]
    path = tmp_path / "a.json"
    path.write_text(as_json(report))
    text = texts_of(read_one(path))["FINDINGS"]
    assert text.split("\n\n") == [said, "Consolidation: Negative.", said]
    assert chexpert_labels(text) == {"Consolidation": "absent"}


def test_codes_of_a_conclusion_count_where_it_has_no_text(tmp_path: Path) -> None:
    coded = [{"coding": [{"code": "1", "display": "Pneumothorax (disorder)"}]}, {"text": "Rib fracture"}]
    report = fhir_report(conclusionCode=coded)
    del report["presentedForm"]
    path = tmp_path / "a.json"
    path.write_text(as_json(report))
    assert texts_of(read_one(path)) == {"IMPRESSION": "Pneumothorax. Rib fracture."}
    path.write_text(as_json({**report, "conclusion": "No pneumothorax."}))
    assert texts_of(read_one(path)) == {"IMPRESSION": "No pneumothorax."}


def test_damaged_structured_reports_are_refused_or_left_out(tmp_path: Path) -> None:
    whole = tmp_path / "a.dcm"
    structured_report().save_as(whole, enforce_file_format=True)
    content = whole.read_bytes()
    for size in (0, 100, 132, 200, 400, len(content) - 40):
        path = tmp_path / f"b{size}.dcm"
        path.write_bytes(content[:size])
        assert len(read_all(path)) == 1


@pytest.mark.parametrize("data", ["bomb", "cut", "other"])
def test_a_deflated_structured_report_stays_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str
) -> None:
    monkeypatch.setattr(structured, "_LONGEST_FILE", 1 << 20)
    report = structured_report()
    report.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    if data == "bomb":
        report.add_new(0x00091000, "UN", bytes(2 << 20))
    path = tmp_path / "a.dcm"
    report.save_as(path, enforce_file_format=True)
    content = path.read_bytes()
    assert len(content) < 1 << 16
    if data == "cut":
        path.write_bytes(content[:-20])
    elif data == "other":
        path.write_bytes(content[:-400] + b"\xff" * 400)
    assert read_all(path) == ["DICOM files that are no structured reports"]
    assert read_all(path, format="sr") == ["it is damaged, or no DICOM file that can be read"]


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
    assert [own.place for own in found if isinstance(own, LeftOutFile)] == [f"File {place}"]
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
    assert [own.place for own in found] == [f"File 1, line {line}" for line in range(2, 8)]
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
        assert "zqx" not in f"{own.place} {reason}".lower()
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
