"""What passes a filter, remembered while the collection is written to, against the same read anew."""

import random
from pathlib import Path

import pytest
from sqlalchemy import event

from index.catalogue.collections import TARGETS, Target, require_collection
from index.engine import SearchEngine
from index.filters import sql as filter_query
from index.filters.column_cache import Place
from index.filters.grammar import Equals, Filter, parse_filter
from index.filters.sql import PassingKeys, change_since, passing_keys
from index.vectors.protocol import Keys
from index.writes.deletion import delete_images
from index.writes.images import ImageWrite, PictureWrite, write_images
from index.writes.intake import record_digest
from tests.index.conftest import open_home
from tests.index.samples import begin_generation
from training.data.manifest import Record

FILTERS = (
    {"field": "age", "gte": 40},
    {"field": "view", "eq": "PA"},
    {"not": {"field": "view", "any_of": ["PA", "AP"]}},
    {"and": [{"field": "labels", "eq": "Edema"}, {"not": {"field": "age", "lt": 30}}]},
    {"or": [{"field": "split", "eq": "test"}, {"field": "group", "eq": "g1"}, {"field": "id", "eq": "i3"}]},
)


class Collection:
    """A collection to write to, and what is remembered of it."""

    def __init__(self, engine: SearchEngine) -> None:
        self.memory = PassingKeys()
        self._engine = engine
        self._generation = begin_generation(engine, "c", 2)
        self.id = self._generation.collection_id

    def put(self, *records: Record) -> None:
        picture = PictureWrite("0" * 64, "image/png", 1, 1, b"\0\0\0\0")
        with self._engine.home.catalogue.write() as session:
            writes = [ImageWrite(record, record_digest(record), picture) for record in records]
            write_images(session, self._generation, writes)

    def delete(self, *ids: str) -> None:
        with self._engine.home.catalogue.write() as session:
            delete_images(session, "c", ids)

    def sequence(self) -> int:
        with self._engine.home.catalogue.read() as session:
            return require_collection(session, "c").sequence

    def get(self, filter: Filter, target: Target = "images", sequence: int | None = None) -> Keys:
        wanted = self.sequence() if sequence is None else sequence
        with self._engine.home.catalogue.reading() as reading:
            return self.memory.get(reading, Place(self.id, target, filter.text), wanted, filter)

    def anew(self, filter: Filter, target: Target = "images") -> Keys:
        with self._engine.home.catalogue.read() as session:
            return passing_keys(session, self.id, filter, target)


@pytest.fixture
def collection(engine: SearchEngine) -> Collection:
    return Collection(engine)


