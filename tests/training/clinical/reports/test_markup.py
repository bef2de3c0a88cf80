"""Text of RTF and HTML in fields of text, in every format of reports."""

import base64
from pathlib import Path

import pytest

from tests.training.clinical.reports.documents import (
    STUDY,
    as_json,
    container,
    fhir_report,
    hl7_report,
    structured_report,
)
from tests.training.importing.report_reading import read_one, texts_of
from training.clinical.reports.markup import plain_text

RTF = (
    r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0 Arial;}}{\header Jane Roe\par}{\*\generator Word;}\f0\fs20 "
    r"FINDINGS:\par Small \i right\i0  effusion.\par\b IMPRESSION:\b0  Effusion.\par}"
)
HTML = "<p><b>FINDINGS:</b></p>Small <i>right</i> effusion.<br/><div>IMPRESSION: Effusion.</div>"
SECTIONS = {"FINDINGS": "Small right effusion.", "IMPRESSION": "Effusion."}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (RTF, "\nFINDINGS:\nSmall right effusion.\nIMPRESSION: Effusion.\n"),
        (r"{\rtf1\ansi Gr\'f6\'dfer\line \u8211? 3\~mm \{a\} b\\c}", "\nGrößer\n– 3 mm {a} b\\c\n"),
        (r"{\rtf1\ansi\uc2 A\u8217\'92\'92s {\v hidden}{\pict 0102}mass\tab left}", "\nA’s mass left\n"),
        (r"{\rtf1\ansicpg1250 \'e8 {\b open", "\nč open\n"),
        (r"REPORT: {\rtf1 No mass.} End", "REPORT: \nNo mass.\n End"),
        (HTML, "FINDINGS:\nSmall right effusion.\n\nIMPRESSION: Effusion."),
        ("<ul><li>No mass.<li>Edema &amp; cyst.</ul>", "No mass.\nEdema & cyst."),
        ("No mass.&lt;br&gt;Edema.", "No mass.\nEdema."),
        ("A nodule < 5 mm, > 3 mm & <b.", "A nodule < 5 mm, > 3 mm & <b."),
        ("{not} rtf \\par", "{not} rtf \\par"),
    ],
)
def test_markup_becomes_text(given: str, text: str) -> None:
    assert plain_text(given) == text


@pytest.mark.parametrize("body", [RTF, HTML])
@pytest.mark.parametrize("kind", ["hl7", "escaped hl7", "several lines", "fhir", "form", "csv", "text", "sr"])
def test_every_format_reads_rtf_and_html(tmp_path: Path, kind: str, body: str) -> None:
    if kind in ("hl7", "escaped hl7", "several lines"):
        path = tmp_path / "a.hl7"
        escaped = body.replace("\\", "\\E\\").replace("&", "\\T\\")
        lines = body.replace("effusion.", "effusion.\n").split("\n") if kind == "several lines" else [body]
        path.write_bytes(hl7_report([escaped] if kind == "escaped hl7" else lines))
    elif kind in ("fhir", "form"):
        path = tmp_path / "a.json"
        report = fhir_report(conclusion=body)
        if kind == "form":
            form_type = "text/rtf" if body == RTF else "text/html"
            data = base64.b64encode(body.encode()).decode()
            report = fhir_report(presentedForm=[{"contentType": form_type, "data": data}])
        else:
            del report["presentedForm"]
        path.write_text(as_json(report))
    elif kind == "csv":
        path = tmp_path / "a.csv"
        path.write_text(f'study_uid;report\n{STUDY};"{body}"\n')
    elif kind == "text":
        path = tmp_path / f"{STUDY}.txt"
        path.write_text(body)
    else:
        path = tmp_path / "a.dcm"
        structured_report([container("1", "Document", body)]).save_as(path, enforce_file_format=True)
    assert texts_of(read_one(path)) == SECTIONS
