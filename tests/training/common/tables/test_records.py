"""Records of tables: quotes, line breaks, and reading on after a quote that is wrong."""

import csv
import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.common.tables.records import DELIMITERS, QuoteError, RecordReader

Record = tuple[int, list[str]] | tuple[int, str]


def records(text: str, delimiter: str = ",", begins_row: Callable[[str], bool] | None = None) -> list[Record]:
    """Every record with its line, or the line and the reason of a wrong quote."""
    reader = RecordReader(io.StringIO(text, newline=""), delimiter, begins_row)
    found: list[Record] = []
    while True:
        try:
            record = reader.next()
        except QuoteError as error:
            found.append((error.line, str(error)))
            continue
        if record is None:
            return found
        found.append(record)


def test_fields_with_quotes_and_line_breaks() -> None:
    assert records('a,"b, c"\r\n"d ""e""",f\r\n\r\n"g\r\nh",\n') == [
        (1, ["a", "b, c"]),
        (2, ['d "e"', "f"]),
        (4, ["g\r\nh", ""]),
    ]


def test_a_quote_within_a_field_is_a_character() -> None:
    assert records('1.jpg,a 5" pipe\n') == [(1, ["1.jpg", 'a 5" pipe'])]


def test_spaces_around_quotes_are_passed_over_after_commas() -> None:
    assert records('1.jpg, "a dog, wet" , x\n') == [(1, ["1.jpg", "a dog, wet", " x"])]
    assert records('1.jpg| "a dog" runs\n', "|") == [(1, ["1.jpg", ' "a dog" runs'])]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_quote_that_never_closes_costs_one_line(end: str) -> None:
    found = records(end.join(['1,"a', "2,b", "", "3,c"]))
    assert found == [(1, "a quote opens that never closes"), (2, ["2", "b"]), (4, ["3", "c"])]


def test_the_line_is_that_of_the_quote_and_not_of_the_record() -> None:
    found = records('1,"two\nlines","open\n2,b\n')
    assert found[0] == (2, "a quote opens that never closes")
    assert found[1:] == [(3, ["2", "b"])]


def test_text_after_a_quote_that_closes_is_wrong() -> None:
    reason = "text follows a quote that closes; inside of a field it is doubled"
    assert records('1,"a" dog\n2,"b\nc" d\n3,e\n') == [
        (1, reason),
        (2, reason),
        (3, ['c" d']),
        (4, ["3", "e"]),
    ]


def test_a_quote_that_swallows_a_row_is_wrong() -> None:
    found = records('1,"a\nand more\n2,"b"\n3,c\n', begins_row=lambda line: line[0] in "23")
    assert found == [
        (1, "a quote opens that does not close before line 3, another row"),
        (2, ["and more"]),
        (3, ["2", "b"]),
        (4, ["3", "c"]),
    ]


def test_a_field_of_any_length() -> None:
    word = "word " * 100_000
    assert records(f'1,"{word}"\n2,{word}') == [(1, ["1", word]), (2, ["2", word])]


def test_many_open_quotes_are_read_once_each() -> None:
    """A quadratic reader would need minutes."""
    lines = '1,"a\n' * 50_000
    found = records(lines)
    assert len(found) == 50_000
    assert found[-1] == (50_000, "a quote opens that never closes")


@pytest.mark.parametrize("delimiter", DELIMITERS)
@given(
    rows=st.lists(
        st.lists(st.text(alphabet='ab ,;|\t"\r\né', max_size=6), min_size=2, max_size=4), max_size=6
    ),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_records_of_the_csv_writer_come_back(delimiter: str, rows: list[list[str]], end: str) -> None:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator=end).writerows(rows)
    assert [record[1] for record in records(file.getvalue(), delimiter)] == rows
