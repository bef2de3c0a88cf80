"""What passes a filter, remembered while the collection is written to, against the same read again."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from index.catalogue import Reading
from index.catalogue.collections import TARGETS, Target, require_collection
from index.catalogue.tables import ImageRow, TextRow
from index.engine import SearchEngine
from index.errors import FilterError
from index.filters.column_cache import CacheKey, CollectionState
from index.filters.columns import Column, Columns
from index.filters.grammar import Equals, Filter, parse_filter
from index.filters.passing import FieldColumns
from index.vectors.cache import IncrementalCache
from index.vectors.protocol import Keys
from index.writes.deletion import delete_images
from index.writes.images import ImageWrite, PictureWrite, write_images
from tests.index.filters.test_passing import passes
from tests.index.homes import in_read, in_write
from tests.index.meanwhile import note_calls, plans_of, statements
from tests.index.samples import begin_generation
from training.common.manifest import MetadataValue, Record

FILTERS = (
    {"field": "age", "gte": 40},
    {"field": "view", "eq": "PA"},
    {"not": {"field": "view", "any_of": ["PA", "AP"]}},
    {"and": [{"field": "labels", "eq": "Edema"}, {"not": {"field": "age", "lt": 30}}]},
    {"finding": "effusion", "state": "present"},
    {"not": {"finding": "effusion", "state": "absent"}},
    {"or": [{"field": "split", "eq": "test"}, {"field": "group", "eq": "g1"}, {"field": "id", "eq": "i3"}]},
)
DATED = {"field": "taken", "gte": "2021-03", "lte": "2021-03-12"}


class Collection:
    """A collection to write to, and what is remembered of it."""

    def __init__(self, engine: SearchEngine, max_bytes: int = 0, name: str = "c") -> None:
        self.memory = FieldColumns(max_bytes)
        self.engine, self.name = engine, name
        self.records: dict[str, Record] = {}
        self.generation = begin_generation(engine, name, 2)
        self.id = self.generation.collection_id

    def put(self, *records: Record) -> None:
        picture = PictureWrite("0" * 64, "image/png", 1, 1, b"\0\0\0\0")
        with self.engine.home.catalogue.write() as session:
            writes = [ImageWrite(record, picture) for record in records]
            write_images(session, self.generation, writes)
        self.records |= {record.id: record for record in records}

    def delete(self, *ids: str) -> None:
        in_write(self.engine, delete_images, self.name, ids)
        for each in ids:
            self.records.pop(each, None)

    def sequence(self) -> int:
        return in_read(self.engine, require_collection, self.name).sequence

    def reading(self) -> Reading:
        return self.engine.home.catalogue.reading()

    def warm(self) -> None:
        with self.reading() as reading:
            self.memory.warm(CollectionState(reading, self.id, self.sequence()))

    def get(self, filter: Filter, target: Target = "images", sequence: int | None = None) -> Keys:
        expected = self.sequence() if sequence is None else sequence
        with self.engine.home.catalogue.reading() as reading:
            return self.memory.passing(CollectionState(reading, self.id, expected), filter, target)

    def expected(self, filter: Filter, target: Target = "images") -> list[int]:
        """What passes, one image at a time in Python."""
        key = ImageRow.id if target == "images" else TextRow.id
        query = select(key, ImageRow.external_id).where(ImageRow.collection_id == self.id).order_by(key)
        if target == "texts":
            query = query.join(TextRow, TextRow.image_id == ImageRow.id)
        with self.engine.home.catalogue.read() as session:
            rows = session.execute(query).all()
        return [key for key, name in rows if passes(self.records[name], filter)]

    def check(self, filter: Filter, target: Target = "images") -> int:
        """Make sure that the right ones pass; return how many do."""
        keys = self.get(filter, target).tolist()
        assert keys == self.expected(filter, target)
        return len(keys)


@pytest.fixture
def in_memory(engine: SearchEngine) -> Collection:
    """One whose fields are in memory, but for ids."""
    return Collection(engine, 10_000_000)


@pytest.fixture(params=[0, 10_000_000], ids=["by database", "in memory"])
def either(engine: SearchEngine, request: pytest.FixtureRequest) -> Collection:
    return Collection(engine, request.param)


@pytest.fixture
def read_anew(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of values that any cache has read again."""
    seen: list[str] = []
    get = IncrementalCache.get

    def noted(
        self: IncrementalCache[CacheKey, Any],
        path: CacheKey,
        sequence: int,
        read: Callable[[], Any],
        catch_up: Any = None,
    ) -> Any:
        def again() -> Any:
            if isinstance(path, CacheKey):
                seen.append(path.name)
            return read()

        return get(self, path, sequence, again, catch_up)

    monkeypatch.setattr(IncrementalCache, "get", noted)
    return seen


