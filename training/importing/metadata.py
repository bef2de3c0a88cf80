"""Numbers and days in the columns of a table, in the spellings of people, of spreadsheets and of programs."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Final, Literal

from training.common.record import Scalar
from training.common.roles import normal_name
from training.common.values import Decimal, dicom_age_years, is_dicom_date, is_name_of_digits, parse_number
from training.importing.report import Examples

# A column is numeric where so many of its values are.
_NUMERIC: Final = 0.99
# With fewer numbers among its values, nobody takes a column for one of numbers.
_REMARKABLE: Final = 0.5
_NOT_COMPARED: Final = "the column stays text, which no search compares as numbers"
_AGE_COLUMN: Final = re.compile(r"(?i:(?:^|[^a-z])(?:age|alter)(?:$|[^a-z]))|[a-z]Age(?:$|[^a-z])")

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

Order = Literal["day first", "month first"]

_ORDERS: Final[tuple[Order, ...]] = ("day first", "month first")
_TIME: Final = re.compile(
    r"(?:(?<=\d)T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,]\d{1,9})?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)| Uhr)?",
    re.ASCII,
)
_YEAR_FIRST: Final = re.compile(
    r"(?P<year>\d{4})(?P<mark>[./:-])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})", re.ASCII
)
_YEAR_LAST: Final = re.compile(
    r"(?P<one>\d{1,2})(?P<mark>[./-]) ?(?P<two>\d{1,2})(?P=mark) ?(?P<year>\d{4}|\d\d)", re.ASCII
)
_SHORT_YEAR: Final = re.compile(r"\d{1,2}([./-]) ?\d{1,2}\1 ?\d\d", re.ASCII)
# Texts that a range of dates finds as they are.
_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
# "11. März 2021", "Thursday, March 11th, 2021", "11 de marzo de 2021", "11-Mar-2021".
_WORDED: Final = re.compile(
    r"(?:[^\W\d_]{2,12}\.?,?\s+)?(?:(?P<day>\d{1,2})(?:\.|er|st|nd|rd|th)?[\s-]*(?:de |of )?"
    r"(?P<month>[^\W\d_]{3,12})\.?|(?P<month2>[^\W\d_]{3,12})\.?\s+(?P<day2>\d{1,2})(?:st|nd|rd|th)?),?[\s-]*"
    r"(?:del? )?(?P<year>\d{4})"
)
# Two-digit years below this one are in this century, as in Excel.
_THIS_CENTURY: Final = 30
# Three small numbers between points are the version of a program where nothing else speaks for days.
_NAMED_DAYS: Final = re.compile(
    r"dat|fecha|tag(?:e|_|$)|day|giorno|jour|zeit|time|taken|aufnahme|geb|birth|nai|nasc|nac"
)
_PADDED: Final = re.compile(r"0\d[./-]|\d[./-]0\d[./-]|(?:1[3-9]|[23]\d)[./-]")

# A line a month; names are compared in small letters without accents.
_NAMES: Final = """
januar january janvier enero gennaio januari janeiro jänner jan janv ene gen
februar february février febrero febbraio februari fevereiro feber feb févr fev febr
märz march mars marzo maart março mar mrz mrt
april avril abril aprile apr avr abr
mai may mayo maggio mei maio mag
juni june juin junio giugno junho jun giu
juli july juillet julio luglio julho jul juil lug
august août agosto augustus aug ago
september septembre septiembre setiembre settembre setembro sep sept set
oktober october octobre octubre ottobre outubro okt oct ott out
november novembre noviembre novembro nov
dezember december décembre diciembre dicembre dezembro dez dec déc dic
"""
MONTHS: Final = {
    normal_name(name): number
    for number, names in enumerate(_NAMES.strip().splitlines(), 1)
    for name in names.split()
}


def split_unit(value: str) -> tuple[str, str] | None:
    """The number and the unit of a measure such as "12 mm" or "5%"; None for anything else."""
    match = _MEASURE.fullmatch(value.replace("\u03bc", "\xb5"))
    if (
        match is None
        or match[3] not in _KNOWN_UNITS
        or (match[3].isalpha() and len(match[3]) == 1 and not match[2])
    ):
        return None
    return match[1].strip(), match[3]


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
        value = _without_spaces(value)
        return parse_number(
            value.replace(self.thousands, "") if self.is_grouped(value) else value, self.decimal
        )


def find_marks(counts: Mapping[str, int], delimiter: str) -> Marks:
    """Tell the marks of a column from all of its values.

    A comma or a point is one of thousands where it groups three digits in each value that has it, and a value
    with both marks or two groups shows it, or the table itself is separated by commas.
    """
    counts = {_without_spaces(value): count for value, count in counts.items()}
    commas, points = (
        [
            value
            for value in counts
            if mark in value and (_GROUPED[mark].fullmatch(value) or parse_number(value, mark) is not None)
        ]
        for mark, _ in _PAIRS
    )
    if _are_thousands(",", commas, counts) or (delimiter == "," and _are_grouped(",", commas)):
        return Marks(".", ",")
    decimal_commas = sum(counts[value] for value in commas if parse_number(value, ",") is not None)
    if (decimal_commas and _are_grouped(".", points)) or _are_thousands(".", points, counts):
        return Marks(",", ".")
    # 1,234 is a thousand or a little more than one.
    if delimiter != ";" and all(map(_is_unclear, commas)):
        return Marks(".")
    decimal_points = sum(counts[value] for value in points if parse_number(value) is not None)
    return Marks("," if decimal_commas > decimal_points else ".")


def _without_spaces(value: str) -> str:
    """A number without the spaces or apostrophes between its thousands; any other value as it is."""
    return "".join(sign for sign in value if sign not in _SPACES) if _SPACED.fullmatch(value) else value


def _are_grouped(mark: Decimal, values: Sequence[str]) -> bool:
    return bool(values) and all(map(_GROUPED[mark].fullmatch, values))


def _are_thousands(mark: Decimal, values: Sequence[str], counts: Mapping[str, int]) -> bool:
    other = "." if mark == "," else ","
    if not _are_grouped(mark, values):
        return False
    if any(value.count(mark) > 1 or other in value for value in values):
        return True
    # 950 next to 1,001: decimals would not have exactly three digits or none.
    below = [value for value in counts if _BELOW_THOUSAND.fullmatch(value)]
    return mark == "," and bool(below) and len(below) + len(values) == len(counts)


def _is_unclear(value: str) -> bool:
    """Whether the one mark of a number may be of thousands or of decimals: 1,234."""
    return any(grouped.fullmatch(value) is not None for grouped in _GROUPED.values())


@dataclass
class Values:
    """The different values of one column: how often each comes, and on which line first."""

    counts: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def add(self, value: str, line: int, count: int = 1) -> None:
        """Count one value that is there."""
        self.counts[value] = self.counts.get(value, 0) + count
        self.lines.setdefault(value, line)

    def join(self, other: "Values") -> None:
        """Count the values of the same column of another table as well."""
        for value, count in other.counts.items():
            self.add(value, other.lines[value], count)

    def count(self, values: Iterable[str]) -> int:
        """How often some of the values come."""
        return sum(self.counts[value] for value in values)

    def without(self, values: Collection[str]) -> list[str]:
        """All other values."""
        return [value for value in self.counts if value not in values]

    def examples(self, values: Collection[str]) -> Examples:
        """Some of the values with their lines."""
        examples = Examples()
        for value in values:
            examples.add(value, self.lines[value])
        examples.count = self.count(values)
        return examples


def read_values(name: str, values: Values, delimiter: str, notes: list[str]) -> Mapping[str, Scalar]:
    """Numbers or dates by the values of a column that write them, if 99 % of those that are there do.

    After a semicolon as delimiter, a comma in a number is a decimal one. `notes` gets a sentence on each kind
    of value that is not what the column seems to be.
    """
    said: list[str] = []
    column = _Column(name, values, delimiter, said)
    days = column.days()
    measures = column.measures() if days is None else None
    read = days if days is not None else measures if measures is not None else column.numbers()
    notes += (f"{name}: {sentence}." for sentence in said)
    return read


@dataclass(frozen=True)
class _Column:
    name: str
    values: Values
    delimiter: str
    notes: list[str]

    @property
    def total(self) -> int:
        return self.values.count(self.values.counts)

    def is_most(self, values: Collection[str]) -> bool:
        """Whether the column is taken for one of these values."""
        return bool(values) and self.values.count(values) >= _NUMERIC * self.total

    def note(self, words: str, values: Collection[str], end: str = "") -> None:
        self.notes.append(f"{words}: {self.values.examples(values)}{end}")

    def note_others(self, read: Collection[str], one: str, several: str) -> None:
        """Name values that stay text among others that are read."""
        if others := self.values.without(read):
            stay = self.values.examples(others).times(
                f"value is {one} and stays", f"values are {several} and stay"
            )
            self.note(f"{stay} text", others)

    def note_rest(self, read: Collection[str], one: str, several: str, end: str) -> None:
        """Say how many values are not like those that are read, and what follows from it."""
        rest = self.total - self.values.count(read)
        words = f"is {one}" if rest == 1 else f"are {several}"
        self.note(f"{rest:,} of {self.total:,} {words}", self.values.without(read), f"; {end}")

    def numbers(self) -> Mapping[str, Scalar]:
        counts = self.values.counts
        marks = find_marks(counts, self.delimiter)
        ages = _ages(self.name, counts)
        numbers = {value: number for value in counts if (number := marks.parse(value)) is not None} | ages
        others = self.values.without(numbers)
        if not numbers or self.are_names(others):
            return {}
        numeric = self.is_most(numbers)
        if others and self.values.count(numbers) >= _REMARKABLE * self.total:
            end = "it stays a text" if numeric else _NOT_COMPARED
            self.note_rest(numbers, "no number", "no numbers", end)
        if not numeric:
            return {}
        if ages:
            self.note("DICOM ages are numbers of years", ages)
        self.note_marks(list(numbers), marks)
        return numbers

    def are_names(self, others: Sequence[str]) -> bool:
        """Whether digits are names: padded with zeros to one length, or too long."""
        names = [value for value in others if is_name_of_digits(value)]
        if not names:
            return False
        padded = len({len(value) for value in self.values.counts}) == 1
        return padded or self.values.count(names) > (1 - _NUMERIC) * self.total

    def note_marks(self, numbers: Sequence[str], marks: Marks) -> None:
        if commas := [value for value in numbers if marks.decimal == "," and "," in value]:
            self.note("a comma is the decimal mark", commas)
        if grouped := [value for value in numbers if marks.is_grouped(value)]:
            self.note("numbers are written with marks of thousands", grouped)
        elif marks.decimal == "." and self.delimiter == ";" and (unclear := [*filter(_is_unclear, numbers)]):
            # A German table without any decimal comma: 1.001 may be a thousand and one.
            self.note("a point is taken for the decimal mark; write thousands without it", unclear)

    def measures(self) -> Mapping[str, Scalar] | None:
        """Numbers of a column of measures in one unit; none where units differ; None without units."""
        values, total = self.values, self.total
        split = {value: measure for value in values.counts if (measure := split_unit(value)) is not None}
        units = Counter[str]()
        for value, (_, unit) in split.items():
            units[unit] += values.counts[value]
        if not units or units.total() < _REMARKABLE * total:
            return None
        (unit, count), *_ = units.most_common(1)
        of_unit = {value: text for value, (text, own) in split.items() if own == unit}
        if count < _NUMERIC * total:
            first = next(iter(of_unit))
            words = f"not in {unit!r} as {first!r} on line {values.lines[first]}"
            self.note_rest(of_unit, words, words, _NOT_COMPARED)
            return {}
        bare = Values()
        for value, text in of_unit.items():
            bare.add(text, values.lines[value], values.counts[value])
        marks = find_marks(bare.counts, self.delimiter)
        numbers = {
            value: number for value, text in of_unit.items() if (number := marks.parse(text)) is not None
        }
        if not self.is_most(numbers):
            return None
        self.note(f"numbers are stored without their unit {unit!r}", numbers)
        replace(self, values=bare).note_marks(list(bare.counts), marks)
        self.note_others(of_unit, "no such number", "no such numbers")
        return numbers

    def days(self) -> Mapping[str, Scalar] | None:
        """Days by their spellings in the table, as ISO 8601 writes them; None where the column has others."""
        counts = self.values.counts
        if self.is_most(dicom := [value for value in counts if is_dicom_date(value)]):
            # As numbers, no range of dates would find them.
            self.note("days as DICOM writes them are dates", dicom)
            self.note_others(dicom, "no day", "no days")
            return {}
        orders = [_days_in(counts, order) for order in _ORDERS]
        fitting = [days for days in orders if self.is_most(days)]
        short = [value for value in counts if _SHORT_YEAR.fullmatch(value)]
        if not fitting:
            most = max(orders, key=len)
            if not most or self.values.count(most) < _REMARKABLE * self.total:
                return None
            self.note_rest(most, "no day", "no days", "the column stays text, which no range of dates finds")
            return {}
        if short and not self.are_days(short):
            self.note(
                "numbers that may be days with two digits for the year stay texts, which no range of dates "
                "finds; write days as 2021-03-25",
                short,
            )
            return {}
        days, other = max(fitting, key=len), fitting[-1]
        if days is not other and days.keys() == other.keys() and days != other:
            unclear = [value for value in days if days[value] != other[value]]
            value = unclear[0]
            self.note(
                f"{value!r} may be {days[value]} or {other[value]}, and no other value tells which; such "
                "days stay texts, which no range of dates finds: write them as 2021-03-25",
                unclear,
            )
            return {}
        changed = {value: day for value, day in days.items() if day != value}
        if changed:
            self.note(f"days are stored as dates, such as {next(iter(changed.values()))}", changed)
        if read := [value for value in short if value in changed]:
            century = f"19{_THIS_CENTURY} to 20{_THIS_CENTURY - 1}"
            self.note(f"two digits for the year stand for {century}", read)
        self.note_others(days, "no day", "no days")
        return changed

    def are_days(self, short: Sequence[str]) -> bool:
        """Whether three short numbers are days: by the column's name, other values, or their spelling."""
        others = self.values.without(short)
        return (
            _NAMED_DAYS.search(normal_name(self.name)) is not None
            or any(_iso(value, order) is not None for value in others for order in _ORDERS)
            or any(_PADDED.match(value) for value in short)
        )


