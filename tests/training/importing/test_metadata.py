"""Columns of numbers, ages and names."""

import pytest

from index.filters.dates import parse_date
from training.common.record import Scalar
from training.importing.metadata import Values, read_values


def read(name: str, *values: str, delimiter: str = ",") -> tuple[list[Scalar], list[str]]:
    seen, notes = Values(), list[str]()
    for line, value in enumerate(values, 2):
        seen.add(value, line)
    column = read_values(name, seen, delimiter, notes)
    return [column.get(value, value) for value in values], notes


def test_numbers_in_every_spelling() -> None:
    assert read("height", "170", "1e2", "171.5", "+5", "1.", "-3", ".5") == (
        [170, 100.0, 171.5, 5, 1.0, -3, 0.5],
        [],
    )


def test_texts() -> None:
    assert read("place", "Rome", "Nice", "7") == (["Rome", "Nice", "7"], [])


@pytest.mark.parametrize("values", [("007", "012"), ("001", "123"), ("9007199254740992", "9007199254740993")])
def test_names_of_digits_stay_names(values: tuple[str, str]) -> None:
    assert read("film", *values) == (list(values), [])


def test_one_value_in_a_hundred_may_be_no_number() -> None:
    values = [str(number) for number in range(10, 109)]
    read_back, notes = read("age", *values, "unclear")
    assert read_back == [*map(int, values), "unclear"]
    assert notes == ["age: 1 of 100 is no number: 'unclear' on line 101; it stays a text."]
    read_back, notes = read("age", *values, "unclear", "58Y")
    assert read_back == [*values, "unclear", "58Y"]
    assert notes == [
        "age: 2 of 101 are no numbers: 'unclear' on line 101, '58Y' on line 102; "
        "the column stays text, which no search compares as numbers."
    ]


def test_one_age_with_a_zero_does_not_make_names_of_all() -> None:
    values = [str(number) for number in range(1, 150)]
    read_back, notes = read("age", *values, "058")
    assert read_back == [*map(int, values), "058"]
    assert notes == ["age: 1 of 150 is no number: '058' on line 151; it stays a text."]


def test_one_name_with_a_zero_among_others_of_its_length() -> None:
    values = [str(number) for number in range(1000, 1150)]
    assert read("film", *values, "0999") == ([*values, "0999"], [])


def test_ages_of_dicom_are_years() -> None:
    read_back, notes = read("Patient Age", "65", "058Y", "013M")
    assert read_back == [65, 58, 1.083]
    assert notes == ["Patient Age: DICOM ages are numbers of years: '058Y' on line 3, '013M' on line 4."]
    assert read("PatientAge", "058Y", "004D")[0] == [58, 0.011]


@pytest.mark.parametrize("name", ["room", "page", "village"])
def test_names_like_ages_in_other_columns(name: str) -> None:
    assert read(name, "101D", "102W") == (["101D", "102W"], [])


def test_decimal_commas() -> None:
    read_back, notes = read("size", "65,5", "70", "1,234", delimiter=";")
    assert read_back == [65.5, 70, 1.234]
    assert notes == ["size: a comma is the decimal mark: '65,5' on line 2, '1,234' on line 4."]
    assert read("size", "1,5", "2", delimiter=",")[0] == [1.5, 2]


def test_thousands_are_not_guessed_at() -> None:
    read_back, notes = read("price", "1,234", "5.5", "6", delimiter="\t")
    assert read_back == ["1,234", "5.5", "6"]
    assert "'1,234' on line 2" in notes[0]


@pytest.mark.parametrize(
    ("delimiter", "values", "numbers"),
    [
        (",", ("1,001", "5"), (1001, 5)),
        ("\t", ("1,001", "950"), (1001, 950)),
        ("\t", ("1,234,567", "2"), (1234567, 2)),
        (";", ("1,234.5", "12.5"), (1234.5, 12.5)),
        (";", ("1.001,5", "3,5", "7"), (1001.5, 3.5, 7)),
        (";", ("1.001", "3,5"), (1001, 3.5)),
        (";", ("1.234.567", "-2.000.000"), (1234567, -2000000)),
        (";", ("1 001,5", "2'000"), (1001.5, 2000)),
    ],
)
def test_marks_of_thousands(delimiter: str, values: tuple[str, ...], numbers: tuple[float, ...]) -> None:
    read_back, notes = read("dose", *values, delimiter=delimiter)
    assert tuple(read_back) == numbers
    assert any(note.startswith("dose: numbers are written with marks of thousands: ") for note in notes)


