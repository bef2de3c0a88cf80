"""Filters on an image's fields: their JSON form, its limits, and the check against the fields that exist.

A field may hold several values; a condition holds when one of them satisfies it. An image without the field
satisfies no condition on it, so `not` of a condition also finds the images that lack the field.
"""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails

from index.catalogue.lookup import storable_text
from index.errors import FilterError, listed, shortened
from index.filters.dates import parse_date
from training.clinical.findings import STATES, State
from training.clinical.text.vocabulary import FINDINGS, finding_called
from training.common.record import FLAG_FIELDS, OWN_FIELDS

TEXT: Final[dict[str, Any]] = {"type": "string", "pattern": r"^[^\u0000]*$"}
NUMBER: Final[dict[str, Any]] = {
    "type": "number",
    "minimum": -sys.float_info.max,
    "maximum": sys.float_info.max,
}
_BOUNDS: Final = ("gt", "gte", "lt", "lte")
FieldKind = Literal["text", "number", "boolean", "date"]
# Fields that an image has one text of at most.
ONE_TEXT_FIELDS = frozenset(field.name for field in OWN_FIELDS if field.column is not None)
# The field that holds findings and their states; no field of a manifest has a null character in its name.
FINDING_FIELD = "\0finding"
MAX_DEPTH = 16
MAX_FIELD_NAME_LENGTH = 1000
MAX_CONDITIONS = 256
MAX_VALUES = 4096
# More objects, lists and values than the largest filter within the other limits has.
_MAX_PARTS = 10_000
# Days in other spellings than those of dates, such as 2021:03 and 12.03.2021.
_LIKE_DAY = re.compile(r"\d{4}[-:./]\d|\d{1,2}[-./]\d{1,2}[-./]\d{2}", re.ASCII)
_MAX_TYPO_LENGTH = 80
_MAX_COMPARED = 1_000

_WRONG_KIND = frozenset({"bool_type", "int_type", "float_type", "string_type"})
_KEYS = "eq, any_of, gt, gte, lt or lte with field, finding with state, or one of and, or, not"
# Sentences for callers, which replace pydantic's types of errors.
_SENTENCES = {
    "missing": "it is missing",
    "extra_forbidden": f"it does not belong there: a condition is an object with {_KEYS}",
    "tuple_type": "there must be a list",
    "too_short": "the list must have at least {min_length} in it",
    "too_long": "{actual_length} are too many; at most {max_length} are allowed",
    "string_too_long": "it has more than {max_length} characters",
}


def describe_range(schema: dict[str, Any]) -> None:
    """Describe a range, in the schema that pydantic makes of it, as one of numbers or of texts.

    Args:
        schema: Changed in place. Bounds that are null, which filters may have, are left out.
    """
    field = schema["properties"]["field"]
    for name in ("type", "properties", "required", "additionalProperties"):
        del schema[name]
    schema["anyOf"] = [
        {
            "type": "object",
            "properties": {"field": field, **dict.fromkeys(_BOUNDS, bound)},
            "required": ["field"],
            # The field and a bound.
            "minProperties": 2,
            "additionalProperties": False,
        }
        for bound in (NUMBER, TEXT)
    ]


def _storable(value: bool | int | float | str) -> bool | int | float | str:
    if isinstance(value, str):
        if not storable_text(value):
            raise ValueError("text must not hold null characters or half surrogate pairs")
        return value
    try:
        finite = math.isfinite(float(value))
    except OverflowError:
        finite = False
    if not finite:
        raise ValueError("a number must be finite")
    return value


FilterValue = Annotated[
    StrictBool | StrictInt | StrictFloat | StrictStr,
    AfterValidator(_storable),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, NUMBER, TEXT]}),
]
FieldName = Annotated[str, Field(max_length=MAX_FIELD_NAME_LENGTH)]
Bound = Annotated[StrictInt | StrictFloat | StrictStr, AfterValidator(_storable)]


