"""Singular, plural and compounds."""

import pytest

from index.catalogue.words import fold, has_part, inflections, is_compound, stems


@pytest.mark.parametrize(
    ("singular", "plural"),
    [
        ("effusion", "effusions"),
        ("mass", "masses"),
        ("opacity", "opacities"),
        ("leaf", "leaves"),
        ("knife", "knives"),
        ("metastasis", "metastases"),
        ("bronchus", "bronchi"),
        ("bulla", "bullae"),
        ("diverticulum", "diverticula"),
        ("woman", "women"),
        ("child", "children"),
        ("person", "people"),
        ("Erguss", "Ergüsse"),
        ("Erguß", "Ergüsse"),
        ("Rundherd", "Rundherde"),
        ("Fraktur", "Frakturen"),
        ("Lunge", "Lungen"),
        ("Bild", "Bilder"),
        ("Thrombose", "Thrombosen"),
        ("Thrombus", "Thromben"),
        ("Patientin", "Patientinnen"),
    ],
)
def test_either_number_finds_the_other(singular: str, plural: str) -> None:
    assert fold(plural) in inflections(fold(singular))
    assert fold(singular) in inflections(fold(plural))


@pytest.mark.parametrize(
    ("word", "other"),
    [("mass", "mas"), ("the", "then"), ("cat", "cate"), ("as", "a"), ("caf", "cafe"), ("normal", "abnormal")],
)
def test_other_words_are_no_inflections(word: str, other: str) -> None:
    assert other not in inflections(word)
    assert word not in inflections(other)


def test_words_of_other_letters_and_numbers_have_no_endings() -> None:
    for word in ("выпот", "胸水", "2026", "t2w"):
        assert inflections(word) == []
        assert stems(word) == []


@pytest.mark.parametrize(
    ("word", "compound", "is_part"),
    [
        ("Erguss", "Pleuraerguss", True),
        ("Ergüsse", "Pleuraerguss", True),
        ("Erguss", "Pleuraergüsse", True),
        ("Erguss", "Pleuraergussbildung", True),
        ("Herz", "Herzschatten", True),
        ("Lunge", "Lungenödem", True),
        ("Fraktur", "Rippenserienfraktur", True),
        ("normal", "abnormal", False),
        ("auffällig", "unauffällig", False),
        ("specific", "nonspecific", False),
        ("heart", "hearts", False),
        ("arm", "Oberarm", False),
    ],
)
def test_parts_of_compounds(word: str, compound: str, is_part: bool) -> None:
    assert is_compound(fold(compound)) or not is_part
    assert any(has_part(fold(compound), stem) for stem in stems(fold(word))) is is_part
