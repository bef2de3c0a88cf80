"""Columns of numbers, measures, ages, names and days."""

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


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("height", ("170", "1e2", "171.5", "+5", "1.", "-3", ".5"), [170, 100.0, 171.5, 5, 1.0, -3, 0.5]),
        ("place", ("Rome", "Nice", "7"), None),
        # Names of digits.
        ("film", ("007", "012"), None),
        ("film", ("001", "123"), None),
        ("film", ("9007199254740992", "9007199254740993"), None),
        ("film", (*map(str, range(1000, 1150)), "0999"), None),
        # Names like ages or measures; the last ones are parts of "months" and of "hours".
        *((name, ("101D", "102W"), None) for name in ("room", "page", "village")),
        *(("room", values, None) for values in (("5a", "6a"), ("5m", "6m"), ("3 dogs", "4 dogs"), ("3 on",
         "4 on"), ("2 ou", "5 ou"))),
        ("number", ("20210312", "20211312"), [20210312, 20211312]),
    ],
)  # fmt: skip
def test_columns_that_need_no_note(name: str, values: tuple[str, ...], expected: list[Scalar] | None) -> None:
    assert read(name, *values) == (list(values) if expected is None else expected, [])


TENS = tuple(map(str, range(10, 109)))
STAYS = "the column stays text, which no search compares as numbers."
NO_RANGE = "the column stays text, which no range of dates finds."


@pytest.mark.parametrize(
    ("name", "delimiter", "values", "expected", "notes"),
    [
        ("age", ",", (*TENS, "unclear"), [*map(int, TENS), "unclear"], [
            "age: 1 of 100 is no number: 'unclear' on line 101; it stays a text.",
        ]),
        ("age", ",", (*TENS, "unclear", "58Y"), None, [
            f"age: 2 of 101 are no numbers: 'unclear' on line 101, '58Y' on line 102; {STAYS}",
        ]),
        # One age with a zero does not make names of all.
        ("age", ",", (*TENS, "058"), [*map(int, TENS), "058"], [
            "age: 1 of 100 is no number: '058' on line 101; it stays a text.",
        ]),
        ("Patient Age", ",", ("65", "058Y", "013M"), [65, 58, 1.083], [
            "Patient Age: DICOM ages are numbers of years: '058Y' on line 3, '013M' on line 4.",
        ]),
        ("PatientAge", ",", ("058Y", "004D"), [58, 0.011], [
            "PatientAge: DICOM ages are numbers of years: '058Y' on line 2, '004D' on line 3.",
        ]),
        ("size", ";", ("65,5", "70", "1,234"), [65.5, 70, 1.234], [
            "size: a comma is the decimal mark: '65,5' on line 2, '1,234' on line 4.",
        ]),
        ("size", ",", ("1,5", "2"), [1.5, 2], ["size: a comma is the decimal mark: '1,5' on line 2."]),
        ("price", "\t", ("1,234", "5.5", "6"), None, [
            f"price: 1 of 3 is no number: '1,234' on line 2; {STAYS}",
        ]),
        ("size", ";", ("1.5", "2.5", "3,5"), None, [f"size: 1 of 3 is no number: '3,5' on line 4; {STAYS}"]),
        ("dose", ";", ("1.001", "2.500"), [1.001, 2.5], [
            "dose: a point is taken for the decimal mark; write thousands without it: "
            "'1.001' on line 2, '2.500' on line 3.",
        ]),
        *(("size", ",", ("12 mm", "5 mm", other), None, [
            f"size: 1 of 3 is not in 'mm' as '12 mm' on line 2: {other!r} on line 4; {STAYS}",
        ]) for other in ("3 cm", "3", "small")),
        ("taken", ",", ("03/04/2021", "05/05/2021"), None, [
            "taken: '03/04/2021' may be 2021-04-03 or 2021-03-04, and no other value tells which; such days "
            "stay texts, which no range of dates finds: write them as 2021-03-25: '03/04/2021' on line 2.",
        ]),
        ("Datum", ",", ("1.4.21", "25.03.99"), ["2021-04-01", "1999-03-25"], [
            "Datum: days are stored as dates, such as 2021-04-01: '1.4.21' on line 2, '25.03.99' on line 3.",
            "Datum: two digits for the year stand for 1930 to 2029: '1.4.21' on line 2, "
            "'25.03.99' on line 3.",
        ]),
        ("x", ",", ("25.03.21",), ["2021-03-25"], [
            "x: days are stored as dates, such as 2021-03-25: '25.03.21' on line 2.",
            "x: two digits for the year stand for 1930 to 2029: '25.03.21' on line 2.",
        ]),
        ("version", ",", ("1.4.21", "1.12.30"), None, [
            "version: numbers that may be days with two digits for the year stay texts, which no range of "
            "dates finds; write days as 2021-03-25: '1.4.21' on line 2, '1.12.30' on line 3.",
        ]),
        *(("taken", ",", ("03.03.2021", other), None, [
            f"taken: 1 of 2 is no day: {other!r} on line 3; {NO_RANGE}",
        ]) for other in ("March 2021", "11 dogs 2021", "May 42, 2021", "12.13.2021", "11.03.2021 25:00")),
        ("StudyDate", ",", ("20210312", "21800506"), None, [
            "StudyDate: days as DICOM writes them are dates: '20210312' on line 2, '21800506' on line 3.",
        ]),
    ],
)  # fmt: skip
def test_what_is_not_as_the_column_seems_is_said(
    name: str, delimiter: str, values: tuple[str, ...], expected: list[Scalar] | None, notes: list[str]
) -> None:
    """A column that is read otherwise than it is written says so; None: it stays as it is."""
    assert read(name, *values, delimiter=delimiter) == (list(values) if expected is None else expected, notes)


