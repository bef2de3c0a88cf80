"""Times in the form of a crontab."""

from datetime import UTC, datetime, timedelta

import pytest

from app.crontab import Crontab


def _fitting(text: str, begin: datetime, minutes: int) -> list[str]:
    """The times that fit, of so many minutes from one on."""
    times = Crontab(text)
    each = (begin + timedelta(minutes=minute) for minute in range(minutes))
    return [f"{time:%m-%d %H:%M}" for time in each if times.fits(time)]


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("* * * * *", [*range(60)]),
        ("7 * * * *", [7]),
        ("*/15 * * * *", [0, 15, 30, 45]),
        ("5-20/5,50,*/30 * * * *", [0, 5, 10, 15, 20, 30, 50]),
        ("58-1 * * * *", [0, 1, 58, 59]),
        ("50-10/10 * * * *", [0, 10, 50]),
    ],
)
def test_minutes(text: str, minutes: list[int]) -> None:
    begin = datetime(2024, 2, 28, 12, tzinfo=UTC)
    assert _fitting(text, begin, 60) == [f"02-28 12:{minute:02}" for minute in minutes]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        # The first of September 2024 is a Sunday.
        ("0 0 * 9 0", [1, 8, 15, 22, 29]),
        ("0 0 * 9 7", [1, 8, 15, 22, 29]),
        ("0 0 1-8 9 1-5", [2, 3, 4, 5, 6]),
        ("0 0 1-9 9 5-1", [1, 2, 6, 7, 8, 9]),
        ("0 0 1-9 9 6-7", [1, 7, 8]),
        ("0 0 1-7 9 0-7", [1, 2, 3, 4, 5, 6, 7]),
        ("0 0 29-2 8-10 *", [1, 2, 29, 30]),
        ("0 0 */10 * *", [1, 11, 21]),
        ("0 0 13 * 5", [13]),
        ("0 0 12 * 5", []),
        ("0 0 1-3 11-9 *", [1, 2, 3]),
        ("0 0 1-3 11-8 *", []),
    ],
)
def test_days_of_a_month(text: str, days: list[int]) -> None:
    begin = datetime(2024, 9, 1, tzinfo=UTC)
    assert _fitting(text, begin, 30 * 24 * 60) == [f"09-{day:02} 00:00" for day in days]


def test_the_hours_of_a_night() -> None:
    begin = datetime(2024, 12, 31, tzinfo=UTC)
    assert _fitting("30 22-2/2 * * *", begin, 24 * 60) == ["12-31 00:30", "12-31 02:30", "12-31 22:30"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 3 * *", "give 5 parts: minute, hour, day, month, weekday"),
        ("60 3 * * *", "'60' is no minute from 0 to 59"),
        ("0 3 0 * *", "'0' is no day from 1 to 31"),
        ("0 3 * 1-13 *", "'1-13' is no month from 1 to 12"),
        ("0 3 * * 8", "'8' is no weekday from 0 to 7"),
        ("0 3 * * SUN", "'SUN' is no weekday such as 0, 0-5"),
        ("*/0 3 * * *", "is no minute such as"),
        ("1/5 3 * * *", "is no minute such as"),
        ("-5 3 * * *", "is no minute such as"),
        ("1, 3 * * *", "'' is no minute such as"),
    ],
)
def test_what_is_no_time_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Crontab(text)