def drawn(random: random.Random, number: int) -> Record:
    return Record(
        id=f"i{number}",
        image="x.png",
        split=random.choice(["train", "val", "test"]),
        texts=tuple(
            random.choice(["A dog", "No effusion.", "Effusion. No mass."]) for _ in range(random.randrange(3))
        ),
        group=random.choice([None, "g1", "g2"]),
        labels=tuple(random.sample(["Edema", "Mass"], random.randrange(3))),
        metadata={"age": random.choice([20, 30, 40, 50])}
        | random.choice([{}, {"taken": random.choice(["2021-03-12T10:00", "20210313", "2021-02", "soon"])}])
        | random.choice([{}, {"view": "PA"}, {"view": ("AP", "PA")}, {"view": "LL"}]),
    )


def change_some(collection: Collection, source: random.Random, among: int) -> None:
    """Write or remove up to three images."""
    numbers = source.sample(range(among), source.randrange(1, 4))
    if source.random() < 0.3:
        collection.delete(*(f"i{number}" for number in numbers))
    else:
        collection.put(*(drawn(source, number) for number in numbers))


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [64, 0], ids=["in a mask", "by search"])
def test_it_keeps_up_with_writes_and_removals(
    either: Collection, monkeypatch: pytest.MonkeyPatch, sparse: int
) -> None:
    monkeypatch.setattr("index.filters.passing._SPARSE", sparse)
    filters = [parse_filter(value) for value in (*FILTERS, DATED)]
    source = random.Random(0)
    either.put(*(drawn(source, number) for number in range(12)))
    sizes = set()
    for _ in range(90):
        for _ in range(source.randrange(1, 4)):
            change_some(either, source, 16)
        # Some are asked for after every round, some after several.
        for filter in source.sample(filters, 3):
            sizes |= {either.check(filter, target) for target in TARGETS}
    assert {0, 1, 2, 3, 4, 5} <= sizes


def test_the_array_is_the_same_as_long_as_the_same_images_pass(either: Collection) -> None:
    either.put(Record(id="old", image="x", split="val", metadata={"age": 70}))
    either.put(Record(id="young", image="x", split="val", metadata={"age": 30}))
    condition = parse_filter({"field": "age", "gte": 40})
    keys = either.get(condition)
    either.put(Record(id="young", image="x", split="val", metadata={"age": 31}))
    either.put(Record(id="old", image="x", split="val", metadata={"age": 71}))
    either.put(Record(id="new", image="x", split="val", metadata={"age": 2}))
    either.delete("new")
    assert either.get(condition) is keys
    either.put(Record(id="old", image="x", split="val", metadata={"age": 12}))
    assert either.get(condition).tolist() == []
    assert len(keys) == 1


def test_where_much_was_written_all_is_read_anew(
    in_memory: Collection, monkeypatch: pytest.MonkeyPatch, read_anew: list[str]
) -> None:
    monkeypatch.setattr("index.filters.column_cache._MIN_REFRESH_LIMIT", 3)
    source = random.Random(1)
    condition = parse_filter({"field": "age", "gte": 40})
    in_memory.put(*(drawn(source, number) for number in range(8)))
    in_memory.get(condition)
    for count, read in ((3, 1), (4, 2)):
        in_memory.put(*(drawn(source, number) for number in range(count)))
        in_memory.check(condition)
        assert read_anew.count("number age") == read
    in_memory.delete("i0", "i1", "i2", "i3")
    in_memory.check(condition)
    assert read_anew.count("number age") == 3


