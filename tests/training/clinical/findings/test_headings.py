"""Headings of reports with a letter wrong."""

import pytest

from training.clinical.reports.sections import clinical_sections


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("FINDNGS", "findings"),
        ("Findigns", "findings"),
        ("IMPRESSON", "impression"),
        ("CONCLUSOIN", "impression"),
        ("Beurteillung", "impression"),
        ("NDICATION", "indication"),
        ("HISTROY", "indication"),
        ("Fragestelung", "indication"),
        ("COMPARSION", "comparison"),
        ("Techniqe", "technique"),
        ("ADDENDDUM", "addendum"),
        ("RECOMENDATION", "recommendation"),
    ],
)
@pytest.mark.parametrize("mark", [": ", ":\n", "\n"])
def test_a_heading_at_the_beginning_of_a_line_may_have_a_letter_wrong(
    heading: str, kind: str, mark: str
) -> None:
    text = f"INDICATION: Cough.\n{heading}{mark}The lungs are clear.\nIMPRESSION: No disease."
    sections = [(section.kind, section.text) for section in clinical_sections(text)]
    assert (kind, "The lungs are clear.") in sections
    assert ("indication", "Cough.") in sections


@pytest.mark.parametrize("word", ["Windings", "Compression", "Restoration", "Mystery", "Aspiration"])
def test_words_that_are_only_alike_are_no_headings(word: str) -> None:
    text = f"FINDINGS: The lungs are clear.\n{word}: none.\nIMPRESSION: No disease."
    assert [section.kind for section in clinical_sections(text)] == ["findings", "impression"]
