"""Errors of the fields of a request, in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic_core.core_schema import ErrorType

from index.errors import shortened

# More help nobody, and there can be hundreds of thousands.
_MAX_ERRORS: Final = 8
_MAX_MESSAGE_LENGTH: Final = 400
_ANOTHER_FORM: Final = "It is not of the form that is described in /docs."
# Of errors that validators of the service raise, `value_error` has the words of the validator.
_OF_PYDANTIC: Final = frozenset(get_args(ErrorType)) - {"value_error"}
# Our messages for callers, which replace those of pydantic, each with the errors that it describes.
_ERRORS: Final[Mapping[str, Sequence[str]]] = {
    "This is not JSON: {error}.": ("json_invalid",),
    "It is missing.": ("missing",),
    "It is unknown.": ("extra_forbidden",),
    "It must be a whole number.": ("int_parsing", "int_type", "int_from_float"),
    "It must be a text.": ("string_type",),
    "There is nothing in it.": ("string_too_short",),
    "It may have at most {max_length} characters.": ("string_too_long",),
    "It must be a number.": ("float_type", "float_parsing"),
    "It must be true or false.": ("bool_type", "bool_parsing"),
    "It must be a list.": ("list_type", "set_type", "tuple_type"),
    "It must be a JSON object.": ("dict_type", "model_type", "model_attributes_type"),
    "It must be {expected}.": ("literal_error",),
    "It must be greater than {gt}.": ("greater_than",),
    "It must be less than {lt}.": ("less_than",),
    "It must be at least {ge}.": ("greater_than_equal",),
    "It must be at most {le}.": ("less_than_equal",),
    "{actual_length} are too few; send at least {min_length}.": ("too_short",),
    "{actual_length} are too many; send at most {max_length}.": ("too_long",),
    "It must be a finite number.": ("finite_number",),
    "It is too large a number.": ("int_parsing_size",),
    "It is not text in Unicode.": ("string_unicode",),
    "It must be null.": ("none_required",),
    "It must be bytes.": ("bytes_type",),
    "It must be a day such as 2026-01-31.": (
        "date_type",
        "date_parsing",
        "date_from_datetime_parsing",
        "date_from_datetime_inexact",
    ),
    "It must be a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z.": (
        "datetime_type",
        "datetime_parsing",
        "datetime_from_date_parsing",
        "datetime_object_invalid",
    ),
    "Its {discriminator} must be one of {expected_tags}.": ("union_tag_invalid",),
    "Its {discriminator} is missing.": ("union_tag_not_found",),
}
_SENTENCES: Final = {error: sentence for sentence, errors in _ERRORS.items() for error in errors}


class FieldError(BaseModel):
    """Error of one field of a request."""

    field: str
    message: str


def field_errors(found: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """Name the first of the wrong fields that pydantic has found; the values themselves are not repeated."""
    return [
        FieldError(field=_name(error["loc"]), message=shortened(sentence(error), _MAX_MESSAGE_LENGTH))
        for error in found[:_MAX_ERRORS]
    ]


def describe_errors(errors: Sequence[FieldError], more: int = 0) -> str:
    """Several wrong fields in one sentence; `more` are wrong as well."""
    parts = [f"{error.field}: {error.message}" for error in errors]
    if more:
        parts.append(f"and {more:,} more.")
    return "; ".join([*(part.removesuffix(".") for part in parts[:-1]), *parts[-1:]])


def sentence(error: Mapping[str, Any]) -> str:
    """Say what pydantic has found wrong with a value, which is not repeated."""
    if error["type"] in _SENTENCES:
        return _SENTENCES[error["type"]].format_map(error.get("ctx", {}))
    if error["type"] in _OF_PYDANTIC:
        return _ANOTHER_FORM
    return str(error["msg"]).removeprefix("Value error, ")


def _name(location: Sequence[str | int]) -> str:
    if location[:1] in (("body",), ("query",), ("path",)) and len(location) > 1:
        location = location[1:]
    if isinstance(location[0], int):
        return "body"
    return shortened(".".join(shortened(str(part)) for part in location), _MAX_MESSAGE_LENGTH)