@pytest.mark.parametrize("target", TARGETS)
def test_values_of_a_field_that_does_not_fit_keep_up_as_well(
    in_memory: Collection, read_anew: list[str], target: Target
) -> None:
    """Ids are never whole in memory: those that a filter asks for are read once, then what was written."""
    source = random.Random(5)
    in_memory.put(*(drawn(source, number) for number in range(20)))
    among = parse_filter({"and": [{"field": "id", "gte": "i1", "lt": "i5"}, {"field": "age", "gte": 30}]})
    others = parse_filter({"not": {"field": "id", "any_of": ["i3", "i7", "gone"]}})
    twice = parse_filter({"and": [{"field": "id", "gte": "i2"}, {"not": {"field": "id", "eq": "i3"}}]})
    for step in range(20):
        for filter in (among, others, twice):
            in_memory.check(filter, target)
        in_memory.put(drawn(source, source.randrange(20)), drawn(source, 20 + step))
        in_memory.delete(f"i{source.randrange(40)}")
    ids = [name for name in read_anew if name.startswith("text id")]
    assert len(ids) == len(set(ids)) == 3


def test_an_older_state_is_read_anew(either: Collection) -> None:
    condition = parse_filter({"field": "age", "gte": 40})
    either.put(Record(id="a", image="x", split="val", metadata={"age": 50}))
    before = either.sequence()
    either.put(Record(id="b", image="x", split="val", metadata={"age": 50}))
    assert len(either.get(condition)) == 2
    either.delete("a")
    assert len(either.get(condition, sequence=before)) == 1
    either.delete("b")
    assert len(either.get(condition)) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_written_is_found_without_a_look_at_the_rest(sqlite: SearchEngine, target: Target) -> None:
    """The plan of SQLite names an index for every table, and none of those of values."""
    collection = Collection(sqlite, 10_000_000)
    source = random.Random(2)
    collection.put(*(drawn(source, number) for number in range(20)))
    filters = [parse_filter(value) for value in FILTERS]
    for filter in filters:
        collection.get(filter, target)
    collection.put(drawn(source, 5))
    sequence = collection.sequence()
    with collection.reading() as reading, statements(reading.session.connection()) as sent:
        for filter in filters:
            collection.memory.passing(CollectionState(reading, collection.id, sequence), filter, target)
        plans = [" ".join(steps) for steps in plans_of(reading.session, sent)]
    assert len(plans) > 10
    for plan in plans:
        assert "SCAN" not in plan
        assert "ix_attributes" not in plan
        indexes = ("ix_images_sequence", "removals", "collections USING INTEGER", "fields USING")
        assert any(name in plan for name in indexes), plan
    assert any("attributes" in plan for plan in plans)