def _finding(value: str) -> str:
    name = finding_called(value)
    if name is None:
        named = {
            part: finding for finding in FINDINGS for part in (*finding.lower().split(), finding.lower())
        }
        near = dict.fromkeys(named[part] for part in _near(value.lower(), list(named)))
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(f"there is no finding {shortened(value)!r}.{hint} Findings: {', '.join(FINDINGS)}")
    return name


FindingName = Annotated[
    StrictStr,
    Field(max_length=200),
    AfterValidator(_finding),
    WithJsonSchema({"type": "string", "enum": list(FINDINGS)}),
]


class _Expression(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @cached_property
    def text(self) -> str:
        """The filter as JSON text that is always the same for the same filter."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


class Equals(_Expression):
    """The field has this value."""

    field: FieldName
    eq: FilterValue

    def values(self) -> list[FilterValue]:
        """Return the values that the field is compared with."""
        return [self.eq]


class AnyOf(_Expression):
    """The field has one of these values."""

    field: FieldName
    any_of: Annotated[tuple[FilterValue, ...], FailFast()] = Field(min_length=1, max_length=1024)

    def values(self) -> list[FilterValue]:
        """Return the values that the field is compared with."""
        return list(self.any_of)


class Range(_Expression):
    """The field has a value between the bounds: numbers by size, dates by time, other text by code point."""

    model_config = ConfigDict(json_schema_extra=describe_range)

    field: FieldName
    gt: Bound | None = None
    gte: Bound | None = None
    lt: Bound | None = None
    lte: Bound | None = None

    @model_validator(mode="after")
    def _same_kind(self) -> "Range":
        bounds = self.values()
        if not bounds:
            raise ValueError("a range needs gt, gte, lt or lte")
        if len({isinstance(bound, str) for bound in bounds}) > 1:
            raise ValueError("the bounds of a range must be all numbers or all texts")
        return self

    def bounds(self) -> list[tuple[str, int | float | str]]:
        """Return the bounds that are set, with their operators."""
        every = (("gt", self.gt), ("gte", self.gte), ("lt", self.lt), ("lte", self.lte))
        return [(operator, bound) for operator, bound in every if bound is not None]

    def values(self) -> list[FilterValue]:
        """Return the values that the field is compared with."""
        return [bound for _, bound in self.bounds()]

    @cached_property
    def is_dated(self) -> bool:
        """Whether the bounds are dates, which are compared by time; ids, splits and groups are texts."""
        return len(self.dates) == len(self.values())

    @property
    def dates(self) -> list[str]:
        """Return the bounds that are dates; without any where the field has texts alone."""
        texts = [bound for bound in self.values() if isinstance(bound, str) and parse_date(bound) is not None]
        return [] if self.field in ONE_TEXT_FIELDS else texts

    @property
    def slips(self) -> list[str]:
        """Return the bounds that are written like days, but not as dates are."""
        texts = [bound for bound in self.values() if isinstance(bound, str) and _LIKE_DAY.match(bound)]
        return [] if self.field in ONE_TEXT_FIELDS else [text for text in texts if parse_date(text) is None]


class HasFinding(_Expression):
    """Texts and report of the image, taken together, say this of a finding."""

    finding: FindingName
    state: State

    @property
    def field(self) -> str:
        """The field that holds findings and their states."""
        return FINDING_FIELD

    @property
    def value(self) -> str:
        """The finding and its state, as the catalogue has them."""
        return f"{self.finding}: {self.state}"

    def values(self) -> list[FilterValue]:
        """Return the values that the field is compared with."""
        return [self.value]


Condition = Equals | AnyOf | Range | HasFinding


class And(_Expression):
    """All of these hold."""

    filters: Annotated[tuple["Filter", ...], FailFast()] = Field(alias="and", min_length=1)


class Or(_Expression):
    """At least one of these holds."""

    filters: Annotated[tuple["Filter", ...], FailFast()] = Field(alias="or", min_length=1)


class Not(_Expression):
    """Negation of a filter."""

    filter: "Filter" = Field(alias="not")


def _flagged(filter: "Filter") -> "Filter":
    """Take an image without a flag as one where it is false."""
    if not isinstance(filter, Equals | AnyOf) or filter.field not in FLAG_FIELDS:
        return filter
    values = [value for value in filter.values() if value is not False]
    if len(values) == len(filter.values()):
        return filter
    without = Not(filter=Equals(field=filter.field, eq=True))
    return Or(filters=(without, AnyOf(field=filter.field, any_of=tuple(values)))) if values else without


# Keys that distinguish each form from the ones after it.
_FORMS: dict[type[_Expression], frozenset[str]] = {
    And: frozenset({"and"}),
    Or: frozenset({"or"}),
    Not: frozenset({"not"}),
    Equals: frozenset({"eq"}),
    AnyOf: frozenset({"any_of"}),
    HasFinding: frozenset({"finding"}),
    Range: frozenset({"gt", "gte", "lt", "lte"}),
}
# Parts of pydantic's locations that aren't keys or indices in the JSON.
_TAGS = {form.__name__ for form in _FORMS} | {"bool", "int", "float", "str"}


def _form(value: Any) -> str | None:
    """Tell by its keys which condition a JSON object, or an object already parsed, is."""
    if isinstance(value, _Expression):
        return type(value).__name__
    if not isinstance(value, Mapping):
        return None
    return next((form.__name__ for form, keys in _FORMS.items() if keys & value.keys()), None)


Filter = Annotated[
    Annotated[Equals, Tag("Equals")]
    | Annotated[AnyOf, Tag("AnyOf")]
    | Annotated[Range, Tag("Range")]
    | Annotated[HasFinding, Tag("HasFinding")]
    | Annotated[And, Tag("And")]
    | Annotated[Or, Tag("Or")]
    | Annotated[Not, Tag("Not")],
    Discriminator(
        _form,
        custom_error_type="filter_form",
        custom_error_message=f"a condition is an object with {_KEYS}",
    ),
    AfterValidator(_flagged),
]

for _model in (And, Or, Not):
    _model.model_rebuild()

_ADAPTER: TypeAdapter[Filter] = TypeAdapter(Filter)


def parse_filter(value: Any) -> Filter:
    """Turn decoded JSON into a filter.

    Raises:
        FilterError: The value is no filter, or larger or deeper than the limits.
    """
    _check_shape(value)
    try:
        parsed = _ADAPTER.validate_python(value)
    except ValidationError as error:
        first = _main_error(error.errors(include_url=False))
        raise FilterError(_path(first["loc"]), _sentence(first)) from error
    _check_size(parsed)
    return parsed


def conditions(filter: Filter) -> Iterator[Condition]:
    """Walk over all conditions on fields within a filter."""
    if isinstance(filter, And | Or):
        for part in filter.filters:
            yield from conditions(part)
    elif isinstance(filter, Not):
        yield from conditions(filter.filter)
    else:
        yield filter


def kind_of(value: bool | int | float | str) -> FieldKind:
    """Return which kind of value this is."""
    if isinstance(value, bool):
        return "boolean"
    return "text" if isinstance(value, str) else "number"


def check_filter(filter: Filter, fields: Mapping[str, frozenset[FieldKind]]) -> None:
    """Check a filter against the fields of a collection and the kinds of their values.

    Raises:
        FilterError: A field is unknown, or is compared with a kind of value that it never has.
    """
    _check_size(filter)
    for condition in conditions(filter):
        if isinstance(condition, HasFinding):
            continue
        kinds = fields.get(condition.field, frozenset())
        if condition.field in FLAG_FIELDS:
            # No image may have it.
            kinds |= {"boolean"}
        if not kinds:
            raise FilterError(condition.field, unknown_field(condition.field, sorted(fields), "to filter on"))
        for value in condition.values():
            if kind_of(value) not in kinds:
                raise FilterError(
                    condition.field,
                    f"Field {shortened(condition.field)!r} holds {' and '.join(sorted(kinds))} values, "
                    f"so it cannot be compared with the {kind_of(value)} {_short(value)}.",
                )


def check_dates(filter: Filter, has_dates: Callable[[str], bool]) -> None:
    """Check that no date is compared with a field of other texts, and no other spelling of a day with dates.

    Raises:
        FilterError: A bound is a date, and no value of its field is one; or some are, and a bound is written
            like a day, such as 2021:03.
    """
    for condition in conditions(filter):
        if not isinstance(condition, Range) or not (condition.dates or condition.slips):
            continue
        field = shortened(condition.field)
        written = "dates are written as 2021-03-12 or 2021-03-12T10:15:00"
        if not has_dates(condition.field):
            if condition.dates:
                raise FilterError(
                    condition.field,
                    f"No value of field {field!r} is a date, so it cannot be compared with the date "
                    f"{condition.dates[0]!r}: {written}.",
                )
        elif condition.slips:
            raise FilterError(
                condition.field,
                f"{condition.slips[0]!r} cannot be compared with the dates of field {field!r}: {written}.",
            )


def _short(value: bool | int | float | str) -> str:
    if isinstance(value, str):
        return repr(shortened(value))
    return str(value).lower() if isinstance(value, bool) else repr(value)


def unknown_field(name: str, fields: list[str], purpose: str) -> str:
    """Return a sentence that a collection has no such field, and which fields it has."""
    near = _near(name, fields)
    hint = f" Did you mean {' or '.join(repr(match) for match in near)}?" if near else ""
    return f"There is no field {shortened(name)!r} {purpose}.{hint} Fields: {listed(fields)}."


def _near(name: str, fields: Sequence[str]) -> list[str]:
    """Return names that `name` may be a typo of; long names, or thousands, would take seconds."""
    if len(name) > _MAX_TYPO_LENGTH:
        return []
    short = [other for other in fields if len(other) <= _MAX_TYPO_LENGTH]
    return get_close_matches(name, short[:_MAX_COMPARED], n=3, cutoff=0.6)


def _check_shape(value: Any) -> None:
    """Refuse what is too deep or too large before any of it is looked at, which could take seconds."""
    level, parts = [value], 1
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                below.extend(item.values())
            elif isinstance(item, list | tuple):
                below.extend(item)
        if not below:
            return
        parts += len(below)
        if parts > _MAX_PARTS:
            limits = f"at most {MAX_CONDITIONS} conditions and {MAX_VALUES} values are allowed"
            raise FilterError("", f"The filter is too large: {limits}.")
        level = below
    raise FilterError("", f"The filter is nested too deeply; at most {MAX_DEPTH // 2} levels are allowed.")


def _check_size(filter: Filter) -> None:
    leaves = list(conditions(filter))
    values = sum(len(condition.values()) for condition in leaves)
    if len(leaves) > MAX_CONDITIONS or values > MAX_VALUES:
        raise FilterError(
            "",
            f"The filter is too large: {len(leaves)} conditions with {values} values; "
            f"at most {MAX_CONDITIONS} and {MAX_VALUES} are allowed.",
        )


def _path(location: tuple[int | str, ...]) -> str:
    """Turn pydantic's location into the path within the JSON, such as `and[1].age`."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in _TAGS:
            path += f".{shortened(part)}" if path else shortened(part)
    return path


def _main_error(errors: list[ErrorDetails]) -> ErrorDetails:
    """Return the first error; of a value that can be of several kinds, the one about its own kind."""
    same_path = [error for error in errors if _path(error["loc"]) == _path(errors[0]["loc"])]
    return next((error for error in same_path if error["type"] not in _WRONG_KIND), errors[0])


def _sentence(error: ErrorDetails) -> str:
    path = _path(error["loc"])
    what = error["msg"].removeprefix("Value error, ")
    if error["type"] == "literal_error":
        what = f"it must be {', '.join(STATES[:-1])} or {STATES[-1]}"
    elif error["loc"][-1:] == ("finding",) and error["type"] in _WRONG_KIND:
        what = "the name of a finding is a text"
    elif error["loc"][-1:] == ("field",) and error["type"] in _WRONG_KIND:
        what = "the name of a field is a text"
    elif error["type"] in _WRONG_KIND:
        what = "a value must be a text, a number, true or false"
    elif error["type"] in _SENTENCES:
        what = _SENTENCES[error["type"]].format_map(error.get("ctx", {}))
    return f"The filter is wrong{f' at {path}' if path else ''}: {what}."