def test_a_point_that_may_be_of_thousands_is_said() -> None:
    read_back, notes = read("dose", "1.001", "2.500", delimiter=";")
    assert read_back == [1.001, 2.5]
    assert notes == [
        "dose: a point is taken for the decimal mark; write thousands without it: "
        "'1.001' on line 2, '2.500' on line 3."
    ]


@pytest.mark.parametrize(
    ("values", "days"),
    [
        (("3/25/2021", "3/4/2021"), ("2021-03-25", "2021-03-04")),
        (("25/3/2021", "3/4/2021"), ("2021-03-25", "2021-04-03")),
        (("2021/03/01", "2021/3/2"), ("2021-03-01", "2021-03-02")),
        (("25-03-2021", "04-03-2021"), ("2021-03-25", "2021-03-04")),
        (("3/25/2021 0:00", "3/4/2021 0:00"), ("2021-03-25", "2021-03-04")),
        (("3/25/2021 1:05:09 PM", "3/4/2021 12:00 AM"), ("2021-03-25T13:05:09", "2021-03-04T00:00:00")),
        (("25.03.2021 13:05", "4.3.2021 9:00"), ("2021-03-25T13:05:00", "2021-03-04T09:00:00")),
        (("2021-03-01T10:00:00", "2021-03-02"), ("2021-03-01T10:00:00", "2021-03-02")),
    ],
)
def test_days_in_the_spellings_of_programs(values: tuple[str, ...], days: tuple[str, ...]) -> None:
    read_back, _ = read("taken", *values)
    assert tuple(read_back) == days
    assert all(parse_date(str(day)) for day in read_back)


def test_days_that_may_be_two_are_not_guessed_at() -> None:
    read_back, notes = read("taken", "03/04/2021", "05/05/2021")
    assert read_back == ["03/04/2021", "05/05/2021"]
    assert notes == [
        "taken: '03/04/2021' may be 2021-04-03 or 2021-03-04, and no other value tells which; such days stay "
        "texts, which no range of dates finds: write them as 2021-03-25: '03/04/2021' on line 2."
    ]


def test_years_of_two_digits_are_said() -> None:
    assert read("Datum", "1.4.21", "25.03.99") == (
        ["2021-04-01", "1999-03-25"],
        [
            "Datum: days are stored as dates, such as 2021-04-01: '1.4.21' on line 2, '25.03.99' on line 3.",
            "Datum: two digits for the year stand for 1930 to 2029: "
            "'1.4.21' on line 2, '25.03.99' on line 3.",
        ],
    )
    assert read("x", "25.03.21")[0] == ["2021-03-25"]


def test_versions_of_programs_are_no_days() -> None:
    read_back, notes = read("version", "1.4.21", "1.12.30")
    assert read_back == ["1.4.21", "1.12.30"]
    assert "may be days with two digits for the year stay texts" in notes[0]


@pytest.mark.parametrize(
    ("value", "day"),
    [
        ("1.4.21", "2021-04-01"),
        ("11. M\xe4rz 2021", "2021-03-11"),
        ("11 Mar 2021", "2021-03-11"),
        ("11-Mar-2021", "2021-03-11"),
        ("March 11, 2021", "2021-03-11"),
        ("Thursday, March 11th, 2021", "2021-03-11"),
        ("Do., 11. M\xe4rz 2021", "2021-03-11"),
        ("11 mars 2021", "2021-03-11"),
        ("1er ao\xfbt 2021", "2021-08-01"),
        ("11 de marzo de 2021", "2021-03-11"),
        ("11 gennaio 2021", "2021-01-11"),
        ("11 mei 2021", "2021-05-11"),
        ("11. 3. 2021", "2021-03-11"),
        ("20210311", "2021-03-11"),
        ("2021-03-11T10:00Z", "2021-03-11T10:00Z"),
        ("2021-03-11T10:00:00.123+01:00", "2021-03-11T10:00:00.123+01:00"),
        ("11.03.2021 10:00 Uhr", "2021-03-11T10:00:00"),
        ("2021/03/11 10:00 +0100", "2021-03-11T10:00:00+0100"),
        ("March 11, 2021, 1:05 PM", "2021-03-11T13:05:00"),
        ("11.03.2021 10:00 UTC", "2021-03-11T10:00:00Z"),
    ],
)
def test_days_in_many_spellings_in_one_column(value: str, day: str) -> None:
    read_back, notes = read("taken", "03.03.2021", value, "2021-03-12")
    assert read_back == ["2021-03-03", day, "2021-03-12"]
    assert parse_date(day) is not None
    assert len(notes) in (1, 2)


