"""Lists in large JSON files, read entry by entry: all of MS-COCO at once needs gigabytes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from training.errors import DataError

_BETWEEN: Final = re.compile(r"[\s,]*")


def read_text(file: Path) -> str:
    """The whole text of a JSON file.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}.") from error


def iterate_list(text: str, key: str, name: str, hint: str) -> Iterator[tuple[int, Any]]:
    """Give the entries of the list under a key, with their numbers from 1.

    Args:
        text: The whole JSON text.
        key: Key of the list.
        name: Name of the file in messages.
        hint: Question that a message ends with where there is no such list.

    Raises:
        DataError: It is no JSON, or has no such list.
    """
    start = re.search(rf'"{re.escape(key)}"\s*:\s*\[', text)
    if start is None:
        raise DataError(f'{name} has no list "{key}"; {hint}')
    decoder, place, number = json.JSONDecoder(), start.end(), 0
    while True:
        gap = _BETWEEN.match(text, place)
        place = gap.end() if gap else place
        if text[place : place + 1] == "]":
            return
        number += 1
        try:
            entry, place = decoder.raw_decode(text, place)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(f"{name} is damaged at {key.removesuffix('s')} {number}: {error}.") from error
        yield number, entry
