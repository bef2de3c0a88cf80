"""Dates as texts: the periods that they stand for, and filters on them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.engine import SearchEngine
from index.errors import FilterError
from index.filters.dates import date_text, parse_date
from index.filters.grammar import parse_filter
from index.search.request import SearchRequest
from tests.index.samples import begin_generation, put_vectors, unit_vectors
from training.common.manifest import Record

DAY = 86_400.0


def seconds(*parts: int) -> float:
    year, month, day, *time = parts
    return datetime(year, month, day, *time, tzinfo=UTC).timestamp()  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "start", "length"),
    [
        ("2021-03-12", seconds(2021, 3, 12), DAY),
        ("20210312", seconds(2021, 3, 12), DAY),
        # Public data sets shift their days.
        ("21800506", seconds(2180, 5, 6), DAY),
        ("2021-03", seconds(2021, 3, 1), 31 * DAY),
        ("2020-02", seconds(2020, 2, 1), 29 * DAY),
        ("2021-12", seconds(2021, 12, 1), 31 * DAY),
        ("1969-12-31", -DAY, DAY),
        ("2021-03-12T10:00", seconds(2021, 3, 12, 10), 0),
        ("2021-03-12 10:00:30.5", seconds(2021, 3, 12, 10, 0, 30) + 0.5, 0),
        ("2021-03-12T10:00Z", seconds(2021, 3, 12, 10), 0),
        ("2021-03-12T10:00:00+02:00", seconds(2021, 3, 12, 8), 0),
        ("2021-03-12T23:30:00-0500", seconds(2021, 3, 13, 4, 30), 0),
    ],
)
def test_a_text_stands_for_a_period_in_utc(text: str, start: float, length: float) -> None:
    assert parse_date(text) == (start, start + length)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2021", "2021-3-12", "2021-13", "2021-02-30", "2021-00-10", "20211301", "12345678", "17991231"),
        *("2021-03-12T25:00", "2021-03-12T10", "2021-03-12T10:00+25:00", "12.03.2021", "03/12/2021"),
        *(" 2021-03", "2021-03-12\n", "\u0662021-03-12", "9999-12-31", "0000-01-01", "2021-W10"),
        "2021-03-12T10:00" + "0" * 40,
    ],
)
def test_other_texts_are_no_dates(text: str) -> None:
    assert parse_date(text) is None


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(-14 * 60, 14 * 60))
def test_the_same_instant_is_the_same_in_every_zone(instant: datetime, minutes: int) -> None:
    instant = instant.replace(microsecond=0, tzinfo=UTC)
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    local = (instant + timedelta(minutes=minutes)).replace(tzinfo=None)
    found = parse_date(f"{local.isoformat()}{zone}")
    assert found is not None
    assert found == parse_date(instant.isoformat())
    again = parse_date(date_text(found.start))
    assert again is not None
    assert again.start == found.start


VALUES = {
    "a": "2021-02-28",
    "b": "2021-03-01",
    "c": "2021-03-12T10:00:00Z",
    "d": "20210312",
    "e": "2021-03-31T23:30:00-05:00",
    "f": "2021-04",
    "g": "unknown",
}


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"gte": "2021-03", "lte": "2021-03"}, "bcd"),
        ({"gt": "2021-03"}, "ef"),
        ({"lt": "2021-03"}, "a"),
        ({"gte": "2021-03-12", "lte": "2021-03-12"}, "cd"),
        ({"gt": "2021-03-12"}, "ef"),
        ({"gt": "2021-03-12T09:00"}, "cef"),
        ({"lte": "2021-03-12T10:00"}, "abcd"),
        ({"gte": "20210331", "lt": "2021-04-01T06:00Z"}, "ef"),
        ({"gte": "2021-04-01", "lt": "2021-03-01"}, ""),
        ({"gte": "unknown"}, "g"),
    ],
)
def test_bounds_of_a_filter_are_whole_periods(
    engine: SearchEngine, bounds: dict[str, str], expected: str
) -> None:
    records = [
        Record(id=name, image=name, split="train", metadata={"taken": value, "age": 3})
        for name, value in VALUES.items()
    ]
    put_vectors(engine, begin_generation(engine, "c", 4), records, unit_vectors(len(records), 4))
    condition = parse_filter({"field": "taken", **bounds})
    assert [hit.id for hit in engine.browse("c", SearchRequest(filter=condition)).hits] == [*expected]
    outside = parse_filter({"not": {"field": "taken", **bounds}})
    rest = [hit.id for hit in engine.browse("c", SearchRequest(filter=outside)).hits]
    assert rest == [name for name in VALUES if name not in expected]
    with pytest.raises(FilterError, match="holds number values"):
        engine.browse("c", SearchRequest(filter=parse_filter({"field": "age", "gte": "2021-03"})))
