"""Values of tables: not known, numbers, ages."""

import pytest

from training.common.values import (
    dicom_age_years,
    is_dicom_date,
    is_name_of_digits,
    is_not_known,
    is_without_words,
    parse_number,
)


@pytest.mark.parametrize(
    "value",
    [
        *("", "  ", "nan", "NaN", "None", "NULL", "null", "N/A", "n/a", "NA", "-", "#N/A", "<NA>", " nan "),
        *(
            "\\N",
            "(null)",
            "k. A.",
            "k.A.",
            "k.a.",
            "keine Angabe",
            "Keine  Angabe",
            "N.A.",
            "n. a.",
            "--",
            "?",
        ),
        *("???", "unbekannt", "Unbekannt", "missing", "MISSING", "\u2013", "...", "___", "Unknown", "n/d"),
        *("inconnu", "Non renseign\xe9", "non disponible", "desconocido", "s/d", "sin datos", "onbekend"),
    ],
)
def test_values_that_stand_for_not_known(value: str) -> None:
    assert is_not_known(value)


@pytest.mark.parametrize(
    "value", ["null and void", "none", "0", "--5", "Nancy", "Na", "no", "+", "++", "missing tooth", "k", "A."]
)
def test_words_and_numbers_are_known(value: str) -> None:
    assert not is_not_known(value)


@pytest.mark.parametrize(
    "text", ["", " ", "\u200b\u200b", "\ufeff", "___", "...", "-", "?!", "\u2026", "\u3002", "'", "|"]
)
def test_texts_without_words(text: str) -> None:
    assert is_without_words(text)


@pytest.mark.parametrize("text", ["a", "7", "\u80f8\u6c34", "\u200ba", "\U0001f436", "\u0e01", "\u0627"])
def test_texts_with_words(text: str) -> None:
    assert not is_without_words(text)


@pytest.mark.parametrize(
    ("value", "years"),
    [("058Y", 58), ("000Y", 0), ("013M", 1.083), ("026W", 0.498), ("003D", 0.008), (" 104Y ", 104)],
)
def test_ages_of_dicom_are_years(value: str, years: float) -> None:
    assert dicom_age_years(value) == years


@pytest.mark.parametrize("value", ["58", "58Y", "0058Y", "058y", "058", "058X", "Y058", ""])
def test_other_values_are_no_ages(value: str) -> None:
    assert dicom_age_years(value) is None


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *[("5", 5), ("-3", -3), ("+5", 5), ("0", 0), ("1.", 1.0), (".5", 0.5), ("1e2", 100.0)],
        *[("2.5E-1", 0.25), ("171.5", 171.5), ("0.07", 0.07), ("999999999999999", 999999999999999)],
    ],
)
def test_numbers(value: str, number: float) -> None:
    parsed = parse_number(value)
    assert parsed == number
    assert type(parsed) is type(number)


@pytest.mark.parametrize(
    "value",
    [
        *["007", "-01", "00.5", "1,5", "1 5", "1e", "e5", ".", "+", "", "1e999", "1_0", "٣", "0x1f", "inf"],
        *["nan", "9007199254740993", "58Y", "1.2.3"],
    ],
)
def test_other_values_are_no_numbers(value: str) -> None:
    assert parse_number(value) is None


def test_a_decimal_comma() -> None:
    assert parse_number("65,5", ",") == 65.5
    assert parse_number("-,5", ",") == -0.5
    assert parse_number("65.5", ",") is None
    assert parse_number("1.234,5", ",") is None


def test_names_of_digits() -> None:
    assert is_name_of_digits("007")
    assert is_name_of_digits("9007199254740993")
    assert not is_name_of_digits("0")
    assert not is_name_of_digits("0.5")


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
