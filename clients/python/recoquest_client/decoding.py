"""JSON of the service as dataclasses; fields that this version does not know are ignored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from recoquest_client.errors import AnswerError

_T = TypeVar("_T")
_Decode = Callable[[Any, str], Any]


def decode(kind: type[_T], value: object) -> _T:
    """Return JSON as an instance of a dataclass.

    Raises:
        AnswerError: A field without a default is missing, or is of another form.
    """
    decoder: _Decode = _decoder(kind)  # type: ignore[arg-type]
    decoded: _T = decoder(value, kind.__name__)
    return decoded


@cache
def _decoder(kind: Any) -> _Decode:
    if dataclasses.is_dataclass(kind):
        return _of_dataclass(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (other,) = [one for one in arguments if one is not type(None)] if len(arguments) == 2 else (Any,)
        inner = _decoder(other)
        return lambda value, place: None if value is None else inner(value, place)
    if origin is tuple and arguments[-1] is Ellipsis:
        return _of_sequence(_decoder(arguments[0]))
    if kind in (str, bool):
        return _of_plain(kind)
    return lambda value, _: value


def _of_dataclass(kind: Any) -> _Decode:
    hints = get_type_hints(kind)
    fields = [
        (field.name, _decoder(hints[field.name]), _is_needed(field)) for field in dataclasses.fields(kind)
    ]

    def decoded(value: Any, place: str) -> Any:
        if not isinstance(value, Mapping):
            raise AnswerError(f"The answer is not one of recoquest: {place} is no object.")
        given = {}
        for name, inner, is_needed in fields:
            if name in value:
                given[name] = inner(value[name], f"{place}.{name}")
            elif is_needed:
                raise AnswerError(
                    f"The answer is not one of recoquest, or of an older one: {place} has no {name}."
                )
        return kind(**given)

    return decoded


def _of_sequence(inner: _Decode) -> _Decode:
    def decoded(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise AnswerError(f"The answer is not one of recoquest: {place} is no list.")
        return tuple(inner(item, place) for item in value)

    return decoded


def _of_plain(kind: type) -> _Decode:
    def decoded(value: Any, place: str) -> Any:
        if not isinstance(value, kind):
            raise AnswerError(f"The answer is not one of recoquest: {place} is not of type {kind.__name__}.")
        return value

    return decoded


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
