"""Errors of the fields of a request, in sentences."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic_core.core_schema import ErrorType

from index.errors import shortened

# More help nobody, and there can be hundreds of thousands.
_MAX_ERRORS: Final = 8
_MAX_MESSAGE_LENGTH: Final = 400
_A_DAY: Final = "It must be a day such as 2026-01-31."
_A_TIME: Final = "It must be a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z."
_ANOTHER_FORM: Final = "It is not of the form that is described in /docs."
# Of errors that validators of the service raise, `value_error` has the words of the validator.
_OF_PYDANTIC: Final = frozenset(get_args(ErrorType)) - {"value_error"}
# Messages for a caller in place of pydantic's messages for programmers.
_SENTENCES: Final[Mapping[str, str]] = {
    "json_invalid": "This is not JSON: {error}.",
    "missing": "It is missing.",
    "extra_forbidden": "It is unknown.",
    "int_parsing": "It must be a whole number.",
    "string_type": "It must be a text.",
    "string_too_short": "There is nothing in it.",
    "string_too_long": "It may have at most {max_length} characters.",
    "int_type": "It must be a whole number.",
    "int_from_float": "It must be a whole number.",
    "float_type": "It must be a number.",
    "bool_type": "It must be true or false.",
    "list_type": "It must be a list.",
    "dict_type": "It must be a JSON object.",
    "model_type": "It must be a JSON object.",
    "model_attributes_type": "It must be a JSON object.",
    "literal_error": "It must be {expected}.",
    "greater_than": "It must be greater than {gt}.",
    "less_than": "It must be less than {lt}.",
    "greater_than_equal": "It must be at least {ge}.",
    "less_than_equal": "It must be at most {le}.",
    "too_short": "{actual_length} are too few; send at least {min_length}.",
    "too_long": "{actual_length} are too many; send at most {max_length}.",
    "string_pattern_mismatch": _ANOTHER_FORM,
    "float_parsing": "It must be a number.",
    "finite_number": "It must be a finite number.",
    "int_parsing_size": "It is too large a number.",
    "bool_parsing": "It must be true or false.",
    "string_unicode": "It is not text in Unicode.",
    "none_required": "It must be null.",
    "set_type": "It must be a list.",
    "tuple_type": "It must be a list.",
    "bytes_type": "It must be bytes.",
    "date_type": _A_DAY,
    "date_parsing": _A_DAY,
    "date_from_datetime_parsing": _A_DAY,
    "date_from_datetime_inexact": _A_DAY,
    "datetime_type": _A_TIME,
    "datetime_parsing": _A_TIME,
    "datetime_from_date_parsing": _A_TIME,
    "datetime_object_invalid": _A_TIME,
    "union_tag_invalid": "Its {discriminator} must be one of {expected_tags}.",
    "union_tag_not_found": "Its {discriminator} is missing.",
}


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
