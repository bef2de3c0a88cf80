"""A table of text: its header, its dialect, and its rows with their lines."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Final

from training.data.readers.tables.encodings import open_text
from training.data.readers.tables.json_lines import JsonLineError, columns_of_lines, rows_of_lines
from training.data.readers.tables.records import DELIMITERS, QuoteError, RecordReader
from training.data.rejections import LeftOut, Rejection
from training.errors import DataError

# Excel's own way to name the delimiter, on a line ahead of the header.
_SEPARATOR_LINE: Final = re.compile(r'"?sep=(?P<delimiter>[,;|\t])"?[,;|\t]*\s*', re.IGNORECASE)
# A line of the files of captions of Flickr8k and Flickr30k, which have no header and no quotes.
_CAPTION: Final = re.compile(r"\s*(?P<image>[^\t]+)#[0-9]+\t(?P<text>[^\t]*)")
# Of the beginning of a file that was put behind another, and of pages of the web.
_MARKS_AND_SPACES: Final = "\ufeff\u200b \t\r\n"
_HEAD_LINES: Final = 50
_EMPTY_ROW: Final = "rows without any value"
_HEADER_AGAIN: Final = "rows that repeat the header"
_ODD_QUOTES: Final = ("\u201c", "\u201e", "\u201d", "''", "'")
# pandas calls a column without a name so, when it reads a table that it wrote with its index.
_UNNAMED: Final = re.compile(r"(?:Unnamed: [0-9]+)?")
# A title ahead of the header is passed over for a line with so many known columns.
_HEADER_LIKE: Final = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: the line on which it begins, and a value for each column.

    `texts` has the columns, by their places, that hold several texts.
    """

    line: int
    values: list[str]
    texts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table whose header has been read.

    Attributes:
        path: Its file.
        columns: Names in the header without outer spaces; "" for a column without a name.
        delimiter: Between two fields.
        header_records: Number of records that are not rows: the header, a line that names the delimiter, and
            titles ahead.
        encoding: As the user gave it.
        offered: Whether the user can give one, for messages.
        titles: Number of records ahead of the header that say nothing of columns.
        captions: Whether it has no header, and lines such as NAME#NUMBER, a tab and a caption.
        is_known: For lines of JSON objects, whether the name of a column says what it holds; None for others.
    """

    path: Path
    columns: tuple[str, ...]
    delimiter: str
    header_records: int = 1
    encoding: str | None = None
    offered: bool = True
    titles: int = 0
    captions: bool = False
    is_known: Callable[[str], bool] | None = None

    def rows(self, begins_row: Callable[[str], bool] | None = None) -> Iterator[Row | Rejection | LeftOut]:
        """Everything below the header: rows, broken ones by their line, and rows without any value.

        Args:
            begins_row: Whether a line inside of a quoted field is surely the beginning of another row.

        Raises:
            DataError: The table cannot be read, or is not in its encoding.
        """
        with open_text(self.path, self.encoding, offered=self.offered) as text:
            if self.captions:
                yield from map(_caption, count(1), text)
                return
            if self.is_known is not None:
                for line, values in rows_of_lines(text, self.columns, self.is_known):
                    if isinstance(values, JsonLineError):
                        yield Rejection(line, str(values))
                    else:
                        checked = self._checked(line, values.values)
                        yield replace(checked, texts=values.texts) if isinstance(checked, Row) else checked
                return
            reader = RecordReader(text, self.delimiter, begins_row)
            for _ in range(self.header_records):
                reader.next()
            while True:
                try:
                    record = reader.next()
                except QuoteError as error:
                    yield Rejection(error.line, str(error))
                    continue
                if record is None:
                    return
                yield self._checked(*record)

    def _checked(self, line: int, values: list[str]) -> Row | Rejection | LeftOut:
        if not any(values) or not any(value.strip() for value in values):
            return LeftOut(_EMPTY_ROW)
        if len(values) == len(self.columns):
            again = tuple(value.strip(_MARKS_AND_SPACES) for value in values) == self.columns
            return LeftOut(_HEADER_AGAIN) if again else Row(line, values)
        counted = f"it has {_counted(len(values))} where the header has {len(self.columns)}"
        if len(values) > len(self.columns):
            if not any(map(str.strip, values[len(self.columns) :])):
                counted += f"; remove every {self.delimiter!r} at its end"
            elif any(value.strip().startswith(_ODD_QUOTES) for value in values):
                counted += f'; put a value with {self.delimiter!r} in it into quotes of this kind: "'
            else:
                counted += f"; put a value with {self.delimiter!r} in it into quotes"
        return Rejection(line, counted)


def open_table(
    path: Path, is_known: Callable[[str], bool], encoding: str | None = None, *, offered: bool = True
) -> Table:
    """Read the header of a table.

    Args:
        path: The table.
        is_known: Whether a column's name is one that the table is expected to have; decides what stands
            between fields.
        encoding: Of a table without a byte order mark, where it is not UTF-8.
        offered: Whether the user can give the encoding, for messages.

    Raises:
        DataError: The table cannot be read, has no header, or has a column twice.
    """
    with open_text(path, encoding, offered=offered) as text:
        head = list(islice(text, _HEAD_LINES))
    first = next((line for line in head if not line.isspace()), None)
    if first is None:
        raise DataError(f"{path} is empty; its first line has to name the columns.")
    if first.lstrip("\ufeff \t").startswith(("{", "[")):
        with open_text(path, encoding, offered=offered) as text:
            columns = columns_of_lines(text) if first.lstrip("\ufeff \t").startswith("{") else ()
        if not any(map(is_known, columns)):
            raise DataError(
                f"{path} is JSON, not a table; give a line with one object for each image, such as "
                '{"image": "1.jpg", "text": "A dog."}, or columns named in a first line, such as image,text.'
            )
        _check_names(path, columns)
        return Table(path, columns, ",", 0, encoding, offered, is_known=is_known)
    if first.lstrip().startswith("<"):
        raise DataError(f"{path} is HTML or XML, not a table; save the table itself as CSV.")
    if all(line.isspace() or _CAPTION.fullmatch(line.rstrip("\r\n")) for line in head):
        return Table(path, ("image", "text"), "\t", 0, encoding, offered, captions=True)
    named = _SEPARATOR_LINE.fullmatch(first)
    skipped = 0 if named is None else 1
    delimiters = DELIMITERS if named is None else (named["delimiter"],)
    found = _headers(head, delimiters, skipped)
    if not found:
        raise DataError(f"The header of {path} has a quote that does not close.")

    def likeness(item: tuple[str, tuple[str, ...]]) -> tuple[int, int]:
        return sum(map(is_known, item[1])), len(item[1])

    best, titles = max(found, key=likeness), 0
    for ahead in range(1, _HEAD_LINES) if _is_title(likeness(best)) else ():
        below = max(_headers(head, delimiters, skipped + ahead), key=likeness, default=best)
        if likeness(below)[0] >= _HEADER_LIKE:
            best, titles = below, ahead
            break
    delimiter, columns = best
    _check_names(path, columns)
    return Table(path, columns, delimiter, skipped + titles + 1, encoding, offered, titles)


def is_unnamed(column: str) -> bool:
    """Whether a column of a table has no name."""
    return _UNNAMED.fullmatch(column) is not None


def _caption(number: int, line: str) -> Row | Rejection | LeftOut:
    if line.isspace():
        return LeftOut(_EMPTY_ROW)
    found = _CAPTION.fullmatch(line.rstrip("\r\n"))
    if found is None:
        return Rejection(number, "it is not a name, # and a number, a tab, and a caption, as other lines are")
    return Row(number, [found["image"], found["text"]])


def _is_title(likeness: tuple[int, int]) -> bool:
    """Whether a record may be a title, given its numbers of known columns and of all: "Report" is both."""
    known, columns = likeness
    return known == 0 or columns == 1


def _headers(
    head: Sequence[str], delimiters: Sequence[str], skipped: int
) -> list[tuple[str, tuple[str, ...]]]:
    """The delimiters by which a record can be read that may be the header, with its fields."""
    found = ((delimiter, _header(head, delimiter, skipped)) for delimiter in delimiters)
    return [(delimiter, columns) for delimiter, columns in found if columns is not None]


def _header(head: Sequence[str], delimiter: str, skipped: int) -> tuple[str, ...] | None:
    reader = RecordReader(iter(head), delimiter)
    try:
        for _ in range(skipped):
            reader.next()
        record = reader.next()
    except QuoteError:
        return None
    return None if record is None else tuple(name.strip(_MARKS_AND_SPACES) for name in record[1])


def _check_names(path: Path, columns: Sequence[str]) -> None:
    places: dict[str, int] = {}
    for place, name in enumerate(columns, 1):
        if name and places.setdefault(name.casefold(), place) != place:
            first = columns[places[name.casefold()] - 1]
            raise DataError(
                f"{path} has the column {first!r} twice (columns {places[name.casefold()]} and {place}); "
                "rename or remove one of them."
            )


def _counted(fields: int) -> str:
    return "1 field" if fields == 1 else f"{fields} fields"
