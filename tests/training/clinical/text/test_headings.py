"""Headings of reports with a letter wrong."""

import pytest

from training.clinical.text.sections import clinical_sections

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
