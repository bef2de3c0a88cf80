"""Lines of JSON objects as the rows of a table: metadata.jsonl beside images, with file_name and text."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from training.data.readers.common.roles import NAMES, normal_name

_LABELS: Final = frozenset(NAMES["labels"])
_SEPARATOR: Final = ";"


class JsonLineError(Exception):
    """Why one line cannot be used; the sentence goes without the line's number."""


def columns_of_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """The keys of all lines, in the order in which they come; () where the first one is no whole object."""
    columns: dict[str, None] = {}
    for line in lines:
        if line.isspace():
            continue
        try:
            columns.update(dict.fromkeys(_object(line)))
        except JsonLineError:
            if not columns:
                return ()
    return tuple(columns)


def values_of_line(line: str, columns: Sequence[str], is_known: Callable[[str], bool]) -> list[str]:
    """The values of a line, as a table writes them.

    Raises:
        JsonLineError: It is no JSON object, or has a list or an object for a text or a path.
    """
    known = _object(line)
    return [_value(name, known.get(name), is_known) for name in columns]


def _object(line: str) -> dict[str, Any]:
    try:
        known = json.loads(line.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise JsonLineError("it is not one JSON object, as other lines are") from error
    if not isinstance(known, dict):
        raise JsonLineError("it is not one JSON object, as other lines are")
    return known


def _value(name: str, value: object, is_known: Callable[[str], bool]) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        if normal_name(name) in _LABELS:
            return _SEPARATOR.join(value)
        if len(value) == 1:
            return str(value[0])
    if isinstance(value, list | dict) and is_known(name):
        raise JsonLineError(f"{name!r} is a list or an object; give each text a line of its own")
    return json.dumps(value, ensure_ascii=False)


def rows_of_lines(
    lines: Iterable[str], columns: Sequence[str], is_known: Callable[[str], bool]
) -> Iterator[tuple[int, list[str] | JsonLineError]]:
    """The values of each line that is not empty, or why it has none, with its number."""
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            yield number, values_of_line(line, columns, is_known)
        except JsonLineError as error:
            yield number, error
