"""Days in the columns of a table, in the spellings of Germany, Britain, the United States and of programs."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, Literal

from training.data.readers.common.examples import Examples
from training.data.readers.values import is_dicom_date

Order = Literal["day first", "month first"]

_ORDERS: Final[tuple[Order, ...]] = ("day first", "month first")
_TIME: Final = (
    r"(?:[ T]+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.0+)?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?)?"
)
_YEAR_FIRST: Final = re.compile(
    rf"(?P<year>\d{{4}})(?P<mark>[./-])(?P<month>\d{{1,2}})(?P=mark)(?P<day>\d{{1,2}}){_TIME}", re.ASCII
)
_YEAR_LAST: Final = re.compile(
    rf"(?P<one>\d{{1,2}})(?P<mark>[./-])(?P<two>\d{{1,2}})(?P=mark)(?P<year>\d{{4}}){_TIME}", re.ASCII
)
_SHORT_YEAR: Final = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d\d", re.ASCII)
# A column is one of days where so many of its values are.
_DAYS: Final = 0.99


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
    orders = {order: _days_in(counts, order) for order in _ORDERS}
    fitting = [days for days in orders.values() if is_column(days)]
    if not fitting:
        short = [value for value in counts if _SHORT_YEAR.fullmatch(value)]
        if is_column(short):
            notes.append(
                f"{name}: days with two digits for the year stay texts, which no range of dates finds; "
                f"write them as 2021-03-25: {examples(short)}."
            )
            return {}
        return None
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
    note_others(days)
    return changed


def _days_in(counts: Mapping[str, int], order: Order) -> dict[str, str]:
    found = {value: _iso(value, order) for value in counts}
    days = {value: day for value, day in found.items() if day is not None}
    # A column of days exported with the time of midnight.
    if all(day.endswith("T00:00:00") for day in days.values()):
        return {value: day.removesuffix("T00:00:00") for value, day in days.items()}
    return {value: value if _is_iso(value, day) else day for value, day in days.items()}


def _is_iso(value: str, day: str) -> bool:
    return value[:10] == day[:10] and (len(value) == 10 or value[10:11] in "T ")


def _iso(value: str, order: Order) -> str | None:
    """A day, with its time where one is written; None for anything else."""
    written = _YEAR_FIRST.fullmatch(value)
    if written is not None:
        month, day = int(written["month"]), int(written["day"])
    else:
        written = _YEAR_LAST.fullmatch(value)
        if written is None:
            return None
        one, two = int(written["one"]), int(written["two"])
        # With points, it is the day that goes first, everywhere.
        month, day = (one, two) if order == "month first" and written["mark"] != "." else (two, one)
    try:
        text = date(int(written["year"]), month, day).isoformat()
    except ValueError:
        return None
    if written["hour"] is None:
        return text
    hour = int(written["hour"])
    if written["half"]:
        hour = hour % 12 + (12 if written["half"] in "Pp" else 0)
    second = int(written["second"] or 0)
    if hour > 23 or int(written["minute"]) > 59 or second > 59:
        return None
    return f"{text}T{hour:02}:{written['minute']}:{second:02}"
