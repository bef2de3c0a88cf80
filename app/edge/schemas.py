"""Bases of bodies: unknown fields are refused, texts can be seen and have no half characters."""

import json
import re
import unicodedata
from collections import deque
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Final
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    model_validator,
)
from pydantic_core import (
    InitErrorDetails,
    PydanticCustomError,
    PydanticKnownError,
    PydanticSerializationError,
    ValidationError,
    to_json,
)

# Letters and symbols without ink: fillers of Hangul, and the blank pattern of Braille.
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
# A letter or digit with ink, which nearly every text has.
_INK: Final = re.compile(rf"[^\W{''.join(_BLANK)}]")


def _visible(text: str) -> str:
    """Refuse a text as empty in which nothing can be seen, such as one of zero-width spaces."""
    if _INK.search(text) is not None:
        return text
    # Unique characters only: a million equal ones cost no more than one.
    for letter in set(text):
        kind = unicodedata.category(letter)
        # Separators, marks without a letter, controls and format characters.
        if kind[0] not in "ZM" and kind not in ("Cc", "Cf") and letter not in _BLANK:
            return text
    raise PydanticKnownError("string_too_short", {"min_length": 1})


Text = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(_visible), Field(min_length=1)]
# Digest of a bundle.
DIGEST_PATTERN: Final = r"^[0-9a-f]{64}$"


class Request(BaseModel):
    """Base of request bodies: unknown fields are refused, half characters, and "yes" for true."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _are_known(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse the first unknown field before anything is judged: thousands of them would take seconds."""
        # Pydantic's own parser of JSON has refused half characters.
        if info.mode == "python":
            refuse_lone_surrogates(value)
        if isinstance(value, dict):
            fields = _field_names(cls)
            for name in value:
                if name not in fields:
                    message = "This field is unknown; the fields are {known}."
                    error = PydanticCustomError("unknown_field", message, {"known": ", ".join(fields)})
                    raise _error_at((name,), error)
        return value


@cache
def _field_names(model: type[BaseModel]) -> dict[str, None]:
    return dict.fromkeys(field.alias or name for name, field in model.model_fields.items())


class Answer(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(frozen=True)


def image_path(collection: str, image_id: str, *, prefix: str = "") -> str:
    """Path of an image below /v1, percent-encoded; `prefix` is where a proxy has put the service."""
    return f"{images_path(collection, prefix)}/{quote(image_id, safe='')}"


def images_path(collection: str, prefix: str) -> str:
    """Path of the images of a collection; `prefix` is where a proxy has put the service."""
    return f"{prefix}/v1/collections/{quote(collection, safe='')}/images"


_Location = tuple[str | int, ...]

# UTF-16 writes some characters as two of these; alone, one is none.
_HALF: Final = re.compile("[\ud800-\udfff]")


def refuse_lone_surrogates(value: Any) -> None:
    """Refuse a JSON value in which a text, or the name of a field, holds a lone surrogate.

    Raises:
        ValidationError: The text has one; the error names its location.
    """
    # Ten times as fast as a look at each value.
    with suppress(PydanticSerializationError):
        to_json(value)
        return
    location = _find_half_character(value)
    if location is not None:
        half = PydanticCustomError("half_character", "It holds half of a character (a lone surrogate).")
        raise _error_at(location, half)


def explained(error: ValidationError, content: str | bytes) -> ValidationError:
    """Return an error that locates a lone surrogate by field; pydantic's JSON parser only gives a column."""
    if error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid":
        try:
            refuse_lone_surrogates(json.loads(content))
        except ValidationError as better:
            return better
        except (ValueError, RecursionError):
            return error
    return error


def _error_at(location: _Location, error: PydanticCustomError) -> ValidationError:
    details = InitErrorDetails(type=error, loc=location, input=None)
    return ValidationError.from_exception_data("text", [details])


def _find_half_character(value: Any) -> _Location | None:
    waiting: deque[tuple[_Location, Any]] = deque([((), value)])
    while waiting:
        location, part = waiting.popleft()
        if isinstance(part, str):
            if _HALF.search(part):
                return location
        elif isinstance(part, dict):
            # A name that cannot be written cannot be named.
            if any(isinstance(name, str) and _HALF.search(name) for name in part):
                return location
            waiting.extend(((*location, name), inner) for name, inner in part.items())
        elif isinstance(part, list):
            waiting.extend(((*location, number), inner) for number, inner in enumerate(part))
    return None
