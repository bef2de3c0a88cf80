"""Splits the lines of a table into records of fields, and goes on after a quote that is wrong."""

import re
from collections.abc import Callable, Iterator
from typing import Final

DELIMITERS: Final = (",", ";", "\t", "|")
# After these, people write a space; after a bar or a tab a quote behind a space is one of the text.
_SPACED: Final = (",", ";")


class QuoteError(Exception):
    """A quoted field that is wrong; `line` is where its quote opened."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class RecordReader:
    """The records of a table, one after the other, in the manner of RFC 4180.

    Args:
        lines: With their ends.
        delimiter: Between two fields.
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
        place = 0
        while True:
            quote = place
            while self._spaced and text.startswith(" ", quote):
                quote += 1
            if text.startswith('"', quote):
                opened, pulled = self._number, list[str]()
                try:
                    value, text, place = self._quoted(text, quote, pulled)
                    after = self._after.match(text, place)
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
                place = after.end()
            else:
                end = text.find(self._delimiter, place)
                if end < 0:
                    return [*fields, text[place:].rstrip("\r\n")]
                fields.append(text[place:end])
                place = end + 1

    def _quoted(self, text: str, quote: int, pulled: list[str]) -> tuple[str, str, int]:
        """Value of the quoted field, and the line and the place behind it; `pulled` gets all lines read."""
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
