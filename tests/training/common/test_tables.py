"""Tables: quotes and line breaks, headers, delimiters and rows, and reading on after what is wrong."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.common.errors import DataError
from training.common.rejections import LeftOut, Rejection
from training.common.tables import (
    DELIMITERS,
    QuoteError,
    RecordReader,
    Row,
    Table,
    count_rows,
    open_table,
    read_rows,
    read_table,
)

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


NEVER_CLOSES = "a quote opens that never closes"
TEXT_FOLLOWS = "text follows a quote that closes; inside of a field it is doubled"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('a,"b, c"\r\n"d ""e""",f\r\n', [(1, ["a", "b, c"]), (2, ['d "e"', "f"])]),
        ('a,b\n\r\n"g\r\nh",\n', [(1, ["a", "b"]), (3, ["g\r\nh", ""])]),
        ('1.jpg,a 5" pipe\n', [(1, ["1.jpg", 'a 5" pipe'])]),
        ('1.jpg, "a dog, wet" , x\n', [(1, ["1.jpg", "a dog, wet", " x"])]),
        ('1,"two\nlines","open\n2,b\n', [(2, NEVER_CLOSES), (3, ["2", "b"])]),
        ('1,"a" dog\n3,e\n', [(1, TEXT_FOLLOWS), (2, ["3", "e"])]),
        ('2,"b\nc" d\n3,e\n', [(1, TEXT_FOLLOWS), (2, ['c" d']), (3, ["3", "e"])]),
        # A quote that never closes costs one line, whatever ends it.
        *(
            (end.join(['1,"a', "2,b", "", "3,c"]), [(1, NEVER_CLOSES), (2, ["2", "b"]), (4, ["3", "c"])])
            for end in ("\n", "\r\n", "\r")
        ),
    ],
)
def test_records_of_a_table_and_wrong_quotes(text: str, found: list[Record]) -> None:
    assert records(text) == found


def test_a_quote_behind_a_bar_and_a_space_is_a_character() -> None:
    assert records('1.jpg| "a dog" runs\n', "|") == [(1, ["1.jpg", ' "a dog" runs'])]


def test_a_quote_that_swallows_a_row_is_wrong() -> None:
    found = records('1,"a\nand more\n2,"b"\n3,c\n', begins_row=lambda line: line[0] in "23")
    assert found == [
        (1, "a quote opens that does not close before line 3, another row"),
        (2, ["and more"]),
        (3, ["2", "b"]),
        (4, ["3", "c"]),
    ]


def test_long_fields_and_many_open_quotes_are_read_once() -> None:
    """A quadratic reader would need minutes."""
    word = "word " * 100_000
    assert records(f'1,"{word}"\n2,{word}') == [(1, ["1", word]), (2, ["2", word])]
    found = records('1,"a\n' * 50_000)
    assert (len(found), found[-1]) == (50_000, (50_000, NEVER_CLOSES))


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


def table_of(folder: Path, text: str) -> Table:
    path = folder / "t.csv"
    path.write_bytes(text.encode())
    return open_table(path, frozenset({"image", "text"}).__contains__)


@pytest.mark.parametrize(
    ("header", "delimiter", "columns"),
    [
        ("image,text", ",", ("image", "text")),
        ("image;text, in French;age", ";", ("image", "text, in French", "age")),
        ("image\ttext", "\t", ("image", "text")),
        ("image | text|| x;y", "|", ("image", "text", "", "x;y")),
        ('"image";"text"', ";", ("image", "text")),
        (" image , text ", ",", ("image", "text")),
        ("image", ",", ("image",)),
        ("a;b;c,d", ";", ("a", "b", "c,d")),
    ],
)
def test_the_header_tells_the_delimiter(
    tmp_path: Path, header: str, delimiter: str, columns: tuple[str, ...]
) -> None:
    table = table_of(tmp_path, f"{header}\n")
    assert (table.delimiter, table.columns) == (delimiter, columns)


def test_the_line_in_which_excel_names_the_delimiter(tmp_path: Path) -> None:
    for first in ("sep=;", '"sep=;"', "SEP=;"):
        table = table_of(tmp_path, f"{first}\r\nimage;text\r\n1.jpg;a, b\r\n")
        assert (table.columns, list(table.rows())) == (("image", "text"), [Row(3, ["1.jpg", "a, b"])])


def test_every_row_is_given_or_refused_by_its_line(tmp_path: Path) -> None:
    table = table_of(tmp_path, '\nimage,text\n1.jpg,a\n2.jpg\n3.jpg,b,c\n\n,\n4.jpg,"d\n')
    assert list(table.rows()) == [
        Row(3, ["1.jpg", "a"]),
        Rejection(4, "it has 1 field where the header has 2"),
        Rejection(5, "it has 3 fields where the header has 2; put a value with ',' in it into quotes"),
        LeftOut("rows without any value"),
        Rejection(8, "a quote opens that never closes"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *(
            (header, r"(?i)the column 'text' twice \(columns \d and 3\)")
            for header in ("image,text,text", "image,Text, text ", '"text",image,TEXT')
        ),
        *((text, "is empty; its first line has to name the columns") for text in ("", "\n\r\n  \n")),
        ('{"images": [{"file": "1.jpg"}]}', "is JSON, not a table"),
        ('[\n  {"image": "1.jpg"}\n]', "is JSON, not a table"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        table_of(tmp_path, text)


def test_columns_of_published_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3\n")
    assert list(read_rows(path, ("b",))) == [
        (2, {"a": "1", "b": "2"}),
        Rejection(3, "it has 1 field where the header has 2", "t.csv"),
    ]
    assert count_rows(path, ("b",)) == 2
    with pytest.raises(DataError, match="no column 'c'; is it the right file"):
        list(read_rows(path, ("c",)))
    with pytest.raises(DataError, match=r"t\.csv cannot be used: line 3: it has 1 field"):
        list(read_table(path, ("a",)))
    # As another program has saved it.
    path.write_bytes(
        '\ufeff ;STUDY ;Unnamed: 2;x\r\n0;"s1\n2";7;NaN\r\n1;nan;;n/a\r\n;;;\r\n'.encode("utf-16")
    )
    assert list(read_rows(path, ("study", "x"))) == [
        (2, {"study": "s1\n2", "x": ""}),
        (4, {"study": "", "x": ""}),
        LeftOut("rows without any value"),
    ]
    assert count_rows(path, ("study", "x")) == 3
