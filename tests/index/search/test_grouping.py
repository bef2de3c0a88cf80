"""The groups of a collection, remembered while it is written to, against those of its records."""

import random
import time
from collections import defaultdict
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select

from index.catalogue.collections import TARGETS, Target
from index.catalogue.tables import ImageRow, TextRow
from index.engine import SearchEngine
from index.filters.column_cache import CollectionState
from index.search import grouping as groups
from index.search.grouping import GroupColumn, GroupColumns, Groups
from index.search.request import SearchRequest
from tests.index.filters.test_column_cache import Collection, drawn
from tests.index.meanwhile import note_calls, plans_of, statements
from tests.index.orders import group_of
from training.common.manifest import Record

FIELDS = ("group", "id", "split", "labels", "age", "view", "mixed")
# Texts and numbers that are written alike, and numbers of one hash.
MIXED = (1, True, "1", "1.0", 1.5, 2.0**61, 0, -0.0, ("PA", "AP"), ("AP", "PA"), (), "")


class Written(Collection):
    """A collection, and what is remembered of its groups."""

    def __init__(self, engine: SearchEngine) -> None:
        super().__init__(engine)
        self.columns = GroupColumns()

    def column(self, field: str, target: Target = "images") -> GroupColumn:
        with self.engine.home.catalogue.reading() as reading:
            state = CollectionState(reading, self.id, self.sequence())
            return self.columns.get(state, field, target)

    def groups(self, field: str, target: Target) -> set[frozenset[int]]:
        """Return the groups as sets of keys, from the records."""
        key = ImageRow.id if target == "images" else TextRow.id
        query = select(ImageRow.external_id, key).select_from(ImageRow)
        if target == "texts":
            query = query.join(TextRow, TextRow.image_id == ImageRow.id)
        by_group: dict[Hashable, set[int]] = defaultdict(set)
        with self.engine.home.catalogue.read() as session:
            for name, number in session.execute(query):
                by_group[group_of(self.records[name], field)].add(number)
        return {frozenset(keys) for keys in by_group.values()}


@pytest.fixture
def written(engine: SearchEngine) -> Written:
    return Written(engine)


def mixed(source: random.Random, number: int) -> Record:
    record = drawn(source, number)
    if source.random() < 0.2:
        return record
    return replace(record, metadata={**record.metadata, "mixed": source.choice(MIXED)})


def sets(column: GroupColumn) -> set[frozenset[int]]:
    return {frozenset(column.members(number).tolist()) for number in column.numbers.tolist()}


def test_columns_keep_up_with_writes_and_removals(written: Written) -> None:
    source = random.Random(3)
    written.put(*(mixed(source, number) for number in range(12)))
    for field in FIELDS:
        for target in TARGETS:
            assert sets(written.column(field, target)) == written.groups(field, target)
    sizes = set()
    for _ in range(40):
        numbers = source.sample(range(16), source.randrange(1, 4))
        if source.random() < 0.3:
            written.delete(*(f"i{number}" for number in numbers))
        else:
            written.put(*(mixed(source, number) for number in numbers))
        for field in source.sample(FIELDS, 3):
            for target in TARGETS:
                column = written.column(field, target)
                expected = written.groups(field, target)
                assert sets(column) == expected
                assert column.keys.tolist() == sorted(key for keys in expected for key in keys)
                assert column.count(None) == len(expected)
                some = np.array(
                    sorted(source.sample(column.keys.tolist(), len(column.keys) // 2)), dtype=np.int64
                )
                assert column.count(some) == sum(bool(keys & set(some.tolist())) for keys in expected)
                sizes.add(max((len(keys) for keys in expected), default=0))
    assert len(sizes) > 5


def test_what_was_not_touched_is_not_read_again(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    written.put(*(Record(id=f"{n}", image="x", split="val", group=f"g{n % 3}") for n in range(9)))
    before = written.column("group")
    read = note_calls(monkeypatch, GroupColumn, "__init__", lambda _, keys, __: len(keys))
    written.put(Record(id="4", image="x", split="val", group="g0"))
    after = written.column("group")
    assert after is not before
    assert read == [1, 9]
    monkeypatch.setattr("index.filters.column_cache._MIN_REFRESH_LIMIT", 0)
    written.put(*(Record(id=f"{n}", image="x", split="val", group="g0") for n in range(3)))
    written.column("group")
    assert read == [1, 9, 9]


def test_what_the_view_has_before_the_column_is_looked_up_once_more(written: Written) -> None:
    written.put(Record(id="a", image="x", split="val", group="g"))
    searched = Groups(lambda: written.column("group"))
    old = searched.column
    written.put(Record(id="b", image="x", split="val", group="g"))
    new = written.column("group")
    assert searched.first_indices(new.keys[::-1]).tolist() == [0]
    assert searched.column is new is not old
    gone = np.append(new.keys, new.keys.max() + 1)
    present, numbers = searched.lookup(gone)
    assert present.tolist() == [True, True, False]
    assert len(numbers) == 2
    assert searched.first_indices(gone[::-1]).tolist() == [1]


def test_others_are_those_that_can_be_found(written: Written) -> None:
    written.put(*(Record(id=f"{n}", image="x", split="val", group="ab"[n % 2]) for n in range(8)))
    searched = Groups(lambda: written.column("group"))
    keys = searched.column.keys
    assert searched.others(keys[:2], None) == {int(keys[0]): 3, int(keys[1]): 3}
    assert searched.others(keys[:2], keys[[0, 1, 4, 5, 6, 7]]) == {int(keys[0]): 2, int(keys[1]): 2}
    # What was found a moment ago is none of the others, whether it could still be found or not.
    assert searched.others(keys[:2], keys[4:7]) == {int(keys[0]): 2, int(keys[1]): 1}


def test_threads_that_ask_at_once_read_once(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    written.put(*(Record(id=f"{n}", image="x", split="val", group="g") for n in range(8)))
    reads = note_calls(monkeypatch, groups, "GroupColumn", lambda *_: time.sleep(0.2))
    with ThreadPoolExecutor(4) as threads:
        results = [future.result() for future in [threads.submit(written.column, "group") for _ in range(4)]]
    assert len(reads) == 1
    assert len({id(column) for column in results}) == 1


def test_a_later_column_serves_who_began_before_and_is_not_lost(
    written: Written, engine: SearchEngine
) -> None:
    written.put(Record(id="a", image="x", split="val", group="g"))
    before = written.sequence()
    written.put(Record(id="b", image="x", split="val", group="g"))
    newest = written.column("group")
    with engine.home.catalogue.reading() as reading:
        state = CollectionState(reading, written.id, before)
        column = written.columns.get(state, "group", "images")
    assert column is newest is written.column("group")


def test_the_images_of_a_group_are_looked_up_by_an_index(sqlite: SearchEngine) -> None:
    written = Written(sqlite)
    written.put(*(mixed(random.Random(4), number) for number in range(16)))
    plans: list[str] = []
    for field in ("group", "view", "age", "split"):
        with sqlite.home.catalogue.read() as session, statements(session.connection()) as sent:
            request = SearchRequest(exclude_groups_of=("i1", "i2"), exclude_groups_by=field)
            assert len(groups.keys_left_out(session, written.id, request))
            plans += [step for steps in plans_of(session, sent) for step in steps]
    assert len(plans) > 12
    assert not [plan for plan in plans if "SCAN" in plan or plan.endswith("(collection_id=?)")]
