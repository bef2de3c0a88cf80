"""Headers, delimiters and rows of tables."""

from pathlib import Path

import pytest

from training.common.errors import DataError
from training.common.rejections import LeftOut, Rejection
from training.common.tables.rows import count_rows, read_rows, read_table
from training.common.tables.table import Row, Table, open_table


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


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
def test_the_line_in_which_excel_names_the_delimiter(tmp_path: Path, first: str) -> None:
    table = table_of(tmp_path, f"{first}\r\nimage;text\r\n1.jpg;a, b\r\n")
    assert table.columns == ("image", "text")
    assert list(table.rows()) == [Row(3, ["1.jpg", "a, b"])]


def test_every_row_is_given_or_refused_by_its_line(tmp_path: Path) -> None:
    table = table_of(tmp_path, '\nimage,text\n1.jpg,a\n2.jpg\n3.jpg,b,c\n\n,\n4.jpg,"d\n')
    assert list(table.rows()) == [
        Row(3, ["1.jpg", "a"]),
        Rejection(4, "it has 1 field where the header has 2"),
        Rejection(5, "it has 3 fields where the header has 2; put a value with ',' in it into quotes"),
        LeftOut("rows without any value"),
        Rejection(8, "a quote opens that never closes"),
    ]


@pytest.mark.parametrize("header", ["image,text,text", "image,Text, text ", '"text",image,TEXT'])
def test_a_column_twice_ends_the_run(tmp_path: Path, header: str) -> None:
    with pytest.raises(DataError, match=r"(?i)the column 'text' twice \(columns \d and 3\)"):
        table_of(tmp_path, f"{header}\n")


@pytest.mark.parametrize("text", ["", "\n\r\n  \n"])
def test_an_empty_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="is empty; its first line has to name the columns"):
        table_of(tmp_path, text)


@pytest.mark.parametrize("text", ['{"images": [{"file": "1.jpg"}]}', '[\n  {"image": "1.jpg"}\n]'])
def test_json_is_no_table(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="is JSON, not a table"):
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


def test_published_tables_that_a_program_has_saved_again(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        '\ufeff ;STUDY ;Unnamed: 2;x\r\n0;"s1\n2";7;NaN\r\n1;nan;;n/a\r\n;;;\r\n'.encode("utf-16")
    )
    assert list(read_rows(path, ("study", "x"))) == [
        (2, {"study": "s1\n2", "x": ""}),
        (4, {"study": "", "x": ""}),
        LeftOut("rows without any value"),
    ]
    assert count_rows(path, ("study", "x")) == 3
