"""Hours and rates of requests."""

from datetime import datetime, timedelta

import pytest

from app.radiology.archive import Hours, OutsideHoursError, Pace


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("20-06", (20, 23, 0, 5), (6, 12, 19)),
        ("8-17", (8, 16), (7, 17, 0)),
        ("0-24", (), ()),
        ("22-24", (22, 23), (0, 21)),
    ],
)
def test_hours_are_read_across_midnight(text: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    if not inside:
        with pytest.raises(ValueError, match="two different hours"):
            Hours.parse(text)
        return
    hours = Hours.parse(text)
    assert all(map(hours.include, inside))
    assert not any(map(hours.include, outside))


@pytest.mark.parametrize("text", ["", "20", "20-25", "6-6", "20:00-06:00", "a-b"])
def test_what_are_no_hours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not two different hours"):
        Hours.parse(text)


class Clock:
    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def test_outside_its_hours_a_request_waits_or_is_refused() -> None:
    clock = Clock(datetime(2026, 1, 1, 17, 59, 30))
    hours = Hours.parse("18-06")
    with pytest.raises(OutsideHoursError):
        Pace(hours=hours, now=clock.now, sleep=clock.sleep).wait()
    Pace(hours=hours, waits=True, now=clock.now, sleep=clock.sleep).wait()
    assert clock.at == datetime(2026, 1, 1, 18)


def test_requests_are_spread_by_their_rate() -> None:
    slept: list[float] = []
    pace = Pace(100.0, sleep=slept.append)
    for _ in range(5):
        pace.wait()
    # The clock hardly goes on meanwhile: each waits for its own place.
    assert sum(slept) == pytest.approx(0.01 + 0.02 + 0.03 + 0.04, abs=0.01)