def _ages(name: str, counts: Mapping[str, int]) -> dict[str, int | float]:
    ages = {value: years for value in counts if (years := dicom_age_years(value)) is not None}
    # Rooms and films have such names as well: 101D.
    if not _AGE_COLUMN.search(name) and any(not value.endswith("Y") for value in ages):
        return {}
    return ages


def _days_in(counts: Mapping[str, int], order: Order) -> dict[str, str]:
    spellings = {value: _iso(value, order) for value in counts}
    days = {value: day for value, day in spellings.items() if day is not None}
    if days:
        # Next to other spellings, days as DICOM writes them are stored in the same form.
        dicom = (value for value in counts if is_dicom_date(value))
        days |= {value: f"{value[:4]}-{value[4:6]}-{value[6:]}" for value in dicom}
    # A column of days exported with the time of midnight.
    if all(day.endswith("T00:00:00") for day in days.values()):
        return {value: day.removesuffix("T00:00:00") for value, day in days.items()}
    return {value: value if _ISO.fullmatch(value) else day for value, day in days.items()}


def _iso(value: str, order: Order) -> str | None:
    """A day, with its time where one is written; None for anything else."""
    time = next((match for match in _TIME.finditer(value) if match.end() == len(value)), None)
    written = value if time is None else value[: time.start()]
    numbers = _numbers(written, order)
    if numbers is None:
        return None
    try:
        text = date(*numbers).isoformat()
    except ValueError:
        return None
    if time is None:
        return text
    hour = int(time["hour"])
    if time["half"]:
        hour = hour % 12 + (12 if time["half"] in "Pp" else 0)
    second = int(time["second"] or 0)
    if hour > 23 or int(time["minute"]) > 59 or second > 59:
        return None
    zone = time["zone"] or ""
    return f"{text}T{hour:02}:{time['minute']}:{second:02}{zone if zone[:1] in '+-' else zone and 'Z'}"


def _numbers(value: str, order: Order) -> tuple[int, int, int] | None:
    """Year, month and day."""
    if (match := _YEAR_FIRST.fullmatch(value)) is not None:
        return int(match["year"]), int(match["month"]), int(match["day"])
    if (match := _YEAR_LAST.fullmatch(value)) is not None:
        one, two, year = int(match["one"]), int(match["two"]), int(match["year"])
        if len(match["year"]) == 2:
            year += 2000 if year < _THIS_CENTURY else 1900
        # With points, it is the day that goes first, everywhere.
        month_first = order == "month first" and match["mark"] != "."
        return (year, one, two) if month_first else (year, two, one)
    if (match := _WORDED.fullmatch(value)) is not None:
        month = MONTHS.get(normal_name(match["month"] or match["month2"]))
        return None if month is None else (int(match["year"]), month, int(match["day"] or match["day2"]))
    return None