def test_the_memory_of_what_passed_is_bounded_however_long_the_filters_are(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.filters.passing._KEYS_BYTES", 100_000)
    collection = Collection(engine, 10_000_000)
    collection.put(Record(id="a", image="a", split="val", metadata={"view": "PA"}))
    with engine.home.catalogue.reading() as reading:
        for number in range(20):
            filter = Equals(field="view", eq=f"{number}-" + "x" * 30_000)
            collection.memory.passing(CollectionState(reading, collection.id, 1), filter, "images")
    assert len(collection.memory._passing._entries) == 3


def test_fields_in_memory_keep_up_with_writes_and_removals(
    in_memory: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each field is read whole once, though filters come that were never asked before."""
    read = note_calls(
        monkeypatch, Columns, "column", lambda columns, field, *_: field if columns.since is None else None
    )
    source = random.Random(3)
    in_memory.put(*(drawn(source, number) for number in range(40)))
    sizes = set()
    for step in range(60):
        change_some(in_memory, source, 50)
        filters = [parse_filter(value) for value in source.sample([*FILTERS[:4], DATED], 2)]
        filters.append(parse_filter({"field": "age", "gte": 20 + step / 4, "lt": 40 + step / 4}))
        for filter in filters:
            sizes |= {in_memory.check(filter, target) for target in TARGETS}
    assert len(sizes) > 20
    assert sorted(field for field in read if field) == ["age", "labels", "taken", "view"]


@pytest.mark.parametrize("sparse", [64, 0])
def test_fields_that_do_not_fit_are_read_in_part(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch, sparse: int
) -> None:
    monkeypatch.setattr("index.filters.passing._MAX_TEXTS", 1)
    monkeypatch.setattr("index.filters.passing._SPARSE", sparse)
    collection = Collection(engine, 32 * 10)
    source = random.Random(4)
    collection.put(*(drawn(source, number) for number in range(8)))
    few, texts = parse_filter({"field": "age", "gte": 40}), parse_filter({"field": "labels", "eq": "Edema"})
    many = parse_filter({"not": {"field": "age", "gte": 30}})
    for filter in (few, texts):
        collection.check(filter)
    collection.put(*(drawn(source, number) for number in range(8, 20)))
    for filter in (few, many, texts):
        collection.check(filter)


def test_threads_look_once_whether_a_field_fits(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = Collection(engine, 32 * 10)
    source = random.Random(6)
    collection.put(*(drawn(source, number) for number in range(40)))

    def slow(_: Columns, field: str, *__: object) -> str:
        time.sleep(0.1)
        return field

    looks = note_calls(monkeypatch, Columns, "column", slow)
    sequence = collection.sequence()

    def ask(_: int) -> Column | None:
        with collection.reading() as reading:
            return collection.memory.column(
                CollectionState(reading, collection.id, sequence), "age", "number"
            )

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(ask, range(6))) == [None] * 6
    assert looks == ["age"]


def test_a_filter_is_checked_before_it_is_evaluated(either: Collection) -> None:
    metadata: dict[str, MetadataValue] = {
        "age": 3,
        "taken": "2021:03:12 10:15:00",
        "size": "12 mm",
        "day": ("x", "y"),
    }
    either.put(Record(id="a", image="a", split="val", metadata=metadata))
    for value in ({"field": "agee", "gte": 1}, {"field": "age", "eq": "old"}):
        with pytest.raises(FilterError):
            either.get(parse_filter(value))
    undated: tuple[dict[str, Any], ...] = (
        {"field": "taken", "gte": "2021-07", "lt": "2023"},
        {"not": {"field": "size", "lte": "2021-03-12T10:00Z"}},
        {"or": [{"field": "age", "eq": 3}, {"field": "day", "gt": "20210312"}]},
    )
    for value in undated:
        with pytest.raises(
            FilterError, match=r"^No value of field '\w+' is a date, so it cannot be compared"
        ):
            either.get(parse_filter(value))
    either.put(Record(id="c", image="c", split="val", metadata={"shot": "2021-07-01"}))
    for bounds in ({"gte": "2021:07"}, {"lt": "12.03.2021"}, {"gte": "2021-01", "lte": "2021-13-01"}):
        with pytest.raises(FilterError, match="cannot be compared with the dates of field 'shot'"):
            either.get(parse_filter({"field": "shot", **bounds}))
        assert len(either.get(parse_filter({"field": "size", "gte": "2021:07"}))) == 0
    assert len(either.get(parse_filter({"field": "shot", "gte": "2021"}))) == 1
    # Ids, splits and groups are texts always, and one date is enough.
    assert either.get(parse_filter({"field": "split", "gte": "2021-03"})).tolist() == [1, 2]
    either.put(Record(id="b", image="b", split="val", metadata={**metadata, "taken": "2022-03"}))
    assert len(either.get(parse_filter({"field": "taken", "gte": "2021-07"}))) == 1


def test_fields_that_were_warmed_are_searched_without_the_database(in_memory: Collection) -> None:
    source = random.Random(5)
    in_memory.put(*(drawn(source, number) for number in range(20)))
    in_memory.warm()
    filters = [parse_filter(value) for value in FILTERS[:4]]
    expected = [in_memory.expected(filter) for filter in filters]
    sequence = in_memory.sequence()
    with in_memory.reading() as reading:
        results = [
            in_memory.memory.passing(CollectionState(reading, in_memory.id, sequence), filter, "images")
            for filter in filters
        ]
        assert not reading.opened
    assert [keys.tolist() for keys in results] == expected
