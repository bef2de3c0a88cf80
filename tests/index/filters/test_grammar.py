"""Filters as they are written: their forms, mistakes and bounds, and dates as texts."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.engine import SearchEngine
from index.errors import FilterError
from index.filters import grammar
from index.filters.dates import date_text, parse_date
from index.filters.grammar import Equals, Range, check_filter, parse_filter
from index.search.request import SearchRequest
from tests.index.samples import put_records
from training.common.manifest import Record

FIELDS: dict[str, frozenset[grammar.FieldKind]] = {
    "id": frozenset({"text"}),
    "age": frozenset({"number"}),
    "view": frozenset({"text"}),
    "urgent": frozenset({"boolean"}),
    "size": frozenset({"number", "text"}),
}
EFUSION = {"finding": "efusion", "state": "absent"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"field": "view", "eq": "PA"}, Equals(field="view", eq="PA")),
        ({"field": "urgent", "eq": True}, Equals(field="urgent", eq=True)),
        ({"field": "labels", "any_of": ["Edema"]}, grammar.AnyOf(field="labels", any_of=("Edema",))),
        ({"field": "age", "gte": 40, "lt": 70}, Range(field="age", gte=40, lt=70)),
        ({"not": {"field": "age", "gt": 1.5}}, grammar.Not(filter=Range(field="age", gt=1.5))),
        (
            {"and": [{"field": "a", "eq": 1}, {"or": [{"field": "b", "lte": "x"}]}]},
            grammar.And(filters=(Equals(field="a", eq=1), grammar.Or(filters=(Range(field="b", lte="x"),)))),
        ),
    ],
)
def test_every_form_is_parsed_and_written_back(value: dict[str, Any], expected: object) -> None:
    parsed = parse_filter(value)
    assert parsed == expected
    assert json.loads(parsed.text) == value
    assert parse_filter(json.loads(parsed.text)) == parsed


def test_a_flag_is_known_before_any_image_has_it_and_false_where_one_lacks_it() -> None:
    flagged = Equals(field="image.blank", eq=True)
    for value in ({"field": "image.blank", "eq": False}, {"field": "image.blank", "any_of": [False]}):
        parsed = parse_filter({"and": [value]})
        assert parsed == grammar.And(filters=(grammar.Not(filter=flagged),))
        check_filter(parsed, FIELDS)
    either = parse_filter({"field": "image.blank", "any_of": [True, False]})
    assert either == grammar.Or(
        filters=(grammar.Not(filter=flagged), grammar.AnyOf(field="image.blank", any_of=(True,)))
    )
    # Others are false only where they say so.
    assert parse_filter({"field": "urgent", "eq": False}) == Equals(field="urgent", eq=False)
    with pytest.raises(FilterError, match="holds boolean values"):
        check_filter(parse_filter({"field": "image.blank", "eq": "yes"}), FIELDS)


def test_kinds_of_values_are_kept_apart() -> None:
    assert parse_filter({"field": "a", "eq": True}).text != parse_filter({"field": "a", "eq": 1}).text
    assert parse_filter({"field": "a", "eq": "1"}) != parse_filter({"field": "a", "eq": 1})


@pytest.mark.parametrize(
    ("value", "position", "message"),
    [
        ("PA", "", "a condition is an object"),
        ({}, "", "a condition is an object"),
        ({"field": "view"}, "", "a condition is an object"),
        ({"field": "view", "equals": "PA"}, "", "a condition is an object"),
        ({"eq": "PA"}, "field", "it is missing"),
        ({"field": "view", "eq": "PA", "gt": 3}, "gt", "a condition is an object"),
        ({"field": "view", "eq": None}, "eq", "a text, a number, true or false"),
        ({"field": "view", "eq": ["PA"]}, "eq", "a text, a number, true or false"),
        ({"field": "view", "any_of": []}, "any_of", "at any_of: the list must have at least 1 in it."),
        ({"field": "view", "any_of": "PA"}, "any_of", "at any_of: there must be a list."),
        ({"field": "view", "any_of": [1] * 1025}, "any_of", "1025 are too many; at most 1024 are allowed."),
        ({"field": 3, "eq": 1}, "field", "the name of a field is a text."),
        ({"field": "x" * 1001, "eq": 1}, "field", "it has more than 1000 characters."),
        ({"field": "a", "eq": 1, "x" * 5000: 1}, f"{'x' * 80}...", "it does not belong there"),
        ({"field": "view", "any_of": ["PA", None]}, "any_of[1]", "a text, a number, true or false"),
        ({"field": "age", "gte": True}, "gte", "a text, a number"),
        ({"field": "age", "gte": 1, "lt": "2"}, "", "all numbers or all texts"),
        ({"field": "age", "gte": None}, "", "a range needs"),
        ({"field": "age", "gte": float("nan")}, "gte", "finite"),
        ({"field": "age", "eq": 10**400}, "eq", "finite"),
        ({"field": "view", "eq": "a\x00b"}, "eq", "null characters"),
        ({"field": "view", "eq": "\ud800"}, "eq", "null characters"),
        ({"and": []}, "and", "at least 1"),
        ({"and": 1}, "and", "at and: there must be a list."),
        ({"and": [{"field": "a", "eq": 1}, {"not": {"field": "b"}}]}, "and[1].not", "a condition is"),
        (EFUSION, "finding", "there is no finding 'efusion'. Did you mean 'pleural effusion' or"),
        ({**EFUSION, "finding": "giraffe"}, "finding", "there is no finding 'giraffe'. Findings: as"),
        ({**EFUSION, "finding": 3}, "finding", "the name of a finding is a text"),
        ({"finding": "mass"}, "state", "it is missing"),
        ({"not": {"finding": "mass", "state": "there"}}, "not.state", "present, uncertain or absent"),
        ({"finding": "mass", "state": "absent", "field": "view"}, "field", "does not belong there"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(value: object, position: str, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(value)
    assert caught.value.field == position
    assert message in str(caught.value)


def test_depth_is_limited_before_anything_recurses() -> None:
    value: dict[str, Any] = {"field": "a", "eq": 1}
    for _ in range(7):
        value = {"and": [value]}
    parse_filter(value)
    for more in (1, 100_000):
        for _ in range(more):
            value = {"and": [value]}
        with pytest.raises(FilterError, match="nested too deeply; at most 8 levels are allowed"):
            parse_filter(value)


def test_size_is_limited() -> None:
    leaf = {"field": "a", "eq": 1}
    assert sum(1 for _ in grammar.conditions(parse_filter({"or": [leaf] * 256}))) == 256
    with pytest.raises(FilterError, match="257 conditions"):
        parse_filter({"or": [leaf] * 257})
    most = [{"field": "a", "any_of": list(range(1024))}] * 4
    parse_filter({"or": most})
    with pytest.raises(FilterError, match="5 conditions with 4097 values; at most 256 and 4096 are allowed"):
        parse_filter({"or": [*most, leaf]})


def test_filters_that_fit_the_fields() -> None:
    for value in (
        {"field": "age", "eq": 3},
        {"field": "age", "gte": 0.5},
        {"field": "view", "gte": "A", "lt": "Q"},
        {"field": "urgent", "eq": False},
        {"field": "size", "any_of": [3, "large"]},
        {"not": {"field": "id", "eq": "x"}},
    ):
        check_filter(parse_filter(value), FIELDS)


@pytest.mark.parametrize(
    ("value", "field", "message"),
    [
        ({"field": "veiw", "eq": "PA"}, "veiw", "Did you mean 'view'? Fields: age, id, size, urgent, view."),
        ({"not": {"field": "zzzzz", "eq": 1}}, "zzzzz", "There is no field 'zzzzz' to filter on. Fields:"),
        ({"field": "age", "eq": "40"}, "age", "holds number values, so it cannot be compared with the text"),
        ({"field": "view", "gte": 4}, "view", "cannot be compared with the number 4"),
        ({"field": "urgent", "eq": 1}, "urgent", "cannot be compared with the number 1"),
        ({"field": "age", "eq": True}, "age", "cannot be compared with the boolean true"),
        ({"field": "size", "any_of": [1, True]}, "size", "holds number and text values"),
        ({"or": [{"field": "age", "eq": 1}, {"field": "view", "eq": 2}]}, "view", "number 2"),
    ],
)
def test_filters_that_do_not_fit_the_fields(value: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        check_filter(parse_filter(value), FIELDS)
    assert caught.value.field == field
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        {"field": "a", "any_of": [{}] * 9_000},
        {"and": [{}] * 300_000},
        {"field": "a", "any_of": [{}] * 300_000},
    ],
)
def test_a_filter_full_of_mistakes_is_refused_at_once(value: dict[str, Any]) -> None:
    started = time.process_time()
    with pytest.raises(FilterError):
        parse_filter(value)
    assert time.process_time() - started < 0.3


def test_the_largest_filter_is_let_in() -> None:
    leaf: dict[str, Any] = {"field": "a", "any_of": list(range(16))}
    for _ in range(5):
        leaf = {"not": leaf}
    parse_filter({"and": [leaf] * 256})


def test_a_mistake_is_not_repeated_at_full_length() -> None:
    with pytest.raises(FilterError) as wrong_name:
        parse_filter({"field": "x" * 100_000, "eq": 1})
    long = parse_filter({"field": "age", "eq": "x" * 100_000})
    with pytest.raises(FilterError, match="the text 'xxx") as wrong_kind:
        check_filter(long, {"age": frozenset({"number"})})
    for error in (wrong_name.value, wrong_kind.value):
        assert len(str(error)) + len(error.field) < 500


def test_findings_are_named_by_any_of_their_forms() -> None:
    filter = parse_filter({"finding": " Effusions", "state": "absent"})
    assert filter == grammar.HasFinding(finding="pleural effusion", state="absent")
    assert filter.text == '{"finding":"pleural effusion","state":"absent"}'
    assert filter.values() == ["pleural effusion: absent"]
    check_filter(filter, {})


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
    date = parse_date(f"{local.isoformat()}{zone}")
    assert date is not None
    assert date == parse_date(instant.isoformat())
    again = parse_date(date_text(date.start))
    assert again is not None
    assert again.start == date.start


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
    put_records(engine, records, 4)
    condition = parse_filter({"field": "taken", **bounds})
    assert [hit.id for hit in engine.browse("c", SearchRequest(filter=condition)).hits] == [*expected]
    outside = parse_filter({"not": {"field": "taken", **bounds}})
    rest = [hit.id for hit in engine.browse("c", SearchRequest(filter=outside)).hits]
    assert rest == [name for name in VALUES if name not in expected]
    with pytest.raises(FilterError, match="holds number values"):
        engine.browse("c", SearchRequest(filter=parse_filter({"field": "age", "gte": "2021-03"})))
