"""Clinical sections of reports, their headings, and what identifies people in them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.clinical.reports.documents import cases
from training.clinical.findings import find_findings
from training.clinical.text.identifiers import MARK, without_identifiers
from training.clinical.text.sections import clinical_sections, span_in_report


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(section.heading, section.text) for section in clinical_sections(text)]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("EXAM: Chest\nDATE: 1/2/2020\n\nThe lungs are clear.", "The lungs are clear."),
        ("Small mass.\n\nTECHNIQUE: AP", "Small mass."),
        (
            "Patient: X\nINDICATION: Cough\nMRN: 12345\nJohn Roe\nEffusion on the left.",
            "Effusion on the left.",
        ),
    ],
)
def test_text_without_a_heading_is_kept_where_no_section_describes_the_image(text: str, kept: str) -> None:
    assert ("", kept) in _pairs(text)


@pytest.mark.parametrize(
    ("text", "sections"), [*cases("sections"), ("", ""), ("FINDINGS:\r\nClear.\x00\x07", "FINDINGS: Clear.")]
)
def test_sections_are_found_by_their_headings(text: str, sections: str) -> None:
    assert " / ".join(f"{heading}: {part}".removeprefix(": ") for heading, part in _pairs(text)) == sections


@pytest.mark.parametrize(("text", "body"), cases("bodies without a heading"))
def test_a_body_without_a_heading_is_found(text: str, body: str) -> None:
    sections = clinical_sections(text)
    assert [section.text for section in sections if section.heading == "REPORT"] == [body]
    assert not any(word in body for word in ("Cough", "Fever", "Pain", "Husten", "Sturz"))
    stored = "\n\n".join(f"{section.heading}: {section.text}" for section in sections)
    assert span_in_report(body.split("\n")[0], stored) == stored.index(body)


@pytest.mark.parametrize("text", [text for text, _ in cases("no bodies")])
def test_history_and_technique_are_no_body(text: str) -> None:
    assert "REPORT" not in [section.heading for section in clinical_sections(text)]


@pytest.mark.parametrize("head", [text for text, _ in cases("heads")])
def test_heads_of_reports_are_dropped(head: str) -> None:
    text = f"{head}\n\nFINDINGS: Small effusion. {{}} is well.".replace("{}", "Zqxmarker")
    pairs = _pairs(text)
    assert [heading for heading, _ in pairs] == ["FINDINGS"]
    if ":" in head and "HOSPITAL" not in head:
        assert "zqxmarker" not in repr(pairs).lower()


@pytest.mark.parametrize("foot", [text for text, _ in cases("feet")])
@pytest.mark.parametrize("glue", ["\n", "\n\n", " "])
def test_signatures_and_feet_are_dropped(foot: str, glue: str) -> None:
    (section,) = clinical_sections(f"IMPRESSION: Small left effusion.{glue}{foot.replace('{}', 'Zqxmarker')}")
    assert section.text.startswith("Small left effusion.")
    assert "zqxmarker" not in section.text.lower()


@pytest.mark.parametrize(("text", "cleaned"), [*cases("taken out"), *cases("stays")])
def test_what_identifies_people_is_taken_out_and_words_of_reports_stay(text: str, cleaned: str) -> None:
    assert without_identifiers(text) == (cleaned or text)


def test_known_names_are_taken_out_in_any_form_and_words_of_reports_stay() -> None:
    known = ("SMALL^ZQX^HEART", "Müller-Zqy", "A-77X", "1950", "effusion")
    text = "zqx, ZQX's, Müller-Zqy; Small heart with effusion of 1950 ml, A-77X."
    cleaned = f"{MARK}, {MARK}, {MARK}; Small heart with effusion of 1950 ml, {MARK}."
    assert without_identifiers(text, known) == cleaned


@given(st.text(alphabet=st.sampled_from("AaBb:.\n \tFINDINGSimpressoDr19/_-ß"), max_size=200))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_text_has_sections_of_its_own_letters(text: str) -> None:
    for section in clinical_sections(text):
        assert any(map(str.isalnum, section.text))
        find_findings(section.text)


@pytest.mark.parametrize(
    "part",
    [
        "A ",
        "_",
        *(pytest.param(part, marks=pytest.mark.slow) for part in ("Dr. ", "1 ", "a:\n", "Aa Bb\n", "was ")),
    ],
)
def test_a_long_text_takes_little_time(part: str) -> None:
    clinical_sections(f"FINDINGS: {part * 60_000}")


@pytest.mark.parametrize("part", ["p.a. ", "thorax ", "Heart: ", "There is. "])
def test_a_long_text_without_a_heading_of_findings_takes_little_time(part: str) -> None:
    clinical_sections(f"COMPARISON: None. {part * 5_000}")


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("Small mass.", "INDICATION: Evaluate for small mass. Small mass.\nFINDINGS: *Small mass. Clear."),
        ("effusion.", "FINDINGS: No effusion. Edema.\n\nIMPRESSION: *effusion."),
        ("effusion.", "FINDINGS: No effusion."),
        ("Effusion", "No Effusion. Edema.\n*Effusion"),
        ("Effusion", "IMPRESSION:\n1. No edema.\n2. *Effusion."),
        ("Effusion. No edema.", "HISTORY: Effusion. FINDINGS: No pneumonia. *Effusion. No edema. Clear."),
        ("BEFUND: Erguss.", "KLINIK: Erguss.\n*BEFUND: Erguss."),
        ("Erguss.", "*Erguss."),
        ("Erguss.", "BEFUND: Thoraxröntgen in 2 Ebenen: *Erguss."),
        ("Erguss.", ""),
        # Without a section that describes the image, the first whole sentence counts.
        ("Small mass.", "INDICATION: Possible small mass. *Small mass. COMPARISON: Small mass."),
    ],
)
def test_a_text_is_found_in_whole_sentences_of_what_describes_the_image(text: str, report: str) -> None:
    place = report.index("*") if "*" in report else None
    assert span_in_report(text, report.replace("*", "")) == place


MISSPELT = {
    "findings": ("FINDNGS", "Findigns"),
    "impression": ("IMPRESSON", "CONCLUSOIN", "Beurteillung"),
    "indication": ("NDICATION", "HISTROY", "Fragestelung"),
    "comparison": ("COMPARSION",),
    "technique": ("Techniqe",),
    "addendum": ("ADDENDDUM",),
    "recommendation": ("RECOMENDATION",),
}


@pytest.mark.parametrize("heading", [heading for headings in MISSPELT.values() for heading in headings])
@pytest.mark.parametrize("mark", [": ", ":\n", "\n"])
def test_a_heading_at_the_beginning_of_a_line_may_have_a_letter_wrong(heading: str, mark: str) -> None:
    text = f"INDICATION: Cough.\n{heading}{mark}The lungs are clear.\nIMPRESSION: No disease."
    sections = [(section.kind, section.text) for section in clinical_sections(text)]
    kind = next(kind for kind, headings in MISSPELT.items() if heading in headings)
    assert (kind, "The lungs are clear.") in sections
    assert ("indication", "Cough.") in sections


@pytest.mark.parametrize("word", ["Windings", "Compression", "Restoration", "Mystery", "Aspiration"])
def test_words_that_are_only_alike_are_no_headings(word: str) -> None:
    text = f"FINDINGS: The lungs are clear.\n{word}: none.\nIMPRESSION: No disease."
    assert [section.kind for section in clinical_sections(text)] == ["findings", "impression"]
