"""Reports read by their sections, as MIMIC-CXR's files and others write them, and joined to one text."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.clinical.reports.documents import cases
from training.clinical.reports.current import current_report
from training.clinical.reports.study_report import StudyReport
from training.clinical.text.report_text import make_report, read_report, read_report_or_text, without_marks
from training.clinical.text.sections import clinical_sections, section_spans

FINAL = """\
                                 FINAL REPORT
 EXAMINATION:  CHEST (PA AND LAT)

 INDICATION:  ___-year-old woman with cough  // pneumonia?

 COMPARISON:  Radiograph of ___ at 9:22 AM.

 FINDINGS:

 The heart is large.  There is a
 small right effusion.
 LUNGS: No consolidation is seen.

 IMPRESSION:

 1.  Small right effusion since ___.
 2.  Dr. ___ was informed by phone.
"""


def test_sections_and_marks() -> None:
    report = read_report(FINAL)
    assert report.text is not None
    assert report.text.startswith("FINDINGS: The heart is large.")
    assert "since ___." in report.text
    assert report.sentences == (
        "The heart is large.",
        "There is a small right effusion.",
        "LUNGS: No consolidation is seen.",
        "Small right effusion since.",
        "Dr. was informed by phone.",
    )


def test_an_addendum_is_kept_and_a_preliminary_reading_is_not() -> None:
    text = """\
 WET READ: ___ ___ ___ 9:22 PM
  Possible pneumothorax on the left.
 ______________________________________________________________________________
                                 FINAL REPORT
 FINDINGS:  No pneumothorax is seen.
 ______________________________________________________________________________
 ADDENDUM  A skin fold was mistaken for one.
 The line ends in the right atrium.
"""
    report = read_report(text)
    assert report.text == (
        "FINDINGS: No pneumothorax is seen.\n\n"
        "ADDENDUM: A skin fold was mistaken for one.\nThe line ends in the right atrium."
    )
    assert len(report.sentences) == 3
    before = read_report("ADDENDUM\n The tube was advanced.\n FINAL REPORT\n IMPRESSION: Tube too high.")
    assert before.sentences == ("Tube too high.", "The tube was advanced.")


@pytest.mark.parametrize("text", [text for text, _ in cases("one sentence described")])
def test_reports_without_the_usual_headings(text: str) -> None:
    assert read_report(text).sentences == ("Clear lungs seen.",)


@pytest.mark.parametrize(("text", "expected"), cases("body of a report"))
def test_a_body_without_a_heading_is_behind_the_context(text: str, expected: str) -> None:
    assert read_report(text).text == (expected or None)


def test_times_and_numbers_are_no_headings() -> None:
    assert read_report("FINDINGS: Taken at\nTIME 9:22 there is air.").sentences == (
        "Taken at TIME 9:22 there is air.",
    )
    assert read_report("").text is None
    assert read_report(" \n____________\n").sentences == ()


def test_repeated_headings_are_joined() -> None:
    report = read_report("IMPRESSION: Left effusion seen.\nHISTORY: None.\nIMPRESSION: Right effusion seen.")
    assert report.sentences == ("Left effusion seen.", "Right effusion seen.")


LINES = st.sampled_from(
    [
        *("FINDINGS:", "IMPRESSION: word", "ADDENDUM", "FINAL REPORT", "_______", "", "LUNGS: clear", "9:22"),
        *("WET READ: a", "HISTORY: cough", "Findings: some", "plain words here.", ": :", "___ of ___"),
        *("COMPARISON: None. No edema.", "Chest:", "There is an effusion."),
    ]
)


@given(st.lists(LINES | st.text(max_size=30)))
def test_a_report_has_words_of_its_text_and_no_others(lines: list[str]) -> None:
    text = "\n".join(lines)
    places = section_spans(text)
    assert places[0].start == 0
    assert places[-1].end == len(text)
    assert all(before.end <= after.start for before, after in pairwise(places))
    kept = (read_report(text).text or "").split()
    assert not Counter(kept) - Counter([*text.split(), "FINDINGS:", "REPORT:", "IMPRESSION:", "ADDENDUM:"])


@pytest.mark.slow
@pytest.mark.parametrize("text", ["a" * 1_000_000, " " * 1_000_000, "_" * 1_000_000, "A: " * 300_000])
def test_a_million_letters_are_read(text: str) -> None:
    """Quadratic searches would take hours."""
    read_report(f"FINDINGS: {text}")
    read_report(text)


@pytest.mark.parametrize(("text", "expected"), cases("marks"))
def test_marks_of_removed_words(text: str, expected: str) -> None:
    assert without_marks(text) == expected


def test_the_whole_text_keeps_its_marks() -> None:
    report = make_report({"FINDINGS": " Clear since ___. ", "IMPRESSION": ""})
    assert report.text == "FINDINGS: Clear since ___."
    assert report.sentences == ("Clear since.",)
    first = make_report({"IMPRESSION": "Normal heart size. XXXX scarring on the left. XXXX. ___ change."})
    assert first.sentences == ("Normal heart size.", "scarring on the left.")
    assert make_report({"FINDINGS": ""}, "All is well here.").text == "All is well here."
    assert make_report({}).text is None


@pytest.mark.parametrize(
    "title",
    [
        "Thoraxröntgen in 2 Ebenen:",
        "Röntgen Thorax in zwei Ebenen:",
        "Rö-Thorax p.a.:",
        "Rö. Thorax in 2 Eb. (p. a. + seitl.):",
        "Röntgenaufnahme des Thorax im Liegen vom 12.03.2020:",
        "Konventionelle Thoraxübersichtsaufnahme:",
        "CXR PA and lateral:",
        "CHEST X-RAY (2 VIEWS):",
        "XR chest, AP portable:",
    ],
)
@pytest.mark.parametrize("form", ["{}\n{}", "{} {}", "BEFUND:\n{}\n{}", "FINDINGS: {} {}"])
def test_the_name_of_the_examination_before_a_report_is_no_statement(title: str, form: str) -> None:
    text = form.format(title, "Kein Erguss. Herz normal groß.")
    assert read_report_or_text(text).sentences == ("Kein Erguss.", "Herz normal groß.")
    own = StudyReport((), None, None, "final", None, clinical_sections(text))
    current = current_report([own])
    assert current is not None
    assert current.sentences == ("Kein Erguss.", "Herz normal groß.")


@pytest.mark.parametrize(
    "text", ["Chest X-ray.", "Thorax in 2 Ebenen", "Herz: normal.", "Thoraxdrainage: korrekt."]
)
def test_a_text_that_is_a_title_alone_or_begins_with_none_is_kept(text: str) -> None:
    assert make_report({"FINDINGS": text}).sentences == (text,)
