"""Reports in messages of HL7."""

from pathlib import Path

import pytest

from tests.training.clinical.reports.documents import KEY, MARKERS, hl7_report
from tests.training.importing.report_reading import read_all, read_one, texts_of
from training.clinical.findings import chexpert_labels
from training.clinical.pseudonyms import keyed_hash
from training.clinical.reports.study_report import StudyReport


def write(folder: Path, content: bytes | str) -> Path:
    path = folder / "a.hl7"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def texts(folder: Path, content: bytes | str) -> dict[str, str]:
    return texts_of(read_one(write(folder, content)))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (r"Effusion.\.br\No edema.", "Effusion.\nNo edema."),
        (r"Mass \T\ effusion \F\ nodule \S\ x \R\ y \E\ z.", "Mass & effusion | nodule ^ x ~ y \\ z."),
        (r"\H\Effusion\N\ left.", "Effusion left."),
        (r"Gro\XDF\er Erguss.", "Großer Erguss."),
        (r"Gro\XC39F\er Erguss.", "Großer Erguss."),
        ("Effusion.~No edema.", "Effusion.\nNo edema."),
        (r"Effusion.\.sp2\No edema.", "Effusion.\n\nNo edema."),
        (r"Effusion.\.sp²\No edema.", "Effusion.\nNo edema."),
        (r"Effusion.\.BR\No edema.\Z01\ Clear.", "Effusion.\nNo edema. Clear."),
        (
            r"No pneumothorax\effusion seen. Nodule 12 mm\mass in LUL. Cardiomegaly.",
            r"No pneumothorax\effusion seen. Nodule 12 mm\mass in LUL. Cardiomegaly.",
        ),
        (r"Raumforderung\Zyste\Abszess\.br\Kein Erguss.", "Raumforderung\\Zyste\\Abszess\nKein Erguss."),
        (r"Edema \Xray\ and \Mass\T\nodule\.", r"Edema \Xray\ and \Mass&nodule\."),
    ],
)
def test_escapes_and_repetitions_of_hl7(tmp_path: Path, line: str, text: str) -> None:
    assert texts(tmp_path, hl7_report([f"FINDINGS: {line}"])) == {"FINDINGS": text}


def test_only_the_sign_of_the_message_begins_an_escape(tmp_path: Path) -> None:
    message = hl7_report([r"FINDINGS: Mass!T!nodule\cyst! No edema! Clear."])
    assert texts(tmp_path, message.replace(b"|^~\\&|", b"|^~!&|", 1)) == {
        "FINDINGS": r"Mass&nodule\cyst! No edema! Clear."
    }


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        *(("", "utf-8"), ("", "latin-1"), ("8859/1", "latin-1")),
        *(("UNICODE UTF-8", "utf-8"), ("8859/15", "iso-8859-15")),
    ],
)
def test_character_sets_of_hl7(tmp_path: Path, declared: str, encoding: str) -> None:
    message = hl7_report(["Befund: Kein Erguß, größeres Ödem."]).decode()
    message = message.replace("|P|2.5.1", f"|P|2.5.1||||||{declared}")
    assert texts(tmp_path, message.encode(encoding)) == {"BEFUND": "Kein Erguß, größeres Ödem."}


def test_a_file_of_hl7_may_hold_many_messages(tmp_path: Path) -> None:
    framed = [
        b"\x0b" + hl7_report(accession=f"A{n}", study=None).replace(b"\r", b"\r\n") + b"\x1c\r"
        for n in range(3)
    ]
    reports = read_all(write(tmp_path, b"FHS|^~\\&|a\rBHS|^~\\&|a\r" + b"".join(framed) + b"BTS|3\rFTS|1\r"))
    assert [report.keys for report in reports if isinstance(report, StudyReport)] == [
        tuple(f"accession:{keyed_hash(KEY, 'accession', number)}" for number in (f"A{n}", "P1"))
        for n in range(3)
    ]


def test_sections_of_hl7_are_named_by_codes(tmp_path: Path) -> None:
    message = hl7_report(["Effusion.", "No edema.", "Left effusion.", "Rib fracture."]).decode()
    for code in ("71020&GDT", "71020&GDT", "19005-8^Impression^LN", "71020&ADT"):
        message = message.replace(f"18748-4^{MARKERS[9]}^LN", code, 1)
    assert texts(tmp_path, message) == {
        "FINDINGS": "Effusion.\nNo edema.",
        "IMPRESSION": "Left effusion.",
        "ADDENDUM": "Rib fracture.",
    }


