"""Types of filters, for programs that are checked by mypy or pyright; any mapping of this form is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

Value = str | float | bool


class Equals(TypedDict):
    """The field has this value."""

    field: str
    eq: Value


class AnyOf(TypedDict):
    """The field has one of these values."""

    field: str
    any_of: Sequence[Value]


class _Field(TypedDict):
    field: str


class Range(_Field, total=False):
    """The field has a value between the bounds, which are all numbers or all texts; one bound or two."""

    gt: float | str
    gte: float | str
    lt: float | str
    lte: float | str


class HasFinding(TypedDict):
    """Texts and report of the image, taken together, say this of a finding."""

    finding: str
    state: Literal["present", "uncertain", "absent"]


# Keys that are words of Python.
And = TypedDict("And", {"and": Sequence["Filter"]})
Or = TypedDict("Or", {"or": Sequence["Filter"]})
Not = TypedDict("Not", {"not": "Filter"})

Filter: TypeAlias = Equals | AnyOf | Range | HasFinding | And | Or | Not
