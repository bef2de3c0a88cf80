"""Filters over columns against the same filters evaluated one image at a time in Python."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from index.catalogue.tables import ImageRow
from index.engine import SearchEngine
from index.errors import FilterError
from index.filters import grammar
from index.filters.column_cache import CollectionState
from index.filters.columns import known_fields
from index.filters.dates import parse_date
from index.filters.grammar import Filter, kind_of, parse_filter
from index.filters.passing import FieldColumns, passing_keys
from index.writes.images import ImageWrite, PictureWrite, write_images
from tests.index.samples import begin_generation
from training.clinical.findings import STATES, State
from training.common.manifest import MetadataValue, Record

TEXTS = ["", "PA", "AP", "pa", "Ärzte", "A", "Z", "ſ", "😀", "￿", "日本", "a'b", 'a"b', "%", "1", "true"]
NUMBERS = [-1, 0, 1, 2, 40, 40.5, 1e300, -0.0, 0.1, 2**53, 2**53 + 1]
DATES = [
    "2021-03-12",
    "20210312",
    "2021-03",
    "2021-03-11T23:30:00-01:00",
    "2021-03-12 10:00",
    "2021-03-12T12:00+02:00",
    "2021-04-01",
    "0001-01-01",
    "2021-02-30",
]
SCALARS = st.one_of(st.sampled_from(DATES), st.sampled_from(TEXTS), st.sampled_from(NUMBERS), st.booleans())
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3).map(tuple))
# Texts, with what they say of findings.
SAYING: dict[str | None, dict[str, State]] = {
    None: {},
    "No effusion.": {"pleural effusion": "absent"},
    "Effusion. No mass.": {"pleural effusion": "present", "mass": "absent"},
    "Possible effusion, possible mass": {"pleural effusion": "uncertain", "mass": "uncertain"},
    "A dog": {},
}
NAMES = ["age", "view", "日付", "with space", "quo'te"]


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    count = draw(st.integers(1, 6))
    return [
        Record(
            id=f"i{number}",
            image=f"{number}.png",
            split=draw(st.sampled_from(["train", "val", "test"])),
            group=draw(st.one_of(st.none(), st.sampled_from(["g1", "g2"]))),
            labels=tuple(draw(st.lists(st.sampled_from(["Edema", "Mass", "Ödem"]), max_size=3))),
            report=draw(st.sampled_from([*SAYING])),
            texts=tuple(draw(st.lists(st.sampled_from([text for text in SAYING if text]), max_size=2))),
            metadata=draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4)),
        )
        for number in range(count)
    ]


def conditions_on(name: str) -> st.SearchStrategy[dict[str, Any]]:
    texts = st.sampled_from([*TEXTS, "train", "g1", "Edema", "i0"])
    signs = st.sampled_from(["gt", "gte", "lt", "lte"])
    bounds = st.one_of(
        [
            st.dictionaries(signs, bound, min_size=1, max_size=2)
            for bound in (st.sampled_from(NUMBERS), texts, st.sampled_from(DATES))
        ]
    )
    values = st.one_of(SCALARS, texts)
    return st.one_of(
        values.map(lambda value: {"field": name, "eq": value}),
        st.lists(values, min_size=1, max_size=4).map(lambda items: {"field": name, "any_of": items}),
        bounds.map(lambda items: {"field": name, **items}),
    )


ON_FINDINGS = st.fixed_dictionaries(
    {"finding": st.sampled_from(["mass", "effusion", "pleural effusion"]), "state": st.sampled_from(STATES)}
)
FILTERS = st.recursive(
    st.sampled_from([*NAMES, "id", "split", "group", "labels"]).flatmap(conditions_on) | ON_FINDINGS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda items: {"and": items}),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: {"or": items}),
        inner.map(lambda item: {"not": item}),
    ),
    max_leaves=6,
)


def passes(record: Record, filter: Filter) -> bool:
    """The meaning of a filter, in Python."""
    if isinstance(filter, grammar.And):
        return all(passes(record, part) for part in filter.filters)
    if isinstance(filter, grammar.Or):
        return any(passes(record, part) for part in filter.filters)
    if isinstance(filter, grammar.Not):
        return not passes(record, filter.filter)
    if isinstance(filter, grammar.HasFinding):
        messages = {SAYING[text].get(filter.finding) for text in (record.report, *record.texts)}
        return filter.state == next((state for state in STATES if state in messages), None)
    return any(_holds(value, filter) for value in _values(record, filter.field))


def _values(record: Record, field: str) -> tuple[Any, ...]:
    built_in = {"id": record.id, "split": record.split, "group": record.group, "labels": record.labels}
    value = {**record.metadata, **built_in}.get(field)
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def _holds(value: Any, condition: grammar.Equals | grammar.AnyOf | grammar.Range) -> bool:
    if isinstance(condition, grammar.Range) and condition.is_dated:
        return isinstance(value, str) and all(_on_side(value, *bound) for bound in condition.bounds())
    if isinstance(condition, grammar.Range):
        signs = {"gt": "__gt__", "gte": "__ge__", "lt": "__lt__", "lte": "__le__"}
        return all(
            kind_of(value) == kind_of(bound) and getattr(_number(value), signs[sign])(_number(bound))
            for sign, bound in condition.bounds()
        )
    expected = (condition.eq,) if isinstance(condition, grammar.Equals) else condition.any_of
    return any(kind_of(value) == kind_of(other) and _number(value) == _number(other) for other in expected)


def _on_side(value: str, sign: str, bound: Any) -> bool:
    """Whether a date is on its side of a bound: a value begins where it does, a bound is a whole period."""
    period, (start, end) = parse_date(value), parse_date(bound) or (math.nan, math.nan)
    if period is None:
        return False
    last = end - 1e-6 if end > start else end
    return {
        "gte": period.start >= start,
        "gt": period.start > last,
        "lt": period.start < start,
        "lte": period.start <= last,
    }[sign]


def _has_dates(records: list[Record], field: str) -> bool:
    """Whether a field has a date, or no text at all."""
    texts = [value for record in records for value in _values(record, field) if isinstance(value, str)]
    return not texts or any(parse_date(text) is not None for text in texts)


def _number(value: Any) -> Any:
    """Numbers compare as float64, as they are stored."""
    return value if isinstance(value, str) else float(value)


@pytest.mark.parametrize("in_memory", [False, True], ids=["nothing in memory", "in memory"])
def test_columns_and_python_agree(engine: SearchEngine, *, in_memory: bool) -> None:
    memory = FieldColumns(1_000_000)
    seen = {"passing": 0, "failing": 0, "refused": 0}
    counter = iter(range(10_000))

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(records=records(), values=st.lists(FILTERS, min_size=12, max_size=12))
    def check(records: list[Record], values: list[dict[str, Any]]) -> None:
        number = next(counter)
        collection_id = _put(engine, f"collection-{number}", records)
        with engine.home.catalogue.reading() as reading:
            session, state = reading.session, CollectionState(reading, collection_id, number)
            ask = (
                partial(memory.passing, state, target="images")
                if in_memory
                else partial(passing_keys, session, collection_id)
            )
            fields = known_fields(session, collection_id)
            for value in values:
                parsed = parse_filter(value)
                try:
                    grammar.check_filter(parsed, fields)
                    grammar.check_dates(parsed, partial(_has_dates, records))
                except FilterError:
                    seen["refused"] += 1
                    with pytest.raises(FilterError):
                        ask(parsed)
                    continue
                keys = ask(parsed)
                names = select(ImageRow.external_id).where(ImageRow.id.in_(keys.tolist()))
                result = set(session.execute(names).scalars())
                assert result == {record.id for record in records if passes(record, parsed)}, value
                assert (np.diff(keys) > 0).all()
                seen["passing"] += len(result)
                seen["failing"] += len(records) - len(result)

    check()
    assert min(seen.values()) > 50, seen


def test_filters_and_fields_are_those_of_their_collection(engine: SearchEngine) -> None:
    metadata: tuple[MetadataValue, ...] = ("PA", "PA", (1, True))
    records = [Record(id="a", image="a.png", split="train", metadata={"view": view}) for view in metadata]
    first, second, third = (_put(engine, f"c{index}", [record]) for index, record in enumerate(records))
    with engine.home.catalogue.read() as session:
        condition = parse_filter({"not": {"field": "view", "eq": "AP"}})
        assert [len(passing_keys(session, key, condition)) for key in (first, second)] == [1, 1]
        assert known_fields(session, first)["view"] == known_fields(session, first)["labels"] == {"text"}
        assert known_fields(session, third)["view"] == {"number", "boolean"}


def _put(engine: SearchEngine, collection: str, records: list[Record]) -> int:
    generation = begin_generation(engine, collection, 2)
    picture = PictureWrite("0" * 64, "image/png", 1, 1, b"\0\0\0\0")
    with engine.home.catalogue.write() as session:
        write_images(session, generation, [ImageWrite(r, picture) for r in records])
    return generation.collection_id