@pytest.mark.parametrize(
    ("delimiter", "values", "numbers"),
    [
        (",", ("1,001", "5"), [1001, 5]),
        ("\t", ("1,001", "950"), [1001, 950]),
        ("\t", ("1,234,567", "2"), [1234567, 2]),
        (";", ("1,234.5", "12.5"), [1234.5, 12.5]),
        (";", ("1.001,5", "3,5", "7"), [1001.5, 3.5, 7]),
        (";", ("1.001", "3,5"), [1001, 3.5]),
        (";", ("1.234.567", "-2.000.000"), [1234567, -2000000]),
        (";", ("1 001,5", "2'000"), [1001.5, 2000]),
    ],
)
def test_marks_of_thousands(delimiter: str, values: tuple[str, ...], numbers: list[Scalar]) -> None:
    read_back, notes = read("dose", *values, delimiter=delimiter)
    assert read_back == numbers
    assert any(note.startswith("dose: numbers are written with marks of thousands: ") for note in notes)


@pytest.mark.parametrize(
    ("delimiter", "values", "numbers", "unit"),
    [
        (",", ("1%", "12.5 %", "100%"), [1, 12.5, 100], "%"),
        (",", ("12 mm", "3.5 mm"), [12, 3.5], "mm"),
        (",", ("12mm", "3mm"), [12, 3], "mm"),
        (",", ("5 m", "6 m"), [5, 6], "m"),
        (",", ("70 kVp", "120 kVp"), [70, 120], "kVp"),
        (",", ("12 \xb5m", "3 \u03bcm"), [12, 3], "\xb5m"),
        (",", ("37.5 \xb0C", "-1 \xb0C"), [37.5, -1], "\xb0C"),
        (",", ("1,234 px", "950 px"), [1234, 950], "px"),
        (";", ("12,5 mm", "3 mm"), [12.5, 3], "mm"),
    ],
)
def test_numbers_with_one_unit(
    delimiter: str, values: tuple[str, ...], numbers: list[Scalar], unit: str
) -> None:
    read_back, notes = read("size", *values, delimiter=delimiter)
    assert read_back == numbers
    assert notes[0].startswith(
        f"size: numbers are stored without their unit {unit!r}: {values[0]!r} on line 2"
    )


@pytest.mark.parametrize(
    ("values", "days"),
    [
        (("3/25/2021", "3/4/2021"), ["2021-03-25", "2021-03-04"]),
        (("25/3/2021", "3/4/2021"), ["2021-03-25", "2021-04-03"]),
        (("2021/03/01", "2021/3/2"), ["2021-03-01", "2021-03-02"]),
        (("25-03-2021", "04-03-2021"), ["2021-03-25", "2021-03-04"]),
        (("3/25/2021 0:00", "3/4/2021 0:00"), ["2021-03-25", "2021-03-04"]),
        (("3/25/2021 1:05:09 PM", "3/4/2021 12:00 AM"), ["2021-03-25T13:05:09", "2021-03-04T00:00:00"]),
        (("25.03.2021 13:05", "4.3.2021 9:00"), ["2021-03-25T13:05:00", "2021-03-04T09:00:00"]),
        (("2021-03-01T10:00:00", "2021-03-02"), ["2021-03-01T10:00:00", "2021-03-02"]),
        *(
            (("03.03.2021", value, "2021-03-12"), ["2021-03-03", day, "2021-03-12"])
            for value, day in (
                ("1.4.21", "2021-04-01"),
                *((value, "2021-03-11") for value in (
                    *("11. M\xe4rz 2021", "11 Mar 2021", "11-Mar-2021", "March 11, 2021", "11 mars 2021"),
                    *("Thursday, March 11th, 2021", "Do., 11. M\xe4rz 2021", "11 de marzo de 2021"),
                    *("11. 3. 2021", "20210311"),
                )),
                ("1er ao\xfbt 2021", "2021-08-01"),
                ("11 gennaio 2021", "2021-01-11"),
                ("11 mei 2021", "2021-05-11"),
                ("2021-03-11T10:00Z", "2021-03-11T10:00Z"),
                ("2021-03-11T10:00:00.123+01:00", "2021-03-11T10:00:00.123+01:00"),
                ("11.03.2021 10:00 Uhr", "2021-03-11T10:00:00"),
                ("2021/03/11 10:00 +0100", "2021-03-11T10:00:00+0100"),
                ("March 11, 2021, 1:05 PM", "2021-03-11T13:05:00"),
                ("11.03.2021 10:00 UTC", "2021-03-11T10:00:00Z"),
            )
        ),
    ],
)  # fmt: skip
def test_days_in_many_spellings(values: tuple[str, ...], days: list[str]) -> None:
    read_back, notes = read("taken", *values)
    assert read_back == days
    assert all(map(parse_date, days))
    assert len(notes) == any(day not in values for day in days) + any(value == "1.4.21" for value in values)


def test_what_is_no_day_among_days_is_named() -> None:
    values = [f"3/{day}/20{year}" for day in range(1, 29) for year in (19, 20, 21, 22)]
    read_back, notes = read("taken", *values, "unclear")
    assert read_back[-2:] == ["2022-03-28", "unclear"]
    assert notes[-1] == "taken: 1 value is no day and stays text: 'unclear' on line 114."
