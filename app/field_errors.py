"""What is wrong with the fields of a request, in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

# More help nobody, and there can be hundreds of thousands.
_MOST: Final = 8
# Characters of a name that was sent which an answer repeats.
_SHOWN: Final = 80


class FieldError(BaseModel):
    """What is wrong with one field of a request."""

    field: str
    message: str


def field_errors(found: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """Name the first of the wrong fields that pydantic has found; the values themselves are not repeated."""
    return [FieldError(field=_name(error["loc"]), message=_message(error)) for error in found[:_MOST]]


def describe_errors(errors: Sequence[FieldError], more: int = 0) -> str:
    """Several wrong fields in one sentence; `more` are wrong as well."""
    described = "; ".join(f"{error.field}: {error.message}" for error in errors)
    return f"{described}; and {more:,} more" if more else described


def _name(location: Sequence[str | int]) -> str:
    if location[:1] in (("body",), ("query",), ("path",)) and len(location) > 1:
        location = location[1:]
    if isinstance(location[0], int):
        return "body"
    return ".".join(_shortened(str(part)) for part in location)


def _shortened(name: str) -> str:
    return name if len(name) <= _SHOWN else f"{name[:_SHOWN]}..."


def _message(error: Mapping[str, Any]) -> str:
    if error["type"] == "json_invalid":
        return f"This is not JSON: {error['ctx']['error']}."
    if error["type"] == "union_tag_invalid":
        return f"Its {error['ctx']['discriminator']} must be one of {error['ctx']['expected_tags']}."
    if error["type"] == "too_long":
        return f"{error['ctx']['actual_length']} are too many; send at most {error['ctx']['max_length']}."
    return str(error["msg"]).removeprefix("Value error, ")
