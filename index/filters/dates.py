"""Dates as texts: ISO 8601 in full or in part, with or without a time, and DICOM's eight digits.

A date is a period: 2021-03 for the month, 2021-03-12 for the day; with a time, for an instant. Times
without a zone are UTC, so that the same text is the same instant everywhere.
"""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from training.common.values import is_dicom_date

# Longer texts are no dates.
_MAX_LENGTH: Final = 40
_CACHE: Final = 65_536
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH: Final = re.compile(r"(\d{4})-(\d{2})", re.ASCII)
_DAY: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?", re.ASCII
)


class Period(NamedTuple):
    """A period in seconds since 1970 in UTC: from `start` to just before `end`; an instant has both alike."""

    start: float
    end: float


@lru_cache(_CACHE)
def parse_date(text: str) -> Period | None:
    """Return the period that a text describes; None if it isn't a date."""
    if len(text) > _MAX_LENGTH:
        return None
    try:
        if is_dicom_date(text):
            text = f"{text[:4]}-{text[4:6]}-{text[6:]}"
        if match := _DAY.fullmatch(text):
            day = date(*map(int, match.groups()))
            return _days(day, day + timedelta(days=1))
        if match := _MONTH.fullmatch(text):
            year, month = map(int, match.groups())
            return _days(date(year, month, 1), date(year + month // 12, month % 12 + 1, 1))
        if _TIME.fullmatch(text):
            instant = datetime.fromisoformat(text)
            seconds = _seconds(instant if instant.tzinfo else instant.replace(tzinfo=UTC))
            return Period(seconds, seconds)
    except (ValueError, OverflowError):
        # It has the form of a date, but there is no such day or hour.
        return None
    return None


def date_text(seconds: float) -> str:
    """Return an instant in ISO 8601: a day alone where it is its beginning, in UTC."""
    instant = _EPOCH + timedelta(seconds=seconds)
    if instant.time() == datetime.min.time():
        return instant.date().isoformat()
    return instant.isoformat().replace("+00:00", "Z")


def _days(first: date, beyond: date) -> Period:
    return Period(*(_seconds(datetime(day.year, day.month, day.day, tzinfo=UTC)) for day in (first, beyond)))


def _seconds(instant: datetime) -> float:
    return (instant - _EPOCH).total_seconds()