@pytest.mark.parametrize(
    ("ids", "numbers"),
    [
        ("NAT1^^^GOV^NI~P1^^^H^MR", ["NAT1", "P1"]),
        ('""~P1^^^H^MR', ["P1"]),
        ("^^^H^MR~P1~P1~ ", ["P1"]),
        ("A^^^X~B^^^Y~C^^^Z", ["A", "B", "C"]),
    ],
)
def test_all_ids_of_a_patient_are_read(tmp_path: Path, ids: str, numbers: list[str]) -> None:
    report = read_one(write(tmp_path, hl7_report(patient=ids).replace(f"^^^{MARKERS[1]}||".encode(), b"||")))
    hashes = [keyed_hash(KEY, "patient", number) for number in numbers]
    assert all(report.may_be_of((one,), [(one,)]) for one in hashes)
    assert report.patient == hashes[0]
    assert not report.may_be_of((keyed_hash(KEY, "patient", "Q"),), [])
    assert not any(key.startswith("patient:") for key in report.study_keys)


def test_a_coded_result_keeps_the_name_of_its_finding(tmp_path: Path) -> None:
    named = hl7_report(["A^Absent^L", "Small, on the left.", "2 %"]).decode()
    for name in ("Pneumothorax", "Pleural effusion", "Pneumonia"):
        named = named.replace(f"18748-4^{MARKERS[9]}^LN", f"1^{name}^L", 1)
    read = "Pneumothorax: Absent.\nPleural effusion: Small, on the left.\nPneumonia: unknown (value 2 %)."
    assert texts(tmp_path, named.replace("|TX|", "|CE|", 1)) == {"": read}


@pytest.mark.parametrize(("kind", "value"), [("NM", "2"), ("SN", "<^2"), ("CE", ""), ("ST", "0.97")])
def test_a_number_of_hl7_is_named_and_no_finding(tmp_path: Path, kind: str, value: str) -> None:
    named = hl7_report(["No pleural effusion.", value]).decode()
    head, _, last = named.rpartition("|TX|")
    last = last.replace(f"18748-4^{MARKERS[9]}^LN", "1^Pneumothorax^L")
    text = texts(tmp_path, f"{head}|{kind}|{last}")[""]
    assert text.startswith("No pleural effusion.\nPneumothorax: unknown (value ")
    assert set(chexpert_labels(text)) == {"Pleural Effusion"}


@pytest.mark.parametrize(
    ("sign", "status"),
    [
        *(("F", "final"), ("P", "preliminary"), ("R", "preliminary")),
        *(("C", "corrected"), ("X", "withdrawn"), ("", "final")),
    ],
)
def test_status_of_hl7(tmp_path: Path, sign: str, status: str) -> None:
    assert read_one(write(tmp_path, hl7_report(status=sign))).status == status


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no message that begins with MSH"),
        (b"hello", "no message that begins with MSH"),
        (b"MSH|\r", "MSH-2 does not name"),
        (b"MSH|^~\\&|a\rPID|1\r", "no message with a report"),
        (hl7_report(kind="ADT^A01"), "no message with a report"),
        (hl7_report([]), "no text in OBX-5"),
        (hl7_report().replace(b"|TX|", b"|ED|"), "only documents such as PDF"),
        (hl7_report(accession="", study=None).replace(b"P1", b""), "neither a study nor an accession"),
        (hl7_report().replace(b"|P|2.5.1", b"|P|2.5.1||||||KLINGON"), "character set that is not known"),
        (hl7_report().replace(b"PID|", b"\x01\x02|"), "has no name of three letters"),
        (hl7_report(["Electronically signed by Jane Roe"]), "no clinical section"),
        (hl7_report(["FINDINGS: " + "No effusion. " * 20_000]), "more than 200,000 characters"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(tmp_path: Path, content: bytes, reason: str) -> None:
    (said,) = read_all(write(tmp_path, content))
    assert isinstance(said, str)
    assert reason in said
    assert not any(marker in said for marker in MARKERS)
