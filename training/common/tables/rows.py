"""Reads the tables of published data sets: named columns, compressed or not."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from training.common.errors import DataError
from training.common.record import LineError, Record
from training.common.rejections import LeftOut, Rejection
from training.common.tables.table import Row, Table, is_unnamed, open_table
from training.common.values import is_not_known

_MOST_FOLDERS: Final = 1000


def find_table(folder: Path, name: str) -> Path | None:
    """`name`.csv or `name`.csv.gz in a folder; None without either."""
    paths = (folder / f"{name}.csv", folder / f"{name}.csv.gz")
    return next((path for path in paths if path.is_file()), None)


def need_table(folder: Path, name: str) -> Path:
    """Like `find_table`; a DataError where the table is missing, which names a folder below that has it."""
    if (path := find_table(folder, name)) is not None:
        return path
    try:
        below = sorted(path for path in islice(folder.iterdir(), _MOST_FOLDERS) if path.is_dir())
    except OSError:
        below = []
    hint = next(
        (
            f"; {path} is there: give the folder {path.parent}"
            for one in below
            if (path := find_table(one, name))
        ),
        "",
    )
    raise DataError(f"There is no {name}.csv or {name}.csv.gz in {folder}{hint}.")


def read_rows(
    path: Path, columns: Sequence[str]
) -> Iterator[tuple[int, dict[str, str]] | Rejection | LeftOut]:
    """Rows of a table by the names of its columns, with the line on which each begins; broken rows by theirs.

    Names are compared without case. Values that stand for "not known", such as "nan", are "".

    Raises:
        DataError: The table cannot be read, or has no column of one of these names.
    """
    table, names = _open(path, columns)
    for row in table.rows():
        if isinstance(row, Row):
            values = (value if not is_not_known(value) else "" for value in row.values)
            yield row.line, {name: value for name, value in zip(names, values, strict=True) if name}
        elif isinstance(row, Rejection):
            yield Rejection(row.line, row.reason, path.name)
        else:
            yield row


def read_records(
    path: Path, columns: Sequence[str], record: Callable[[dict[str, str]], Record | LeftOut], table: str = ""
) -> Iterator[Record | Rejection | LeftOut]:
    """What `read_rows` gives, with a record for each row.

    `record` makes a row a record; a LineError or a DataError of it refuses the row, under the name `table`
    where a data set has several.
    """
    for item in read_rows(path, columns):
        if isinstance(item, Rejection | LeftOut):
            yield item
            continue
        line, row = item
        try:
            made = record(row)
        except (LineError, DataError) as error:
            yield Rejection(line, str(error), table)
        else:
            yield replace(made, line=line) if isinstance(made, Record) else made


def _open(path: Path, columns: Sequence[str]) -> tuple[Table, list[str]]:
    """Open a table; the names of its columns are as asked for, and "" for one without a name."""
    asked = {name.casefold(): name for name in columns}
    table = open_table(path, lambda name: name.casefold() in asked, offered=False)
    names = [asked.get(name.casefold(), name) for name in table.columns]
    missing = [name for name in columns if name not in names]
    if missing:
        raise DataError(f"{path} has no column {missing[0]!r}; is it the right file?")
    return table, ["" if is_unnamed(name) else name for name in names]


def read_table(path: Path, columns: Sequence[str], unique: str = "") -> Iterator[tuple[int, dict[str, str]]]:
    """Like `read_rows`, for a table that others are looked up in: a broken row is an error.

    Of rows with one value in the column `unique`, if it is given, all are equal.

    Raises:
        DataError: The table cannot be read, has no column of one of these names, a row is broken, or two
            differ that are looked up by the same value.
    """
    known: dict[str, tuple[int, dict[str, str]]] = {}
    for row in read_rows(path, columns):
        if isinstance(row, Rejection):
            raise DataError(f"{path} cannot be used: line {row.line}: {row.reason}.")
        if isinstance(row, LeftOut):
            continue
        if unique:
            value = row[1][unique]
            line, before = known.setdefault(value.strip(), row)
            if before != row[1]:
                raise DataError(
                    f"{path} cannot be used: lines {line} and {row[0]} differ for {value!r}; remove one."
                )
        yield row


def count_rows(path: Path, columns: Sequence[str]) -> int:
    """Count what `read_rows` gives, by reading the whole table: values may have line breaks.

    Raises:
        DataError: The table cannot be read, or has no column of one of these names.
    """
    table, _ = _open(path, columns)
    return sum(row.count if isinstance(row, LeftOut) else 1 for row in table.rows())
