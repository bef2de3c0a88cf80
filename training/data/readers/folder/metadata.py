"""Decides which columns of a table are numbers, and reads their values."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from training.data.readers.common.examples import Examples
from training.data.readers.folder.days import read_days
from training.data.readers.folder.numbers import Marks, find_marks, is_unclear, split_unit
from training.data.readers.values import (
    dicom_age_years,
    is_name_of_digits,
)
from training.data.record import Scalar

# A column is numeric where so many of its values are.
_NUMERIC: Final = 0.99
# With fewer numbers among its values, nobody takes a column for one of numbers.
_REMARKABLE: Final = 0.5
_AGE_COLUMN: Final = re.compile(r"(?i:(?:^|[^a-z])(?:age|alter)(?:$|[^a-z]))|[a-z]Age(?:$|[^a-z])")


@dataclass
class Values:
    """The different values of one column: how often each comes, and on which line first."""

    counts: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def add(self, value: str, line: int) -> None:
        """Count one value that is there."""
        self.counts[value] = self.counts.get(value, 0) + 1
        self.lines.setdefault(value, line)

    def join(self, other: "Values") -> None:
        """Count the values of the same column of another table as well."""
        for value, count in other.counts.items():
            self.counts[value] = self.counts.get(value, 0) + count
            self.lines.setdefault(value, other.lines[value])

    def examples(self, values: Sequence[str]) -> Examples:
        """Some of the values with their lines."""
        examples = Examples()
        for value in values:
            examples.add(value, self.lines[value])
        examples.count = sum(self.counts[value] for value in values)
        return examples


@dataclass(frozen=True)
class Column:
    """How the values of one column are read; `others` has those that are not kept as texts as they are."""

    others: Mapping[str, Scalar]

    def read(self, value: str) -> Scalar:
        """The value as a number or a date where the column is of these and it is one, else as it is."""
        return self.others.get(value, value)


def read_values(name: str, values: Values, delimiter: str, notes: list[str]) -> Column:
    """Decide whether a column is numeric: at least 99 % of the values that are there are numbers.

    Args:
        name: Of the column.
        values: Its values.
        delimiter: Of the table: after a semicolon, a comma in a number is a decimal one.
        notes: Gets a sentence on each kind of value that is not what the column seems to be.
    """
    days = read_days(name, values.counts, values.lines, notes)
    if days is not None:
        return Column(days)
    total = sum(values.counts.values())
    if (measures := _read_measures(name, values, delimiter, notes)) is not None:
        return Column(measures)
    marks = find_marks(values.counts, delimiter)
    numbers: dict[str, int | float] = {}
    for value in values.counts:
        number = marks.parse(value)
        if number is not None:
            numbers[value] = number
    ages = _ages(name, values.counts)
    numbers |= ages
    others = [value for value in values.counts if value not in numbers]
    known = sum(values.counts[value] for value in numbers)
    if not numbers or _are_names(values.counts, others, total):
        return Column({})
    numeric = known >= _NUMERIC * total
    if others and known >= _REMARKABLE * total:
        kept = "it stays a text" if numeric else "the column stays text, which no search compares as numbers"
        verb = "is no number" if total - known == 1 else "are no numbers"
        notes.append(f"{name}: {total - known:,} of {total:,} {verb}: {values.examples(others)}; {kept}.")
    if not numeric:
        return Column({})
    if ages:
        notes.append(f"{name}: DICOM ages are numbers of years: {values.examples(list(ages))}.")
    notes += _notes_on_marks(name, values, list(numbers), marks, delimiter)
    return Column(numbers)


def _notes_on_marks(
    name: str, values: Values, numbers: Sequence[str], marks: Marks, delimiter: str
) -> Iterator[str]:
    if commas := [value for value in numbers if marks.decimal == "," and "," in value]:
        yield f"{name}: a comma is the decimal mark: {values.examples(commas)}."
    if grouped := [value for value in numbers if marks.is_grouped(value)]:
        yield f"{name}: numbers are written with marks of thousands: {values.examples(grouped)}."
    elif unclear := [
        value for value in numbers if marks.decimal == "." and delimiter == ";" and is_unclear(value)
    ]:
        # A German table without any decimal comma: 1.001 may be a thousand and one.
        yield (
            f"{name}: a point is taken for the decimal mark; write thousands without it: "
            f"{values.examples(unclear)}."
        )


def _read_measures(
    name: str, values: Values, delimiter: str, notes: list[str]
) -> dict[str, int | float] | None:
    """Numbers of a column of measures in one unit; none where units differ; None without units."""
    split = {value: measure for value in values.counts if (measure := split_unit(value)) is not None}
    total = sum(values.counts.values())
    units = Counter[str]()
    for value, (_, unit) in split.items():
        units[unit] += values.counts[value]
    if not units or units.total() < _REMARKABLE * total:
        return None
    (unit, count), *_ = units.most_common(1)
    others = [value for value in values.counts if value not in split or split[value][1] != unit]
    if count < _NUMERIC * total:
        first = next(value for value in split if split[value][1] == unit)
        verb = "is" if total - count == 1 else "are"
        notes.append(
            f"{name}: {total - count:,} of {total:,} {verb} not in {unit!r} as {first!r} on line "
            f"{values.lines[first]}: {values.examples(others)}; the column stays text, which no search "
            "compares as numbers."
        )
        return {}
    bare = Values()
    for value, (text, own) in split.items():
        if own == unit:
            bare.counts[text] = bare.counts.get(text, 0) + values.counts[value]
            bare.lines.setdefault(text, values.lines[value])
    marks = find_marks(bare.counts, delimiter)
    numbers = {
        value: number
        for value, (text, own) in split.items()
        if own == unit and (number := marks.parse(text)) is not None
    }
    if sum(values.counts[value] for value in numbers) < _NUMERIC * total:
        return None
    notes.append(f"{name}: numbers are stored without their unit {unit!r}: {values.examples(list(numbers))}.")
    notes += _notes_on_marks(name, bare, list(bare.counts), marks, delimiter)
    if others:
        examples = values.examples(others)
        stay = examples.times("value is no such number and stays", "values are no such numbers and stay")
        notes.append(f"{name}: {stay} text: {examples}.")
    return numbers


def _ages(name: str, counts: Mapping[str, int]) -> dict[str, int | float]:
    ages = {value: years for value in counts if (years := dicom_age_years(value)) is not None}
    # Rooms and films have such names as well: 101D.
    if not _AGE_COLUMN.search(name) and any(not value.endswith("Y") for value in ages):
        return {}
    return ages


def _are_names(counts: Mapping[str, int], others: Sequence[str], total: int) -> bool:
    """Whether the digits of a column are names: padded with zeros to one length, or too long."""
    names = [value for value in others if is_name_of_digits(value)]
    if not names:
        return False
    if sum(counts[value] for value in names) > (1 - _NUMERIC) * total:
        return True
    return len({len(value) for value in counts}) == 1


def metadata_of(
    known: Mapping[int, str], names: Mapping[int, str], columns: Mapping[int, Column]
) -> Iterator[tuple[str, Scalar]]:
    """Names and values of what is known of one image, in the table's order."""
    for place, name in names.items():
        if place in known:
            yield name, columns[place].read(known[place])
