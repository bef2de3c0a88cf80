"""Marks and units in the numbers of a column."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from training.data.readers.values import Decimal, parse_number

# Spaces and apostrophes stand between thousands alone.
_SPACES: Final = " \xa0\u202f'’"
_PAIRS: Final[tuple[tuple[Decimal, Decimal], ...]] = ((",", "."), (".", ","))
_GROUPED: Final[Mapping[Decimal, re.Pattern[str]]] = {
    mark: re.compile(
        rf"[+-]?[1-9][0-9]{{0,2}}(?:[{re.escape(mark)}][0-9]{{3}})+(?:{re.escape(decimal)}[0-9]+)?"
    )
    for mark, decimal in _PAIRS
}
_SPACED: Final = re.compile(rf"[+-]?[1-9][0-9]{{0,2}}(?:[{_SPACES}][0-9]{{3}})+(?:[.,][0-9]+)?")
# One letter may be part of a name, such as 5a; these need a space ahead.
_UNITS: Final = """
% \u2030 ° °C °F nm um µm mm cm dm m km in ft px pt dpi ppi MP Mpx µg ug mg g kg t ul µl ml dl cl l
ms s sec min h Hz kHz MHz GHz V kV kVp mA mAs W kW eV keV MeV B kB KB MB GB TB J kJ
mGy Gy mSv Sv mmHg kPa Pa bar bpm € $ £ EUR USD CHF
y yr yrs year years month months week weeks day days hour hours minutes seconds
Jahr Jahre Monate Wochen Tage Stunden ans jours mois años meses días anni mesi giorni jaar maanden dagen
"""
_KNOWN_UNITS: Final = frozenset(_UNITS.split())
_MEASURE: Final = re.compile(rf"([+-]?[0-9][0-9.,{_SPACES}]*?)( ?)([^\W\d_]+|[%‰€$£]|°[CF]?)")
_BELOW_THOUSAND: Final = re.compile(r"[+-]?[0-9]{1,3}")


def split_unit(value: str) -> tuple[str, str] | None:
    """The number and the unit of a measure such as "12 mm" or "5%"; None for anything else."""
    found = _MEASURE.fullmatch(value.replace("\u03bc", "\xb5"))
    if (
        found is None
        or found[3] not in _KNOWN_UNITS
        or (found[3].isalpha() and len(found[3]) == 1 and not found[2])
    ):
        return None
    return found[1].strip(), found[3]


@dataclass(frozen=True)
class Marks:
    """Marks of one column; `thousands` is empty where a point or a comma never groups digits."""

    decimal: Decimal
    thousands: Decimal | Literal[""] = ""

    def is_grouped(self, value: str) -> bool:
        """Whether a value has marks of thousands."""
        if _SPACED.fullmatch(value):
            return True
        return self.thousands != "" and _GROUPED[self.thousands].fullmatch(value) is not None

    def parse(self, value: str) -> int | float | None:
        """The number that a value writes, or None."""
        if _SPACED.fullmatch(value):
            value = _without_spaces(value)
        elif self.is_grouped(value):
            value = value.replace(self.thousands, "")
        return parse_number(value, self.decimal)


def find_marks(counts: Mapping[str, int], delimiter: str) -> Marks:
    """Tell the marks of a column from all of its values.

    A comma or a point is one of thousands where it groups three digits in each value that has it, and a value
    with both marks or two groups shows it, or the table itself is separated by commas.
    """
    counts = {_without_spaces(value): count for value, count in counts.items()}
    commas, points = (
        [value for value in counts if mark in value and _is_number(value, mark)] for mark, _ in _PAIRS
    )
    if _are_thousands(",", commas, counts) or (
        delimiter == "," and commas and all(map(_GROUPED[","].fullmatch, commas))
    ):
        return Marks(".", ",")
    decimal_commas = sum(counts[value] for value in commas if parse_number(value, ",") is not None)
    german = decimal_commas and points and all(map(_GROUPED["."].fullmatch, points))
    if german or _are_thousands(".", points, counts):
        return Marks(",", ".")
    # 1,234 is a thousand or a little more than one.
    if delimiter != ";" and all(map(is_unclear, commas)):
        return Marks(".")
    decimal_points = sum(counts[value] for value in points if parse_number(value) is not None)
    return Marks("," if decimal_commas > decimal_points else ".")


def _without_spaces(value: str) -> str:
    """A number without the spaces or apostrophes between its thousands; any other value as it is."""
    return "".join(sign for sign in value if sign not in _SPACES) if _SPACED.fullmatch(value) else value


def _is_number(value: str, mark: Decimal) -> bool:
    return _GROUPED[mark].fullmatch(value) is not None or parse_number(value, mark) is not None


def _are_thousands(mark: Decimal, values: Sequence[str], counts: Mapping[str, int]) -> bool:
    if not values or not all(map(_GROUPED[mark].fullmatch, values)):
        return False
    if any(value.count(mark) > 1 or _other(mark) in value for value in values):
        return True
    # 950 beside 1,001: decimals would not have exactly three digits or none.
    below = [value for value in counts if _BELOW_THOUSAND.fullmatch(value)]
    return mark == "," and bool(below) and len(below) + len(values) == len(counts)


def _other(mark: Decimal) -> Decimal:
    return "." if mark == "," else ","


def is_unclear(value: str) -> bool:
    """Whether the one mark of a number may be of thousands or of decimals: 1,234."""
    return any(_GROUPED[mark].fullmatch(value) is not None for mark in _GROUPED)
