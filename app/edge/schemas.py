"""Bases of bodies: unknown fields are refused, texts can be seen and have no half characters."""

import json
import re
import unicodedata
from collections import deque
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar
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
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError, ValidationError

# Letters and symbols without ink: fillers of Hangul, and the blank pattern of Braille.
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")


def _visible(text: str) -> str:
    """Refuse a text as empty in which nothing can be seen, such as one of zero-width spaces."""
    # Unique characters only: a million equal ones cost no more than one.
    for letter in set(text):
        kind = unicodedata.category(letter)
        # Separators, marks without a letter, controls and format characters.
        if kind[0] not in "ZM" and kind not in ("Cc", "Cf") and letter not in _BLANK:
            return text
    raise PydanticKnownError("string_too_short", {"min_length": 1})


Text = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(_visible), Field(min_length=1)]
# Of the digest of a bundle.
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
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for name in value:
                if name not in known:
                    message = "This field is unknown; known are {known}."
                    error = PydanticCustomError("unknown_field", message, {"known": ", ".join(known)})
                    raise _error_at((name,), error)
        return value


class Answer(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(frozen=True)


def image_path(collection: str, image_id: str, *, prefix: str = "") -> str:
    """Path of an image below /v1, percent-encoded; `prefix` is where a proxy has put the service."""
    return f"{images_path(collection, prefix)}/{quote(image_id, safe='')}"


def images_path(collection: str, prefix: str) -> str:
    """Path of the images of a collection; `prefix` is where a proxy has put the service."""
    return f"{prefix}/v1/collections/{quote(collection, safe='')}/images"


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
        raise _error_at(place, half)


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


def _error_at(place: _Place, error: PydanticCustomError) -> ValidationError:
    details = InitErrorDetails(type=error, loc=place, input=None)
    return ValidationError.from_exception_data("text", [details])


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
            waiting.extend(((*place, name), inner) for name, inner in part.items())
        elif isinstance(part, list):
            waiting.extend(((*place, number), inner) for number, inner in enumerate(part))
    return None
