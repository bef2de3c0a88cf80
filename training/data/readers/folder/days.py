"""Days in the columns of a table, in the spellings of people, of spreadsheets and of programs."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, Literal

from training.data.readers.common.examples import Examples
from training.data.readers.common.roles import normal_name
from training.data.readers.folder.months import MONTHS
from training.data.readers.values import is_dicom_date

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
# Of years with two digits, those below are of this century, as in Excel.
_THIS_CENTURY: Final = 30
# Three small numbers between points are the version of a program where nothing else speaks for days.
_NAMED_DAYS: Final = re.compile(
    r"dat|fecha|tag(?:e|_|$)|day|giorno|jour|zeit|time|taken|aufnahme|geb|birth|nai|nasc|nac"
)
_PADDED: Final = re.compile(r"0\d[./-]|\d[./-]0\d[./-]|(?:1[3-9]|[23]\d)[./-]")
# A column is one of days where so many of its values are; with fewer than half, nobody takes it for one.
_DAYS: Final = 0.99
_REMARKABLE: Final = 0.5


def read_days(
    name: str, counts: Mapping[str, int], lines: Mapping[str, int], notes: list[str]
) -> dict[str, str] | None:
    """Days of a column by their spellings in the table, as ISO 8601 writes them; None where it has others.

    Args:
        name: Of the column.
        counts: Its different values and how often each comes.
        lines: The line on which each comes first.
        notes: Gets a sentence on how days were read, or why they stay texts.
    """
    total = sum(counts.values())

    def is_column(days: Mapping[str, str] | Sequence[str]) -> bool:
        return bool(days) and sum(counts[value] for value in days) >= _DAYS * total

    def examples(values: Mapping[str, str] | Sequence[str]) -> Examples:
        found = Examples()
        for value in values:
            found.add(value, lines[value])
        found.count = sum(counts[value] for value in values)
        return found

    def note_others(days: Mapping[str, str]) -> None:
        others = counts.keys() - days.keys()
        if others:
            listed = examples([value for value in counts if value in others])
            stay = listed.times("value is no day and stays", "values are no days and stay")
            notes.append(f"{name}: {stay} text: {listed}.")

    dicom = {value: value for value in counts if is_dicom_date(value)}
    if is_column(dicom):
        # As numbers, no range of dates would find them.
        notes.append(f"{name}: days as DICOM writes them are dates: {examples(dicom)}.")
        note_others(dicom)
        return {}
    orders = [_days_in(counts, order) for order in _ORDERS]
    fitting = [days for days in orders if is_column(days)]
    short = [value for value in counts if _SHORT_YEAR.fullmatch(value)]
    if short and fitting and not _are_days(name, counts, short):
        notes.append(
            f"{name}: numbers that may be days with two digits for the year stay texts, which no range of "
            f"dates finds; write days as 2021-03-25: {examples(short)}."
        )
        return {}
    if not fitting:
        most = max(orders, key=len)
        known = sum(counts[value] for value in most)
        if not most or known < _REMARKABLE * total:
            return None
        verb = "is no day" if total - known == 1 else "are no days"
        others = examples([value for value in counts if value not in most])
        notes.append(
            f"{name}: {total - known:,} of {total:,} {verb}: {others}; the column stays text, which no range "
            "of dates finds."
        )
        return {}
    days = max(fitting, key=len)
    if len(fitting) == 2 and fitting[0].keys() == fitting[1].keys() and fitting[0] != fitting[1]:
        unclear = [value for value in days if fitting[0][value] != fitting[1].get(value)]
        value = unclear[0]
        notes.append(
            f"{name}: {value!r} may be {fitting[0][value]} or {fitting[1][value]}, and no other value tells "
            f"which; such days stay texts, which no range of dates finds: write them as 2021-03-25: "
            f"{examples(unclear)}."
        )
        return {}
    changed = {value: day for value, day in days.items() if day != value}
    if changed:
        stored = f"days are stored as dates, such as {next(iter(changed.values()))}"
        notes.append(f"{name}: {stored}: {examples(changed)}.")
    if read := [value for value in short if value in changed]:
        notes.append(
            f"{name}: two digits for the year stand for 19{_THIS_CENTURY} to 20{_THIS_CENTURY - 1}: "
            f"{examples(read)}."
        )
    note_others(days)
    return changed


def _are_days(name: str, counts: Mapping[str, int], short: Sequence[str]) -> bool:
    """Whether three short numbers are days: by the column's name, other values, or how they are written."""
    return (
        _NAMED_DAYS.search(normal_name(name)) is not None
        or any(_iso(value, order) is not None for value in counts.keys() - set(short) for order in _ORDERS)
        or any(_PADDED.match(value) for value in short)
    )


def _days_in(counts: Mapping[str, int], order: Order) -> dict[str, str]:
    found = {value: _iso(value, order) for value in counts}
    days = {value: day for value, day in found.items() if day is not None}
    if days:
        # Beside other spellings, days as DICOM writes them get one with them.
        dicom = (value for value in counts if is_dicom_date(value))
        days |= {value: f"{value[:4]}-{value[4:6]}-{value[6:]}" for value in dicom}
    # A column of days exported with the time of midnight.
    if all(day.endswith("T00:00:00") for day in days.values()):
        return {value: day.removesuffix("T00:00:00") for value, day in days.items()}
    return {value: value if _ISO.fullmatch(value) else day for value, day in days.items()}


def _iso(value: str, order: Order) -> str | None:
    """A day, with its time where one is written; None for anything else."""
    time = next((found for found in _TIME.finditer(value) if found.end() == len(value)), None)
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
    if (found := _YEAR_FIRST.fullmatch(value)) is not None:
        return int(found["year"]), int(found["month"]), int(found["day"])
    if (found := _YEAR_LAST.fullmatch(value)) is not None:
        one, two, year = int(found["one"]), int(found["two"]), int(found["year"])
        if len(found["year"]) == 2:
            year += 2000 if year < _THIS_CENTURY else 1900
        # With points, it is the day that goes first, everywhere.
        month_first = order == "month first" and found["mark"] != "."
        return (year, one, two) if month_first else (year, two, one)
    if (found := _WORDED.fullmatch(value)) is not None:
        month = MONTHS.get(normal_name(found["month"] or found["month2"]))
        return None if month is None else (int(found["year"]), month, int(found["day"] or found["day2"]))
    return None
