"""Reports of FHIR in all their forms, and observations."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.clinical.reports.documents import KEY, MARKERS, as_json, fhir_report
from tests.training.importing.report_reading import read_all, read_one, texts_of
from training.clinical.findings import chexpert_labels
from training.clinical.reports.study_report import ReportError, StudyReport
from training.importing.reports import LeftOutFile, ReadReport, read_reports


def write(folder: Path, resource: object) -> Path:
    path = folder / "a.json"
    path.write_text(json.dumps(resource))
    return path


def test_fhir_in_bundles_lines_and_parts(tmp_path: Path) -> None:
    observation: dict[str, Any] = {"resourceType": "Observation", "id": "o", "valueString": "Small effusion."}
    observation["code"] = {"text": "Findings"}
    bare = fhir_report(
        conclusion="Left effusion.",
        result=[{"reference": "Observation/o"}],
        presentedForm=[],
    )
    bare["text"] = {"div": f"<div><p>Patient: {MARKERS[0]}</p><p>TECHNIQUE: PA &amp; lateral.</p></div>"}
    bundle = {"resourceType": "Bundle", "entry": [{"resource": bare}, {"resource": observation}]}
    assert texts_of(read_one(write(tmp_path, bundle))) == {
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
    form |= {"data": base64.b64encode(data).decode()}
    (report,) = read_all(write(tmp_path, fhir_report(presentedForm=[form])))
    if isinstance(text, str):
        assert isinstance(report, str)
        assert text in report
    else:
        assert isinstance(report, StudyReport)
        assert texts_of(report) == text


def test_status_of_fhir(tmp_path: Path) -> None:
    status = {"preliminary": "preliminary", "amended": "amended", "appended": "amended"}
    for given, own in {**status, "corrected": "corrected", "entered-in-error": "withdrawn"}.items():
        assert read_one(write(tmp_path, fhir_report(status=given))).status == own


@pytest.mark.parametrize("issued", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_at_the_ends_of_the_calendar_is_left_out(tmp_path: Path, issued: str) -> None:
    assert read_one(write(tmp_path, fhir_report(issued=issued))).issued is None


def test_other_json_is_refused(tmp_path: Path) -> None:
    others: tuple[object, ...] = (
        {"resourceType": "DiagnosticReport"},
        {"entry": 5, "resourceType": "Bundle"},
    )
    for broken in ([], 3, *others):
        (said,) = read_all(write(tmp_path, broken))
        assert isinstance(said, str)


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
    name = {"coding": [{"display": "Pneumothorax"}]}
    report = fhir_report(result=[{"reference": "#o"}], presentedForm=[])
    report["contained"].append({"resourceType": "Observation", "id": "o", "code": name, **value})
    path = write(tmp_path, report)
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
    results = [{"reference": f"#{key}"} for key in (*given, "group")]
    report = fhir_report(result=results, presentedForm=[])
    report["contained"] += [
        {"resourceType": "Observation", "id": key, "code": {"text": own}, **one}
        for key, (own, one) in given.items()
    ]
    report["contained"].append(
        {"resourceType": "Observation", "id": "group", "hasMember": [{"reference": "#o"}]}
    )
    text = texts_of(read_one(write(tmp_path, report)))["FINDINGS"]
    assert text.split("\n\n") == [said, "Consolidation: Negative.", said]
    assert chexpert_labels(text) == {"Consolidation": "absent"}


def test_codes_of_a_conclusion_count_where_it_has_no_text(tmp_path: Path) -> None:
    coded = [{"coding": [{"code": "1", "display": "Pneumothorax (disorder)"}]}, {"text": "Rib fracture"}]
    report = fhir_report(conclusionCode=coded, presentedForm=[])
    assert texts_of(read_one(write(tmp_path, report))) == {"IMPRESSION": "Pneumothorax. Rib fracture."}
    report["conclusion"] = "No pneumothorax."
    assert texts_of(read_one(write(tmp_path, report))) == {"IMPRESSION": "No pneumothorax."}
