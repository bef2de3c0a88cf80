"""A table of text: its header, its dialect, and its rows with their lines.

Lines of JSON objects are also rows, such as those of metadata.jsonl next to images, with file_name and text.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from training.common.encodings import open_text
from training.common.errors import DataError
from training.common.record import LineError, Record
from training.common.rejections import LeftOut, Rejection
from training.common.roles import LAST_TEXTS, NAMES, normal_name
from training.common.values import is_not_known

DELIMITERS: Final = (",", ";", "\t", "|")
# After these, people write a space; after a bar or a tab a quote behind a space is one of the text.
_SPACED: Final = (",", ";")
# Excel's own way to name the delimiter, on a line ahead of the header.
_SEPARATOR_LINE: Final = re.compile(r'"?sep=(?P<delimiter>[,;|\t])"?[,;|\t]*\s*', re.IGNORECASE)
# A line of the files of captions of Flickr8k and Flickr30k, which have no header and no quotes.
_CAPTION: Final = re.compile(r"\s*(?P<image>[^\t]+)#[0-9]+\t(?P<text>[^\t]*)")
# A byte order mark is inside a file that was put behind another; web pages have zero-width spaces.
_MARKS_AND_SPACES: Final = "\ufeff\u200b \t\r\n"
_HEAD_LINES: Final = 50
_EMPTY_ROW: Final = "rows without any value"
_HEADER_AGAIN: Final = "rows that repeat the header"
_ODD_QUOTES: Final = ("\u201c", "\u201e", "\u201d", "''", "'")
# pandas calls a column without a name so, when it reads a table that it wrote with its index.
_UNNAMED: Final = re.compile(r"(?:Unnamed: [0-9]+)?")
# A title ahead of the header is passed over for a line with so many known columns.
_HEADER_LIKE: Final = 2
_LABELS: Final = frozenset(NAMES["labels"])
_TEXTS: Final = frozenset((*NAMES["text"], *LAST_TEXTS))
_SEPARATOR: Final = ";"
_MOST_FOLDERS: Final = 1000


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its first line, a value for each column, and columns that have several texts."""

    line: int
    values: list[str]
    texts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table whose header has been read.

    Attributes:
        columns: Names in the header without outer spaces; "" for a column without a name.
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

        `begins_row` tells whether a line inside of a quoted field is surely the beginning of another row.

        Raises:
            DataError: The table cannot be read, or is not in its encoding.
        """
        with open_text(self.path, self.encoding, offered=self.offered) as text:
            if self.captions:
                yield from map(_caption, count(1), text)
                return
            if self.is_known is not None:
                yield from self._rows_of_objects(text, self.is_known)
                return
            reader = RecordReader(text, self.delimiter, begins_row)
            for _ in range(self.header_records):
                reader.next()
            while True:
                try:
                    if (record := reader.next()) is None:
                        return
                except QuoteError as error:
                    yield Rejection(error.line, str(error))
                else:
                    yield self._checked(*record)

    def _rows_of_objects(
        self, lines: Iterable[str], is_known: Callable[[str], bool]
    ) -> Iterator[Row | Rejection | LeftOut]:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            try:
                known = _object(line)
                values = [_text_of(name, known.get(name), is_known) for name in self.columns]
            except LineError as error:
                yield Rejection(number, str(error))
                continue
            texts = {
                position: tuple(known[name])
                for position, name in enumerate(self.columns)
                if normal_name(name) in _TEXTS and _is_list_of_texts(known.get(name))
            }
            checked = self._checked(number, values)
            yield replace(checked, texts=texts) if isinstance(checked, Row) else checked

    def _checked(self, line: int, values: list[str]) -> Row | Rejection | LeftOut:
        if not any(values) or not any(value.strip() for value in values):
            return LeftOut(_EMPTY_ROW)
        if len(values) == len(self.columns):
            again = tuple(value.strip(_MARKS_AND_SPACES) for value in values) == self.columns
            return LeftOut(_HEADER_AGAIN) if again else Row(line, values)
        fields = "1 field" if len(values) == 1 else f"{len(values)} fields"
        reason = f"it has {fields} where the header has {len(self.columns)}"
        if len(values) > len(self.columns):
            if not any(map(str.strip, values[len(self.columns) :])):
                reason += f"; remove every {self.delimiter!r} at its end"
            else:
                odd = any(value.strip().startswith(_ODD_QUOTES) for value in values)
                reason += f"; put a value with {self.delimiter!r} in it into quotes"
                reason += ' of this kind: "' if odd else ""
        return Rejection(line, reason)


def open_table(
    path: Path, is_known: Callable[[str], bool], encoding: str | None = None, *, offered: bool = True
) -> Table:
    """Read the header of a table.

    `is_known` says whether a column's name is one that the table is expected to have, which decides the
    delimiter; `encoding` is that of a table which is not UTF-8 and has no byte order mark; `offered` says
    whether the user can give it, for messages.

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
            columns = _columns_of_objects(text) if first.lstrip("\ufeff \t").startswith("{") else ()
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
    headers = _headers(head, delimiters, skipped)
    if not headers:
        raise DataError(f"The header of {path} has a quote that does not close.")

    def likeness(item: tuple[str, tuple[str, ...]]) -> tuple[int, int]:
        return sum(map(is_known, item[1])), len(item[1])

    best, titles = max(headers, key=likeness), 0
    known, count_of_columns = likeness(best)
    # A record may be a title: "Report" is both.
    for ahead in range(1, _HEAD_LINES) if known == 0 or count_of_columns == 1 else ():
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
    match = _CAPTION.fullmatch(line.rstrip("\r\n"))
    if match is None:
        return Rejection(number, "it is not a name, # and a number, a tab, and a caption, as other lines are")
    return Row(number, [match["image"], match["text"]])


