"""Filters of as many conditions as are allowed: no more is read for them than the fields that they name."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import insert, text
from sqlalchemy.orm import Session

from index.catalogue.collections import TARGETS, Target
from index.catalogue.tables import AttributeRow, FieldRow, ImageRow, TextRow
from index.engine import SearchEngine
from index.filters.column_cache import CollectionState
from index.filters.columns import Endpoint, Interval, joined
from index.filters.grammar import MAX_CONDITIONS, conditions, parse_filter
from index.filters.passing import FieldColumns, passing_keys
from tests.index.samples import begin_generation

IMAGES = 1_000
KINDS = {"age": "number", "date": "text", "labels": "text"}
# What SQLite does for a row that it reads, and for one more that it looks at to find none.
STEPS = 60
LABELS = ("Edema", "Mass", "Normal")


def age(number: int) -> dict[str, Any]:
    return {"field": "age", "gte": -number, "lte": 1_000 + number}


def date(number: int) -> dict[str, Any]:
    return {"field": "date", "gte": "2000", "lt": f"3{number:03}"}


def labels(number: int) -> dict[str, Any]:
    return {"field": "labels", "any_of": [*LABELS, *(f"x{number}-{other}" for other in range(12))]}


def split(number: int) -> dict[str, Any]:
    return {"field": "split", "any_of": ["train", f"x{number}"]}


def every(make: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    return [make(number) for number in range(MAX_CONDITIONS)]


def mixed(number: int) -> dict[str, Any]:
    return (age, date, labels, split)[number % 4](number)


def nested(count: int = MAX_CONDITIONS, level: int = 0) -> dict[str, Any]:
    """As many conditions as are allowed, as deep as is allowed."""
    if level == 4:
        return {"and": [{"not": mixed(number)} for number in range(count)]}
    inner = nested(count - 1, level + 1)
    return {("and", "or")[level % 2]: [{"not": mixed(level)}, inner]}


HOSTILE = {
    "ranges": {"and": every(age)},
    "texts": {"and": every(date)},
    "lists": {"and": every(labels)},
    "alternatives": {"or": every(labels)},
    "built in": {"and": [{"not": condition} for condition in every(split)]},
    "fields": {"and": every(mixed)},
    "nested": nested(),
}


@pytest.fixture
def collection(engine: SearchEngine) -> int:
    """A collection of images with an age, a date, two labels and a text each."""
    key = begin_generation(engine, "c", 2).collection_id
    numbers = range(1, IMAGES + 1)
    with engine.home.catalogue.write() as session:
        session.execute(insert(ImageRow), [_image(key, number) for number in numbers])
        session.execute(insert(AttributeRow), [row for number in numbers for row in _attributes(key, number)])
        session.execute(
            insert(FieldRow),
            [{"collection_id": key, "name": name, "kind": kind} for name, kind in KINDS.items()],
        )
        session.execute(
            insert(TextRow), [{"image_id": number, "position": 0, "text": "seen"} for number in numbers]
        )
    return key


def _image(collection: int, number: int) -> dict[str, Any]:
    same = {"media_type": "image/png", "width": 1, "height": 1, "labels": [], "details": {}}
    own = {"id": number, "collection_id": collection, "external_id": f"i{number}", "sequence": 2}
    return same | own | {"sha256": f"{number:064}", "split": "train", "record_digest": ""}


def _attributes(collection: int, number: int) -> list[dict[str, Any]]:
    results = [
        ("age", 0, "number", None, float(number % 100)),
        ("date", 0, "text", f"20{number % 25:02}", None),
    ]
    results += [("labels", index, "text", LABELS[(number + index) % 3], None) for index in range(2)]
    names = ("name", "position", "kind", "text_value", "number_value")
    own = {"image_id": number, "collection_id": collection}
    return [own | dict(zip(names, values, strict=True)) for values in results]


def rows_read(session: Session, ask: Callable[[], object]) -> float:
    """Return about how many rows of tables and indexes the database reads meanwhile."""
    connection = session.connection()
    if connection.dialect.name == "sqlite":
        steps: list[int] = []
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_progress_handler(lambda: steps.append(1), STEPS)
        ask()
        driver.set_progress_handler(None, 0)
        return len(steps)
    # PostgreSQL reads all rows of tables this small, even with indexes.
    session.execute(text("SET LOCAL enable_seqscan = off"))
    count = text(
        "SELECT sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid)) "
        "FROM pg_class WHERE relname ~ '(images|attributes|texts)'"
    )
    before = session.execute(count).scalar_one()
    ask()
    return float(session.execute(count).scalar_one() - before)


@pytest.mark.parametrize("target", TARGETS)
def test_each_field_is_read_once(engine: SearchEngine, collection: int, target: Target) -> None:
    for name, value in HOSTILE.items():
        filter = parse_filter(value)
        assert sum(1 for _ in conditions(filter)) == MAX_CONDITIONS
        with engine.home.catalogue.read() as session:
            ask = partial(passing_keys, session, collection, filter, target)
            assert rows_read(session, ask) < 20 * IMAGES, name


@pytest.mark.parametrize("target", TARGETS)
def test_of_images_that_were_written_each_field_is_read_once(
    engine: SearchEngine, collection: int, target: Target
) -> None:
    for name, value in HOSTILE.items():
        filter, memory = parse_filter(value), FieldColumns()
        with engine.home.catalogue.reading() as reading:
            memory.passing(CollectionState(reading, collection, 1), filter, target)
            ask = partial(memory.passing, CollectionState(reading, collection, 2), filter, target)
            assert rows_read(reading.session, ask) < 40 * IMAGES, name
            assert ask().tolist() == passing_keys(reading.session, collection, filter, target).tolist()


def test_few_values_are_found_without_a_look_at_the_rest(engine: SearchEngine, collection: int) -> None:
    filter = parse_filter({"or": [{"field": "id", "eq": f"i{number}"} for number in range(70, 80)]})
    with engine.home.catalogue.write() as session:
        session.execute(text("ANALYZE"))
    with engine.home.catalogue.read() as session:
        assert len(passing_keys(session, collection, filter)) == 10
        assert rows_read(session, lambda: passing_keys(session, collection, filter)) < IMAGES / 4


def test_spans_that_touch_are_joined() -> None:
    five, behind = Endpoint(0, 5.0), Endpoint(0, 5.0, after=True)
    point, below, above = Interval(five, behind), Interval(Endpoint(-1), five), Interval(behind, Endpoint(1))
    between = Interval(Endpoint(0, 7.0), Endpoint(0, 9.0))
    assert joined([above, point]) == [Interval(point.low, above.high)]
    assert joined([above, below]) == [below, above]
    assert joined([between, above, point, below]) == [Interval(below.low, above.high)]
    assert joined([between, point]) == [point, between]