@pytest.fixture(params=[8, 0], ids=["by condition", "by field"])
def separate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of how many conditions each is read by itself."""
    monkeypatch.setattr("index.filters.sql._SEPARATE", request.param)


@pytest.fixture
def read_anew(monkeypatch: pytest.MonkeyPatch) -> list[Filter]:
    """Every filter whose keys were all read, by the memory."""
    seen: list[Filter] = []
    read = filter_query.passing_keys

    def noted(session: object, collection_id: int, filter: Filter, target: Target) -> Keys:
        seen.append(filter)
        return read(session, collection_id, filter, target)  # type: ignore[arg-type]

    monkeypatch.setattr("index.filters.sql.passing_keys", noted)
    return seen


def drawn(random: random.Random, number: int) -> Record:
    return Record(
        id=f"i{number}",
        image="x.png",
        split=random.choice(["train", "val", "test"]),
        texts=tuple(f"text {random.randrange(3)}" for _ in range(random.randrange(3))),
        group=random.choice([None, "g1", "g2"]),
        labels=tuple(random.sample(["Edema", "Mass"], random.randrange(3))),
        metadata={"age": random.choice([20, 30, 40, 50])}
        | random.choice([{}, {"view": "PA"}, {"view": ("AP", "PA")}, {"view": "LL"}]),
    )


def test_what_passed_is_remembered_until_something_is_written(collection: Collection) -> None:
    collection.put(Record(id="a", image="a", split="val", metadata={"age": 3}))
    condition = parse_filter({"field": "age", "gte": 1})
    before = collection.sequence()
    assert len(collection.get(condition)) == 1
    collection.put(Record(id="b", image="b", split="val", metadata={"age": 4}))
    assert len(collection.get(condition, sequence=before)) == 1
    assert len(collection.get(condition)) == 2


@pytest.mark.usefixtures("separate")
def test_it_keeps_up_with_writes_and_removals(collection: Collection, read_anew: list[Filter]) -> None:
    filters = [parse_filter(value) for value in FILTERS]
    source = random.Random(0)
    collection.put(*(drawn(source, number) for number in range(12)))
    sizes = set()
    for _ in range(60):
        for _ in range(source.randrange(1, 4)):
            numbers = source.sample(range(16), source.randrange(1, 4))
            if source.random() < 0.3:
                collection.delete(*(f"i{number}" for number in numbers))
            else:
                collection.put(*(drawn(source, number) for number in numbers))
        # Some are asked for after every round, some after several.
        for filter in source.sample(filters, 3):
            for target in TARGETS:
                keys = collection.get(filter, target)
                assert keys.tolist() == collection.anew(filter, target).tolist()
                sizes.add(len(keys))
    assert {0, 1, 2, 3, 4, 5} <= sizes
    assert len(read_anew) == len(filters) * len(TARGETS)


def test_the_array_is_the_same_as_long_as_the_same_images_pass(collection: Collection) -> None:
    collection.put(Record(id="old", image="x", split="val", metadata={"age": 70}))
    collection.put(Record(id="young", image="x", split="val", metadata={"age": 30}))
    condition = parse_filter({"field": "age", "gte": 40})
    keys = collection.get(condition)
    collection.put(Record(id="young", image="x", split="val", metadata={"age": 31}))
    collection.put(Record(id="old", image="x", split="val", metadata={"age": 71}))
    collection.put(Record(id="new", image="x", split="val", metadata={"age": 2}))
    collection.delete("new")
    assert collection.get(condition) is keys
    collection.put(Record(id="old", image="x", split="val", metadata={"age": 12}))
    assert collection.get(condition).tolist() == []
    assert len(keys) == 1


def test_where_much_was_written_all_is_read_anew(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, read_anew: list[Filter]
) -> None:
    monkeypatch.setattr("index.filters.column_cache._FEW", 3)
    source = random.Random(1)
    condition = parse_filter({"field": "age", "gte": 40})
    collection.put(*(drawn(source, number) for number in range(8)))
    collection.get(condition)
    for count, read in ((3, 1), (4, 2)):
        collection.put(*(drawn(source, number) for number in range(count)))
        assert collection.get(condition).tolist() == collection.anew(condition).tolist()
        assert len(read_anew) == read
    collection.delete("i0", "i1", "i2", "i3")
    assert collection.get(condition).tolist() == collection.anew(condition).tolist()
    assert len(read_anew) == 3


def test_an_older_state_is_read_anew(collection: Collection) -> None:
    condition = parse_filter({"field": "age", "gte": 40})
    collection.put(Record(id="a", image="x", split="val", metadata={"age": 50}))
    before = collection.sequence()
    collection.put(Record(id="b", image="x", split="val", metadata={"age": 50}))
    assert len(collection.get(condition)) == 2
    collection.delete("a")
    assert len(collection.get(condition, sequence=before)) == 1
    collection.delete("b")
    assert len(collection.get(condition)) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_written_is_found_without_a_look_at_the_rest(tmp_path: Path, target: Target) -> None:
    """The plan of SQLite names an index for every table, and none of those of values."""
    engine = open_home(tmp_path / "home")
    collection = Collection(engine)
    collection.put(*(drawn(random.Random(2), number) for number in range(8)))
    statements: list[tuple[str, tuple[object, ...]]] = []
    with engine.home.catalogue.read() as session:
        connection = session.connection()
        event.listen(connection, "before_cursor_execute", lambda *a: statements.append((a[2], a[3])))
        for value in FILTERS:
            change_since(session, collection.id, 1, parse_filter(value), target, 100)
        plans = [
            " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values))
            for sql, values in list(statements)
        ]
    engine.close()
    assert len(plans) == 3 * len(FILTERS)
    for plan in plans:
        assert "SCAN" not in plan
        assert "ix_attributes" not in plan
        assert "ix_images_sequence" in plan or "removals" in plan
    assert any("attributes" in plan for plan in plans)


def test_the_memory_of_what_passed_is_bounded_however_long_the_filters_are(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.filters.sql._REMEMBERED_BYTES", 100_000)
    collection = Collection(engine)
    collection.put(Record(id="a", image="a", split="val", metadata={"age": 3}))
    with engine.home.catalogue.reading() as reading:
        for number in range(20):
            place = Place(collection.id, "images", f"{number}-" + "x" * 30_000)
            collection.memory.get(reading, place, 1, Equals(field="age", eq=number))
    assert len(collection.memory._found._held) == 3
