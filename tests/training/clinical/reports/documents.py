"""Reports in every format, each with marker strings where people are named."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydicom import Dataset
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.sequence import Sequence as Items
from pydicom.uid import UID, ExplicitVRLittleEndian

from tests.training.cases import read_cases

KEY: Final = bytes(range(32))
STUDY: Final = "1.2.826.0.1.3680043.8.498.1"
ACCESSION: Final = "ACC20041"
PATIENT: Final = "PAT00417"
# Stands in every field that may hold a name, a number or a comment.
MARKERS: Final = tuple(f"Zqx{letter}marker" for letter in "abcdefghijklmnop")
TEXT: Final = (
    "INDICATION: Cough.\nFINDINGS: Small left effusion. No pneumothorax.\nIMPRESSION: Left effusion."
)


def cases(heading: str) -> list[tuple[str, str]]:
    """Texts and answers of cases.txt under a heading."""
    table = read_cases(Path(__file__).with_name("cases.txt"))
    return [(text, answer) for own, text, answer in table if own == heading]


def text_report() -> str:
    a, b, c, d, e, *_ = MARKERS
    return (
        f"{e} HOSPITAL\nPatient: {a.upper()}, JOHN\nMRN: 4711{b}\nDOB: 03.04.1950   Phone: 030 1234567\n"
        f"Referring Physician: Dr. {c}\n\n"
        f"EXAM: Chest, 03/04/2024\nHISTORY: Mr. {a} has a cough since 12 March 2024.\n"
        "COMPARISON: Film of 2.1.2024.\n"
        f"FINDINGS: Small left effusion. No pneumothorax.\nIMPRESSION:\n1. Left effusion.\n"
        f"Findings were discussed with Dr. {d} by phone at 14:35.\n\n{d} {c} MD\n"
        f"Electronically signed by: {d}, 03/04/2024 15:00\nFax: 030 7654321 {e}\n"
    )


def hl7_report(
    text: Sequence[str] = tuple(TEXT.split("\n")),
    *,
    status: str = "F",
    accession: str = ACCESSION,
    study: str | None = STUDY,
    issued: str = "20240304120000",
    patient: str = PATIENT,
    control: str = "42",
    kind: str = "ORU^R01^ORU_R01",
) -> bytes:
    """A message of a report whose lines are OBX segments of their own."""
    a, b, c, d, e, f, g, h, i, j, *_ = MARKERS
    results = [f"OBX|{place}|TX|18748-4^{j}^LN||{line}||||||{status}" for place, line in enumerate(text, 1)]
    segments = [
        f"MSH|^~\\&|RIS|{a}|PACS|B|20240304130000||{kind}|{control}|P|2.5.1",
        f"PID|1||{patient}^^^{b}||{c}^{d}^Q||19500101|M|||{e} Street 1^^Town||030{f}",
        f"PV1|1|I|{g}^101||||4711^{h}^Doc",
        f"ORC|RE|P1|{accession}||||||||{i}^Nurse",
        f"OBR|1|P1|{accession}|71020^CHEST|||20240304110000||||||{j}||7^{h}^Doc|||||||{issued}|||{status}|||||||9^{i}",
        f"NTE|1||{d} called {e} at home",
        *results,
    ]
    if study is not None:
        segments.append(f"ZDS|{study}^100^Application^DICOM")
    return "\r".join(segments).encode() + b"\r"


def fhir_report(*, status: str = "final", text: str = TEXT, **more: Any) -> dict[str, Any]:
    """A DiagnosticReport with a signed form, a patient and a study."""
    a, b, c, d, e, *_ = MARKERS
    form = {"contentType": "text/plain", "data": base64.b64encode(text.encode()).decode(), "title": e}
    return {
        "resourceType": "DiagnosticReport",
        "id": "report-1",
        "status": status,
        "issued": "2024-03-04T12:00:00+01:00",
        "identifier": [{"type": {"coding": [{"code": "ACSN"}]}, "value": ACCESSION}],
        "subject": {"reference": "#pat", "display": f"{a} {b}"},
        "performer": [{"display": f"Dr. {c}"}],
        "resultsInterpreter": [{"display": d}],
        "contained": [
            {
                "resourceType": "Patient",
                "id": "pat",
                "identifier": [
                    {"value": f"SSN{e}"},
                    {"type": {"coding": [{"code": "MR"}]}, "value": PATIENT},
                ],
                "name": [{"family": a, "given": [b]}],
                "birthDate": "1950-01-01",
            },
            {
                "resourceType": "ImagingStudy",
                "id": "study",
                "identifier": [{"system": "urn:dicom:uid", "value": f"urn:oid:{STUDY}"}],
                "description": e,
            },
        ],
        "imagingStudy": [{"reference": "#study"}],
        "presentedForm": [form],
        **more,
    }


def structured_report(items: Sequence[Dataset] = (), **attributes: Any) -> FileDataset:
    """A Basic Text SR with the sections of `TEXT`, or the given items, and people in its header."""
    a, b, c, d, e, *_ = MARKERS
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = UID("1.2.840.10008.5.1.4.1.1.88.11")
    meta.MediaStorageSOPInstanceUID = UID(f"{STUDY}.9")
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    report = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    report.SOPClassUID, report.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    report.StudyInstanceUID, report.AccessionNumber, report.PatientID = STUDY, ACCESSION, PATIENT
    report.PatientName, report.ReferringPhysicianName, report.InstitutionName = f"{a}^{b}", f"{c}^{d}", e
    report.StudyDescription = e
    report.ContentDate, report.ContentTime = "20240304", "120000"
    report.CompletionFlag, report.VerificationFlag, report.Modality = "COMPLETE", "UNVERIFIED", "SR"
    report.ValueType, report.ContinuityOfContent = "CONTAINER", "SEPARATE"
    report.ConceptNameCodeSequence = Items([code("18745-0", "LN", f"Report {e}")])
    observer = item("PNAME", code("121008", "DCM", "Person Observer Name"), "HAS OBS CONTEXT")
    observer.PersonName = d
    report.ContentSequence = Items(
        [
            observer,
            *(
                items
                or (
                    container("121060", "History", "Cough."),
                    container("121070", "Findings", "Small left effusion. No pneumothorax."),
                    container("121072", "Impressions", "Left effusion."),
                )
            ),
        ]
    )
    for name, value in attributes.items():
        setattr(report, name, value)
    return report


def code(value: str, scheme: str, meaning: str) -> Dataset:
    made = Dataset()
    made.CodeValue, made.CodingSchemeDesignator, made.CodeMeaning = value, scheme, meaning
    return made


def item(kind: str, name: Dataset, relationship: str = "CONTAINS") -> Dataset:
    made = Dataset()
    made.RelationshipType, made.ValueType = relationship, kind
    made.ConceptNameCodeSequence = Items([name])
    return made


def text_item(meaning: str, text: str, value: str = "121071") -> Dataset:
    made = item("TEXT", code(value, "DCM", meaning))
    made.TextValue = text
    return made


def container(value: str, meaning: str, *texts: str) -> Dataset:
    made = item("CONTAINER", code(value, "DCM", meaning))
    made.ContinuityOfContent = "SEPARATE"
    made.ContentSequence = Items([text_item("Finding", text) for text in texts])
    return made


def as_json(resource: dict[str, Any]) -> str:
    return json.dumps(resource)
