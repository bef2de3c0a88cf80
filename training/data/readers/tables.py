"""Reads the comma-separated tables of published data sets, compressed or not."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from training.errors import DataError


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
        raise DataError(f"There is no {name}.csv or {name}.csv.gz in {folder}.")
    return path


def read_table(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a table with the line on which each ends; a value that a short row lacks is empty.

    Raises:
        DataError: The table cannot be read, or has no column of one of these names.
    """
    try:
        with (
            _open(path) as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="") as text,
        ):
            reader = csv.DictReader(text, restval="")
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{path} has no column {missing[0]!r}; is it the right file?")
            for row in reader:
                # A row that is too long has its rest in a list.
                yield reader.line_num, {name: value for name, value in row.items() if isinstance(value, str)}
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


def count_rows(path: Path) -> int:
    """Number of lines below the header of a table whose values have no line breaks.

    Raises:
        DataError: The table cannot be read.
    """
    try:
        with _open(path) as file:
            return max(0, sum(1 for line in file if line.strip()) - 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


def _open(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
