"""Texts of requests are whole: JSON can write half of a character, and no encoder or database takes one."""

import json
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

_Parsed = TypeVar("_Parsed")
_Place = tuple[str | int, ...]

# UTF-16 writes some characters as two of these; alone, one is none.
_HALF: Final = re.compile("[\ud800-\udfff]")


def refuse_lone_surrogates(value: Any) -> None:
    """Refuse a JSON value in which a text, or the name of a field, holds a lone surrogate.

    Raises:
        ValidationError: The text has one; the error names the place.
    """
    place = _place_of_half(value)
    if place is not None:
        half = PydanticCustomError("half_character", "It holds half of a character (a lone surrogate).")
        raise ValidationError.from_exception_data(
            "text", [InitErrorDetails(type=half, loc=place, input=None)]
        )


def parse_json(parse: Callable[[str | bytes], _Parsed], content: str | bytes) -> _Parsed:
    """Parse JSON with pydantic, whose parser tells of a lone surrogate by its column only.

    Raises:
        ValidationError: A field is not valid; the error names it.
    """
    try:
        return parse(content)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid":
            refuse_lone_surrogates(_loaded(content))
        raise


def _loaded(content: str | bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _place_of_half(value: Any) -> _Place | None:
    waiting: deque[tuple[_Place, Any]] = deque([((), value)])
    while waiting:
        place, part = waiting.popleft()
        if isinstance(part, str):
            if _HALF.search(part):
                return place
        elif isinstance(part, dict):
            # A name that cannot be written cannot be named.
            if any(isinstance(name, str) and _HALF.search(name) for name in part):
                return place
            waiting.extend(((*place, name), inner) for name, inner in part.items() if _may_hold(inner))
        elif isinstance(part, list):
            waiting.extend(((*place, number), inner) for number, inner in enumerate(part) if _may_hold(inner))
    return None


def _may_hold(value: Any) -> bool:
    return isinstance(value, str | dict | list)
