"""Events of more images than one record names: none is lost, in memory that has a bound."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.audit.chain import Trail
from index.audit.event import MAX_OBJECTS, Event, in_parts
from index.audit.listing import Selection, read_events
from index.audit.verify import prune_trail
from index.catalogue import Catalogue, open_catalogue
from tests.index.audit.trails import KEY, READER, verify


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    opened = open_catalogue(f"sqlite:///{tmp_path / 'catalogue.db'}")
    yield opened
    opened.close()


def _event(count: int) -> Event:
    return Event(
        action="search",
        actor=READER,
        collection="ward",
        objects=[f"image-{number}" for number in range(count)],
        query={"text": ["a"], "filter_ids": ["held"]},
        details={"searches": 7},
        time="2026-01-02T00:00:00.000000+00:00",
    )


@given(st.integers(0, 3 * MAX_OBJECTS + 1))
def test_parts_name_every_image_once_and_in_order(count: int) -> None:
    event = _event(count)
    parts = list(in_parts(event, iter(event.objects)))
    assert [name for part in parts for name in part.objects] == event.objects
    assert all(len(part.objects) <= MAX_OBJECTS for part in parts)
    assert len(parts) == max(1, -(-count // MAX_OBJECTS))
    assert [part.query for part in parts] == [event.query, *[None] * (len(parts) - 1)]
    if len(parts) == 1:
        assert parts == [replace(event, objects=tuple(event.objects))]
    else:
        assert [part.details["part"] for part in parts] == list(range(1, len(parts) + 1))
        assert [part.details.get("parts") for part in parts] == [*[None] * (len(parts) - 1), len(parts)]
        assert len({part.details["series"] for part in parts}) == 1
        assert {part.details["searches"] for part in parts} == {7}


def test_parts_are_made_as_they_are_read() -> None:
    read = 0

    def names() -> Iterator[str]:
        nonlocal read
        for number in range(1_000_000):
            read += 1
            yield str(number)

    parts = in_parts(_event(0), names())
    for _ in range(3):
        next(parts)
    assert read <= 5 * MAX_OBJECTS


def test_all_images_of_a_large_event_are_in_the_trail(catalogue: Catalogue) -> None:
    event = _event(2 * MAX_OBJECTS + 5)
    Trail(catalogue, KEY).append([event, _event(1)])
    assert verify(catalogue).events == 4
    with catalogue.read() as session:
        entries = read_events(session, Selection(), limit=10)
    assert [name for entry in entries[:3] for name in entry.ids] == event.objects
    assert [entry.record["object_count"] for entry in entries] == [MAX_OBJECTS, MAX_OBJECTS, 5, 1]


def test_ids_in_filters_stay_as_long_as_an_event_names_them(catalogue: Catalogue) -> None:
    trail = Trail(catalogue, KEY)
    trail.append([replace(_event(0), time="2026-01-01T00:00:00.000000+00:00"), _event(1)])
    assert prune_trail(trail, "2026-01-02", Event(action="prune", actor=READER)).events == 1
    with catalogue.read() as session:
        names = session.connection().exec_driver_sql("SELECT name FROM audit_names").scalars().all()
    assert set(names) == {"held", "image-0"}