def _headers(
    head: Sequence[str], delimiters: Sequence[str], skipped: int
) -> list[tuple[str, tuple[str, ...]]]:
    """The delimiters by which a record can be read that may be the header, with its fields."""
    headers = ((delimiter, _header(head, delimiter, skipped)) for delimiter in delimiters)
    return [(delimiter, columns) for delimiter, columns in headers if columns is not None]


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
    positions: dict[str, int] = {}
    for position, name in enumerate(columns, 1):
        first = positions.setdefault(name.casefold(), position)
        if name and first != position:
            raise DataError(
                f"{path} has the column {columns[first - 1]!r} twice (columns {first} and {position}); "
                "rename or remove one of them."
            )


def _columns_of_objects(lines: Iterable[str]) -> tuple[str, ...]:
    """The keys of all lines, in the order in which they come; () where the first one is no whole object."""
    columns: dict[str, None] = {}
    for line in lines:
        if line.isspace():
            continue
        try:
            columns.update(dict.fromkeys(_object(line)))
        except LineError:
            if not columns:
                return ()
    return tuple(columns)


def _object(line: str) -> dict[str, Any]:
    try:
        known = json.loads(line.lstrip("\ufeff"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise LineError("it is not one JSON object, as other lines are") from error
    if not isinstance(known, dict):
        raise LineError("it is not one JSON object, as other lines are")
    return known


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) < len(pairs):
        raise LineError(f"it gives one of its keys twice: {', '.join(name for name, _ in pairs)}")
    return known


def _text_of(name: str, value: object, is_known: Callable[[str], bool]) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and _is_list_of_texts(value):
        if normal_name(name) in _LABELS:
            return _SEPARATOR.join(value)
        if not value:
            return ""
        if len(value) == 1:
            return str(value[0])
        if normal_name(name) in _TEXTS:
            return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | dict) and is_known(name):
        raise LineError(
            f"{name!r} is a list or an object; give a text, a list of texts, or each text a line of its own"
        )
    return json.dumps(value, ensure_ascii=False)


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


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


class QuoteError(Exception):
    """A quoted field that is wrong; `line` is where its quote opened."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class RecordReader:
    """The records of a table, one after the other, in the manner of RFC 4180.

    Args:
        begins_row: Whether a line inside of a quoted field is surely the beginning of another row.
    """

    def __init__(
        self, lines: Iterator[str], delimiter: str, begins_row: Callable[[str], bool] | None = None
    ) -> None:
        self._lines = lines
        self._again: list[str] = []
        self._number = 0
        self._delimiter = delimiter
        self._begins_row = begins_row
        self._after = re.compile(rf" *(?:({re.escape(delimiter)})|\r?\n?\Z)")
        self._spaced = delimiter in _SPACED

    def next(self) -> tuple[int, list[str]] | None:
        """The line on which the next record begins, and its fields; None at the end. Empty lines are none.

        Raises:
            QuoteError: A quote of it is wrong. Reading goes on below the line where that quote opened.
        """
        while (text := self._next_line()) is not None:
            if not text.strip(" \r\n"):
                continue
            start = self._number
            if '"' not in text:
                return start, text.rstrip("\r\n").split(self._delimiter)
            return start, self._split(text)
        return None

    def _next_line(self) -> str | None:
        text = self._again.pop() if self._again else next(self._lines, None)
        self._number += text is not None
        return text

    def _split(self, text: str) -> list[str]:
        fields: list[str] = []
        position = 0
        while True:
            quote = position
            while self._spaced and text.startswith(" ", quote):
                quote += 1
            if text.startswith('"', quote):
                opened, pulled = self._number, list[str]()
                try:
                    value, text, position = self._quoted(text, quote, pulled)
                    after = self._after.match(text, position)
                    if after is None:
                        raise QuoteError(
                            opened, "text follows a quote that closes; inside of a field it is doubled"
                        )
                except QuoteError:
                    self._again.extend(reversed(pulled))
                    self._number = opened
                    raise
                fields.append(value)
                if after[1] is None:
                    return fields
                position = after.end()
            else:
                end = text.find(self._delimiter, position)
                if end < 0:
                    return [*fields, text[position:].rstrip("\r\n")]
                fields.append(text[position:end])
                position = end + 1

    def _quoted(self, text: str, quote: int, pulled: list[str]) -> tuple[str, str, int]:
        """The quoted field's value, and the line and the position behind it; `pulled` gets all lines read."""
        opened = self._number
        parts: list[str] = []
        start = seek = quote + 1
        while True:
            end = text.find('"', seek)
            if end < 0:
                parts.append(text[start:])
                following = self._next_line()
                if following is None:
                    raise QuoteError(opened, "a quote opens that never closes")
                pulled.append(following)
                if self._begins_row is not None and self._begins_row(following):
                    raise QuoteError(
                        opened, f"a quote opens that does not close before line {self._number}, another row"
                    )
                text, start, seek = following, 0, 0
            elif text.startswith('"', end + 1):
                seek = end + 2
            else:
                parts.append(text[start:end])
                return "".join(parts).replace('""', '"'), text, end + 1