@pytest.mark.parametrize(
    "value", ["March 2021", "11 dogs 2021", "May 42, 2021", "12.13.2021", "11.03.2021 25:00"]
)
def test_what_is_no_day_is_said_with_its_line(value: str) -> None:
    read_back, notes = read("taken", "03.03.2021", value)
    assert read_back == ["03.03.2021", value]
    assert notes == [
        f"taken: 1 of 2 is no day: {value!r} on line 3; the column stays text, which no range of dates finds."
    ]


@pytest.mark.parametrize(
    ("values", "numbers", "unit"),
    [
        (("1%", "12.5 %", "100%"), (1, 12.5, 100), "%"),
        (("12 mm", "3.5 mm"), (12, 3.5), "mm"),
        (("12mm", "3mm"), (12, 3), "mm"),
        (("5 m", "6 m"), (5, 6), "m"),
        (("70 kVp", "120 kVp"), (70, 120), "kVp"),
        (("12 \xb5m", "3 \u03bcm"), (12, 3), "\xb5m"),
        (("37.5 \xb0C", "-1 \xb0C"), (37.5, -1), "\xb0C"),
        (("1,234 px", "950 px"), (1234, 950), "px"),
    ],
)
def test_numbers_with_one_unit(values: tuple[str, ...], numbers: tuple[float, ...], unit: str) -> None:
    read_back, notes = read("size", *values)
    assert tuple(read_back) == numbers
    assert notes[0].startswith(
        f"size: numbers are stored without their unit {unit!r}: {values[0]!r} on line 2"
    )


def test_a_decimal_comma_with_a_unit() -> None:
    assert read("size", "12,5 mm", "3 mm", delimiter=";")[0] == [12.5, 3]


@pytest.mark.parametrize("other", ["3 cm", "3", "small"])
def test_units_that_differ_are_said(other: str) -> None:
    read_back, notes = read("size", "12 mm", "5 mm", other)
    assert read_back == ["12 mm", "5 mm", other]
    assert notes == [
        f"size: 1 of 3 is not in 'mm' as '12 mm' on line 2: {other!r} on line 4; the column stays text, "
        "which no search compares as numbers."
    ]


@pytest.mark.parametrize(
    "values",
    # The last ones are parts of "months" and of "hours".
    [("5a", "6a"), ("5m", "6m"), ("3 dogs", "4 dogs"), ("101D", "102D"), ("3 on", "4 on"), ("2 ou", "5 ou")],
)
def test_names_that_look_like_measures(values: tuple[str, str]) -> None:
    assert read("room", *values) == (list(values), [])


def test_what_is_no_day_among_days_is_named() -> None:
    values = [f"3/{day}/20{year}" for day in range(1, 29) for year in (19, 20, 21, 22)]
    read_back, notes = read("taken", *values, "unclear")
    assert read_back[-2:] == ["2022-03-28", "unclear"]
    assert notes[-1] == "taken: 1 value is no day and stays text: 'unclear' on line 114."


def test_points_and_commas_in_one_column() -> None:
    read_back, notes = read("size", "1.5", "2.5", "3,5", delimiter=";")
    assert read_back == ["1.5", "2.5", "3,5"]
    assert "'3,5' on line 4" in notes[0]


def test_days_as_dicom_writes_them_stay_texts_for_ranges_of_dates() -> None:
    assert read("StudyDate", "20210312", "21800506") == (
        ["20210312", "21800506"],
        ["StudyDate: days as DICOM writes them are dates: '20210312' on line 2, '21800506' on line 3."],
    )
    assert read("Datum", "12.03.2021", "1.4.2021") == (
        ["2021-03-12", "2021-04-01"],
        [
            "Datum: days are stored as dates, such as 2021-03-12: "
            "'12.03.2021' on line 2, '1.4.2021' on line 3."
        ],
    )
    assert read("Datum", "31.02.2021", "12.03.2021") == (
        ["31.02.2021", "12.03.2021"],
        [
            "Datum: 1 of 2 is no day: '31.02.2021' on line 2; the column stays text, which no range of dates "
            "finds."
        ],
    )
    assert read("number", "20210312", "20211312")[0] == [20210312, 20211312]
