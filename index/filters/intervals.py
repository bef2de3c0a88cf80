"""The values that conditions of filters ask for, as intervals."""

from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never

from index.filters.dates import parse_date
from index.filters.grammar import AnyOf, Condition, Equals, FieldKind, HasFinding, Range, kind_of

_Value = float | str


class Endpoint(NamedTuple):
    """Endpoint of an interval of a field's values: before or after a value, or infinite.

    Attributes:
        part: Below all values, at a value or above all; endpoints are ordered by this first.
        value: The value.
        after: Whether the place is after it.
    """

    part: int
    value: _Value = 0.0
    after: bool = False


_BELOW: Final = Endpoint(-1)
_ABOVE: Final = Endpoint(1)


class Interval(NamedTuple):
    """All values between two endpoints."""

    low: Endpoint
    high: Endpoint

    @property
    def is_point(self) -> bool:
        """Whether this is a single value."""
        return self.low.part == self.high.part == 0 and self.low.value == self.high.value


def intervals(condition: Condition, kind: FieldKind) -> list[Interval]:
    """Return the values of a kind that a condition asks for; of dates the seconds at which they begin."""
    if kind == "date":
        return _date_intervals(condition) if isinstance(condition, Range) else []
    values = [_stored(value) for value in condition.values() if kind_of(value) == kind]
    match condition:
        case Range():
            return _range_intervals(condition) if values else []
        case Equals() | AnyOf() | HasFinding():
            return [Interval(Endpoint(0, value), Endpoint(0, value, after=True)) for value in values]
        case _:
            assert_never(condition)


def _range_intervals(condition: Range) -> list[Interval]:
    low, high = _BELOW, _ABOVE
    for sign, bound in condition.bounds():
        if sign in ("gt", "gte"):
            low = max(low, Endpoint(0, _stored(bound), after=sign == "gt"))
        else:
            high = min(high, Endpoint(0, _stored(bound), after=sign == "lte"))
    return [Interval(low, high)] if low < high else []


def _date_intervals(condition: Range) -> list[Interval]:
    low, high = _BELOW, _ABOVE
    for sign, bound in condition.bounds():
        period = parse_date(str(bound))
        assert period is not None
        is_instant = period.start == period.end
        match sign:
            case "gte":
                low = max(low, Endpoint(0, period.start))
            case "gt":
                low = max(low, Endpoint(0, period.end, after=is_instant))
            case "lt":
                high = min(high, Endpoint(0, period.start))
            case _:
                high = min(high, Endpoint(0, period.end, after=is_instant))
    return [Interval(low, high)] if low < high else []


def joined(parts: Sequence[Interval]) -> list[Interval]:
    """Return the same values as intervals that do not touch, rising."""
    found: list[Interval] = []
    for part in sorted(parts):
        if found and part.low <= found[-1].high:
            found[-1] = Interval(found[-1].low, max(found[-1].high, part.high))
        else:
            found.append(part)
    return found


UNBOUNDED: Final = Interval(_BELOW, _ABOVE)


def kinds(condition: Condition) -> list[FieldKind]:
    """Return the kinds of the values that a condition asks for."""
    if isinstance(condition, Range) and condition.is_dated:
        return ["date"]
    return sorted({kind_of(value) for value in condition.values()})


def _stored(value: bool | int | float | str) -> _Value:
    """Return a value as the catalogue compares it: numbers as 64-bit floats."""
    return value if isinstance(value, str) else float(value)
