"""Lines of JSON objects as the rows of a table: metadata.jsonl beside images, with file_name and text."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from training.data.readers.common.roles import LAST_TEXTS, NAMES, normal_name

_LABELS: Final = frozenset(NAMES["labels"])
_TEXTS: Final = frozenset((*NAMES["text"], *LAST_TEXTS))
_SEPARATOR: Final = ";"


class JsonLineError(Exception):
    """Why one line cannot be used; the sentence goes without the line's number."""


class LineValues(NamedTuple):
    """The values of a line.

    Attributes:
        values: One for each column, as a table writes them.
        texts: Lists of texts, by the places of their columns.
    """

    values: list[str]
    texts: dict[int, tuple[str, ...]]


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


def values_of_line(line: str, columns: Sequence[str], is_known: Callable[[str], bool]) -> LineValues:
    """The values of a line.

    Raises:
        JsonLineError: It is no JSON object, or has an object for a text, or a list or an object for a path.
    """
    known = _object(line)
    values = [_value(name, known.get(name), is_known) for name in columns]
    texts = {
        place: tuple(known[name])
        for place, name in enumerate(columns)
        if normal_name(name) in _TEXTS and _is_list_of_texts(known.get(name))
    }
    return LineValues(values, texts)


def _object(line: str) -> dict[str, Any]:
    try:
        known = json.loads(line.lstrip("\ufeff"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise JsonLineError("it is not one JSON object, as other lines are") from error
    if not isinstance(known, dict):
        raise JsonLineError("it is not one JSON object, as other lines are")
    return known


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) < len(pairs):
        raise JsonLineError(f"it gives one of its keys twice: {', '.join(name for name, _ in pairs)}")
    return known


def _value(name: str, value: object, is_known: Callable[[str], bool]) -> str:
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
        raise JsonLineError(
            f"{name!r} is a list or an object; give a text, a list of texts, or each text a line of its own"
        )
    return json.dumps(value, ensure_ascii=False)


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def rows_of_lines(
    lines: Iterable[str], columns: Sequence[str], is_known: Callable[[str], bool]
) -> Iterator[tuple[int, LineValues | JsonLineError]]:
    """The values of each line that is not empty, or why it has none, with its number."""
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            yield number, values_of_line(line, columns, is_known)
        except JsonLineError as error:
            yield number, error
