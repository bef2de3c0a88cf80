"""Reads the tables of published data sets: named columns, compressed or not."""

import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from training.data.readers.tables.encodings import open_binary
from training.data.readers.tables.table import Row, open_table
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

_MOST_FOLDERS: Final = 1000


def find_table(folder: Path, name: str) -> Path | None:
    """`name`.csv or `name`.csv.gz in a folder; None without either."""
    return next(
        (path for path in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if path.is_file()), None
    )


def need_table(folder: Path, name: str) -> Path:
    """Like `find_table`, for a table that must be there.

    Raises:
        DataError: It is not there.
    """
    path = find_table(folder, name)
    if path is None:
        raise DataError(f"There is no {name}.csv or {name}.csv.gz in {folder}{_below(folder, name)}.")
    return path


def _below(folder: Path, name: str) -> str:
    """The folder one level below that has a table, as the end of a sentence."""
    try:
        inside = sorted(path for path in islice(folder.iterdir(), _MOST_FOLDERS) if path.is_dir())
    except OSError:
        return ""
    found = next((path for place in inside if (path := find_table(place, name)) is not None), None)
    return "" if found is None else f"; {found} is there: give the folder {found.parent}"


def read_rows(
    path: Path, columns: Sequence[str]
) -> Iterator[tuple[int, dict[str, str]] | Rejection | LeftOut]:
    """Rows of a table by the names of its columns, with the line on which each begins; broken rows by theirs.

    Args:
        path: The table.
        columns: Names that it must have.

    Raises:
        DataError: The table cannot be read, or has no column of one of these names.
    """
    table = open_table(path, frozenset(columns).__contains__, offered=False)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise DataError(f"{path} has no column {missing[0]!r}; is it the right file?")
    for row in table.rows():
        if isinstance(row, Row):
            yield row.line, dict(zip(table.columns, row.values, strict=True))
        elif isinstance(row, Rejection):
            yield Rejection(row.line, row.reason, path.name)
        else:
            yield row


def read_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Like `read_rows`, for a table that others are looked up in: a broken row is an error.

    Raises:
        DataError: The table cannot be read, has no column of one of these names, or a row is broken.
    """
    for row in read_rows(path, columns):
        if isinstance(row, Rejection):
            raise DataError(f"{path} cannot be used: line {row.line}: {row.reason}.")
        if not isinstance(row, LeftOut):
            yield row


def count_rows(path: Path) -> int:
    """Number of lines below the header of a table whose values have no line breaks.

    Raises:
        DataError: The table cannot be read.
    """
    try:
        with open_binary(path) as file:
            return max(0, sum(1 for line in file if line.strip()) - 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
