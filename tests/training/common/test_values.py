"""Values of tables: not known, numbers, ages."""

from itertools import repeat

import pytest

from training.common.values import (
    age_in_years,
    dicom_age_years,
    is_dicom_date,
    is_name_of_digits,
    is_not_known,
    is_without_words,
    parse_number,
)

NOT_KNOWN = (
    *("", "  ", "nan", "NaN", "None", "NULL", "null", "N/A", "n/a", "NA", "-", "#N/A", "<NA>", " nan "),
    *("(null)", "k. A.", "k.A.", "k.a.", "keine Angabe", "Keine  Angabe", "N.A.", "n. a.", "--", "?", "???"),
    *("unbekannt", "Unbekannt", "missing", "MISSING", "\u2013", "...", "___", "Unknown", "n/d", "inconnu"),
    *("Non renseign\xe9", "non disponible", "desconocido", "s/d", "sin datos", "onbekend", "\\N"),
)
KNOWN = ("null and void", "none", "0", "--5", "Nancy", "Na", "no", "+", "++", "missing tooth", "k", "A.")
WITHOUT_WORDS = ("", " ", "\u200b\u200b", "\ufeff", "___", "...", "-", "?!", "\u2026", "\u3002", "'", "|")
WITH_WORDS = ("a", "7", "\u80f8\u6c34", "\u200ba", "\U0001f436", "\u0e01", "\u0627")
NO_NUMBERS = (
    *("007", "-01", "00.5", "1,5", "1 5", "1e", "e5", ".", "+", "", "1e999", "1_0", "٣", "0x1f", "inf"),
    *("nan", "9007199254740993", "58Y", "1.2.3"),
)


@pytest.mark.parametrize(("value", "expected"), [*zip(NOT_KNOWN, repeat(True)), *zip(KNOWN, repeat(False))])
def test_values_that_stand_for_not_known(value: str, expected: bool) -> None:
    assert is_not_known(value) is expected


@pytest.mark.parametrize(
    ("text", "expected"), [*zip(WITHOUT_WORDS, repeat(True)), *zip(WITH_WORDS, repeat(False))]
)
def test_texts_without_words(text: str, expected: bool) -> None:
    assert is_without_words(text) is expected


@pytest.mark.parametrize(
    ("value", "of_dicom", "age"),
    [
        *(("058Y", 58, 58), ("000Y", 0, 0), ("013M", 1.083, 1.083), ("026W", 0.498, 0.498)),
        *(("003D", 0.008, 0.008), (" 104Y ", 104, 104), ("006M", 0.5, 0.5), ("58", None, 58)),
        *(("68.0", None, 68), ("058", None, None), ("58Y", None, None), ("0058Y", None, None)),
        *((other, None, None) for other in ("058y", "058X", "Y058", "", "nan", "-1", "x")),
    ],
)
def test_ages_are_years(value: str, of_dicom: float | None, age: float | None) -> None:
    assert dicom_age_years(value) == of_dicom
    assert age_in_years(value) == age


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *(("5", 5), ("-3", -3), ("+5", 5), ("0", 0), ("1.", 1.0), (".5", 0.5), ("1e2", 100.0)),
        *(("2.5E-1", 0.25), ("171.5", 171.5), ("0.07", 0.07), ("999999999999999", 999999999999999)),
        *((other, None) for other in NO_NUMBERS),
    ],
)
def test_numbers(value: str, number: float | None) -> None:
    parsed = parse_number(value)
    assert parsed == number
    assert type(parsed) is type(number)


def test_a_decimal_comma_and_names_of_digits() -> None:
    for value, number in {"65,5": 65.5, "-,5": -0.5, "65.5": None, "1.234,5": None}.items():
        assert parse_number(value, ",") == number
    for value, is_name in {"007": True, "9007199254740993": True, "0": False, "0.5": False}.items():
        assert is_name_of_digits(value) is is_name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *(("20210312", True), ("21810229", False), ("21800506", True), ("18991231", True)),
        *(("20211301", False), ("2021031", False), ("202103123", False), ("50414267", False)),
        ("17991231", False),
    ],
)
def test_days_as_dicom_writes_them(value: str, expected: bool) -> None:
    assert is_dicom_date(value) is expected
