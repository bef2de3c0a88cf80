"""Structured reports of DICOM: their items, and those that programs made."""

from pathlib import Path
from typing import Any

import pytest
from pydicom import Dataset
from pydicom.uid import DeflatedExplicitVRLittleEndian

from tests.training.clinical.reports.documents import (
    KEY,
    PATIENT,
    code,
    container,
    item,
    structured_report,
    text_item,
)
from tests.training.importing.report_reading import read_all, read_one, texts_of
from training.clinical.pseudonyms import keyed_hash
from training.clinical.reports import structured
from training.importing.reports import LeftOutFile, read_reports


def save(report: Dataset, path: Path) -> None:
    report.save_as(path, enforce_file_format=True)


def test_items_of_a_structured_report(tmp_path: Path) -> None:
    path = tmp_path / "a.dcm"
    nested = container("121070", "Findings", "Small effusion.")
    nested.ContentSequence.append(container("1", "Lungs", "No pneumothorax."))
    addendum = text_item("Addendum", "Rib fracture.", "121078")
    save(structured_report([nested, addendum], PreliminaryFlag="PRELIMINARY"), path)
    report = read_one(path)
    assert report.status == "preliminary"
    assert texts_of(report) == {"FINDINGS": "Small effusion.\nNo pneumothorax.", "ADDENDUM": "Rib fracture."}
    deep = container("121070", "Findings")
    for _ in range(20):
        outer = container("121070", "Findings")
        outer.ContentSequence.append(deep)
        deep = outer
    save(structured_report([deep]), path)
    assert read_all(path) == ["its content tree is too large or too deep"]
    save(structured_report([item("IMAGE", nested.ConceptNameCodeSequence[0])]), path)
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
    save(structured_report(items, **attributes), tmp_path / "a.dcm")
    (found,) = read_reports(tmp_path, KEY)
    assert isinstance(found, LeftOutFile)
    assert reason in found.reason
    assert "Zqx" not in found.reason


def test_a_report_that_only_a_device_observes_is_left_out(tmp_path: Path) -> None:
    report = structured_report([TEXTS])
    person = report.ContentSequence[0]
    report.ContentSequence = [_device(), TEXTS]
    save(report, tmp_path / "a.dcm")
    assert read_all(tmp_path) == ["measurements or results of programs: the observer is a device"]
    report.ContentSequence = [person, _device(), TEXTS]
    save(report, tmp_path / "a.dcm")
    assert texts_of(read_one(tmp_path)) == {"FINDINGS": "Small effusion."}


def test_codes_have_their_names_and_numbers_are_no_findings(tmp_path: Path) -> None:
    items = [
        *(TEXTS, _coded("Pneumothorax", "Absent"), _coded("Finding", "Rib fracture")),
        *(_measured("Pneumonia", "97", "Percent"), _measured("Cardiothoracic ratio", "0.5", "ratio")),
        _coded("Patient name", "Zqx"),
    ]
    report = structured_report(items, OtherPatientIDs=["P7", "P8"])
    save(report, tmp_path / "a.dcm")
    read = read_one(tmp_path / "a.dcm")
    lines = "Small effusion.\nPneumothorax: Absent.\nRib fracture.\nPneumonia: unknown (value 97 Percent).\n"
    lines += "Cardiothoracic ratio: 0.5 ratio."
    assert texts_of(read) == {"FINDINGS": lines}
    hashes = [keyed_hash(KEY, "patient", number) for number in (PATIENT, "P7", "P8")]
    assert all(read.may_be_of((one,), [(one,)]) for one in hashes)


def test_damaged_structured_reports_are_refused_or_left_out(tmp_path: Path) -> None:
    whole = tmp_path / "a.dcm"
    save(structured_report(), whole)
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
    save(report, path)
    content = path.read_bytes()
    assert len(content) < 1 << 16
    if data == "cut":
        path.write_bytes(content[:-20])
    elif data == "other":
        path.write_bytes(content[:-400] + b"\xff" * 400)
    assert read_all(path) == ["DICOM files that are no structured reports"]
    assert read_all(path, format="sr") == ["it is damaged, or no DICOM file that can be read"]
