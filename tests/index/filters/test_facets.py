"""The overview of a collection, and counts of values after writes, removals and restores."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.errors import QueryError
from index.filters.facets import MAX_EXAMPLES, MAX_VALUES, Facet, FacetCounts, FilteredFacets
from index.filters.grammar import parse_filter
from tests.index.filters.test_column_cache import Collection
from tests.index.meanwhile import note_calls
from tests.index.samples import ingest, make_manifest, make_records, put_records
from training.common.manifest import Manifest, Record
from training.common.record import BLANK_FIELD, MetadataValue
from training.models.encoder import Encoder


@pytest.fixture
def indexed(engine: SearchEngine, encoder: Encoder, manifest: Manifest) -> SearchEngine:
    ingest(engine, encoder, manifest, "films")
    return engine


def _counts(facet: Facet) -> dict[object, int]:
    return {value.value: value.count for value in facet.values}


def test_values_are_counted_for_every_field_but_those_that_tell_images_apart(
    indexed: SearchEngine, manifest: Manifest
) -> None:
    facets = {facet.name: facet for facet in indexed.overview("films").facets}
    records = manifest.records
    assert list(facets) == ["age", "labels", "split", "urgent", "view"]
    assert _counts(facets["labels"]) == Counter(label for record in records for label in record.labels)
    assert _counts(facets["split"]) == Counter(record.split for record in records)
    assert _counts(facets["view"]) == Counter(record.metadata["view"] for record in records)
    urgent = _counts(facets["urgent"])
    assert urgent == Counter(record.metadata["urgent"] for record in records)
    assert all(isinstance(value, bool) for value in urgent)
    assert facets["labels"].distinct == 3
    age = facets["age"]
    assert (age.kinds, age.minimum, age.maximum, age.values) == (("number",), 20, 39, ())


def test_field_of_several_kinds(engine: SearchEngine, encoder: Encoder, tmp_path: Path) -> None:
    values: list[str | int | bool] = [f"word {number}" for number in range(MAX_VALUES + 5)]
    records = [
        replace(record, metadata={"mixed": value})
        for record, value in zip(make_records(MAX_VALUES + 9), [*values, 7, 3, True, True], strict=True)
    ]
    ingest(engine, encoder, make_manifest(tmp_path / "mixed", records), "films")
    (mixed,) = (facet for facet in engine.overview("films").facets if facet.name == "mixed")
    assert mixed.kinds == ("boolean", "number", "text")
    assert (mixed.values[0].value, mixed.values[0].count) == (True, 2)
    assert len(mixed.values) == MAX_VALUES
    assert mixed.distinct == MAX_VALUES + 6
    assert (mixed.minimum, mixed.maximum) == (3, 7)


def test_examples_are_images_with_their_shortest_text_from_all_over(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    records = {record.id: record for record in manifest.records}
    examples = indexed.overview("films").examples
    assert len({example.id for example in examples}) == len(examples) <= MAX_EXAMPLES
    assert all(example.text == min(records[example.id].texts, key=len) for example in examples)
    positions = [list(records).index(example.id) for example in examples]
    assert positions == sorted(positions)
    assert positions[0] < 5 and positions[-1] > 12
    bare = [replace(record, texts=()) for record in make_records(3)]
    ingest(indexed, encoder, make_manifest(tmp_path / "bare", bare), "bare")
    results = [(example.id, example.text) for example in indexed.overview("bare").examples]
    assert results == [(record.id, "") for record in bare]


DATES = ("2021-03-12", "20210105", "2021-03-12T08:00+02:00")


def films(engine: SearchEngine, taken: Sequence[str]) -> None:
    records = [
        Record(
            id=f"i{number}",
            image="x",
            split="val",
            group=f"Patient {number // 2}",
            labels=("Edema",) if number % 2 else ("Mass", "Ödem"),
            metadata={"taken": value, "age": number, "study": f"S{number:05}", "urgent": number == 0},
        )
        for number, value in enumerate(taken)
    ]
    put_records(engine, records, 4)


@pytest.fixture(params=[10_000, 1], ids=["in memory", "by database"])
def max_texts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("index.filters.passing._MAX_TEXTS", request.param)


@pytest.mark.usefixtures("max_texts")
def test_a_field_of_dates_alone_has_a_range_of_them(engine: SearchEngine) -> None:
    films(engine, DATES)
    (taken,) = engine.facets("c", field="taken").facets
    assert (taken.kinds, taken.minimum, taken.maximum) == (("date",), "2021-01-05", "2021-03-12T06:00:00Z")
    passing = engine.facets("c", parse_filter({"field": "taken", "lt": "2021-02"}), "taken").facets
    assert (passing[0].minimum, passing[0].maximum) == ("2021-01-05", "2021-01-05")


def test_one_text_that_is_no_date_makes_a_field_of_texts(engine: SearchEngine) -> None:
    """Even where it is too rare to be among the most frequent values."""
    films(engine, [*(f"2021-03-{1 + number % 28:02}" for number in range(2 * MAX_VALUES)), "unknown"])
    (taken,) = engine.facets("c", field="taken").facets
    assert (taken.kinds, taken.minimum, taken.maximum) == (("text",), None, None)


@pytest.mark.usefixtures("max_texts")
def test_counts_under_a_filter_are_of_images_that_pass(engine: SearchEngine) -> None:
    films(engine, ["2021-01-01", "2021-01-02", "2021-01-03", "2021-01-04", "2021-01-05"])
    counted = engine.facets("c", parse_filter({"field": "age", "gte": 2}))
    facets = {facet.name: facet for facet in counted.facets}
    assert counted.count == 3
    assert list(facets) == ["age", "labels", "split", "study", "taken", "urgent"]
    assert _counts(facets["labels"]) == {"Mass": 2, "Ödem": 2, "Edema": 1}
    assert _counts(facets["split"]) == {"val": 3}
    assert _counts(facets["urgent"]) == {False: 3}
    assert (facets["age"].minimum, facets["age"].maximum) == (2, 4)
    assert (facets["taken"].minimum, facets["taken"].maximum) == ("2021-01-03", "2021-01-05")
    everything = {facet.name: facet for facet in engine.facets("c").facets}
    assert everything == {facet.name: facet for facet in engine.overview("c").facets}
    nothing = engine.facets("c", parse_filter({"field": "age", "gte": 99}))
    assert nothing.count == 0
    assert all(not facet.values and facet.minimum is None for facet in nothing.facets)


@pytest.mark.usefixtures("max_texts")
def test_values_are_found_by_a_part_of_them(engine: SearchEngine) -> None:
    films(engine, ["2021-01-01"] * 60)
    (study,) = engine.facets("c", field="study", containing="s0001").facets
    assert _counts(study) == {f"S0001{digit}": 1 for digit in range(10)}
    assert study.distinct == 10
    (group,) = engine.facets("c", parse_filter({"field": "age", "lt": 3}), "group", "PATIENT").facets
    assert _counts(group) == {"Patient 0": 2, "Patient 1": 1}
    (labels,) = engine.facets("c", field="labels", containing="ödem").facets
    assert _counts(labels) == {"Ödem": 30}
    for odd in ("%", "_", "\\", "'", "\0"):
        assert engine.facets("c", field="study", containing=odd).facets[0].values == ()
    (one,) = engine.facets("c", field="id", containing="i59").facets
    assert _counts(one) == {"i59": 1}
    (flag,) = engine.facets("c", field=BLANK_FIELD).facets
    assert _counts(flag) == {False: 60}
    with pytest.raises(QueryError, match="to count"):
        engine.facets("c", field="stduy")
    with pytest.raises(QueryError, match="goes with field"):
        engine.facets("c", containing="s0001")


FEW = parse_filter({"field": "age", "lt": 50})


class Kept(Collection):
    """A collection whose values are counted in Python."""

    def check_counts(self, field: str, filtered: bool, containing: str = "") -> None:
        counted = self.engine.facets("c", FEW if filtered else None, field, containing)
        records = [record for record in self.records.values() if not filtered or record.metadata["age"] < 50]  # type: ignore[operator]
        values = [
            value
            for record in records
            for value in (record.labels if field == "labels" else (record.metadata.get(field),))
            if value is not None and containing.casefold() in str(value).casefold()
        ]
        expected = sorted(Counter(values).items(), key=lambda one: (-one[1], str(one[0])))
        (facet,) = counted.facets
        assert counted.count == len(records)
        assert [(value.value, value.count) for value in facet.values] == expected[:30]
        assert facet.distinct == len(expected)


@pytest.fixture
def kept(engine: SearchEngine) -> Kept:
    return Kept(engine)


@pytest.fixture(params=["whole", "hashed", "hashed, looked for in order"])
def in_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param != "whole":
        monkeypatch.setattr("index.filters.passing._MAX_TEXTS", 1)
    if "order" in request.param:
        monkeypatch.setattr("index.filters.facets._MAX_LOOKED_UP", 2)
        monkeypatch.setattr("index.filters.facets._ROWS_AT_ONCE", 7)
    yield


def drawn(source: random.Random, number: int) -> Record:
    return Record(
        id=f"i{number}",
        image="x",
        split="val",
        labels=tuple(source.sample(["Ödem", "Edema", "Mass", "edema"], source.randrange(4))),
        metadata={
            "study": f"S{source.randrange(90):02}",
            "age": source.randrange(100),
            "urgent": source.random() < 0.3,
            "taken": f"2021-{source.randrange(1, 13):02}-{source.randrange(1, 29):02}",
        },
    )


@pytest.mark.usefixtures("in_memory")
def test_counts_follow_writes_removals_and_restores(kept: Kept) -> None:
    source = random.Random(5)
    kept.put(*(drawn(source, number) for number in range(80)))
    for _ in range(12):
        numbers = source.sample(range(100), 5)
        removed = [kept.records[f"i{number}"] for number in numbers if f"i{number}" in kept.records]
        if source.random() < 0.5:
            kept.delete(*(record.id for record in removed))
            if source.random() < 0.5:
                kept.put(*removed)
        else:
            kept.put(*(drawn(source, number) for number in numbers))
        for field in ("study", "labels"):
            for filtered in (False, True):
                kept.check_counts(field, filtered)
        kept.check_counts("labels", True, "edem")
        kept.check_counts("study", True, "s1")
        kept.check_counts("urgent", False)
        dates = [str(record.metadata["taken"]) for record in kept.records.values()]
        (taken,) = kept.engine.facets("c", field="taken").facets
        assert (taken.kinds, taken.minimum, taken.maximum) == (("date",), min(dates), max(dates))
        ages = [record.metadata["age"] for record in kept.records.values()]
        (age,) = kept.engine.facets("c", field="age").facets
        assert (age.minimum, age.maximum) == (min(ages), max(ages))


@pytest.mark.parametrize(
    ("expected", "age", "shifted"),
    [
        ([True, True], 1, True),
        ([False, True], 99, True),
        ([False, True], 1, False),
        ([False, False], 99, False),
        ([None, False], 99, None),
        ([None, None], 99, None),
    ],
)
def test_shifted_dates_are_marked_among_the_images_that_are_counted(
    kept: Kept, expected: list[bool | None], age: int, shifted: bool | None
) -> None:
    for number, one in enumerate(expected):
        metadata: dict[str, MetadataValue] = {"date": f"2021-03-0{number + 1}", "sop": f"1.2.{number}"}
        metadata |= {"age": number * 50} if one is None else {"age": number * 50, "date_shifted": one}
        kept.put(Record(id=f"i{number}", image="x", split="val", metadata=metadata))
    few = parse_filter({"field": "age", "lt": age})
    for facet in kept.engine.facets("c", few, "date").facets + kept.engine.facets("c", few).facets:
        assert facet.date_shifted is (shifted if facet.name == "date" else False), facet


def test_dates_of_other_pictures_are_not_marked(kept: Kept) -> None:
    kept.put(Record(id="a", image="x", split="val", metadata={"date": "2021-03-04"}))
    (facet,) = kept.engine.facets("c", field="date").facets
    assert (facet.kinds, facet.date_shifted) == (("date",), False)


def test_a_finding_that_an_image_mentions_twice_counts_once_after_a_write(kept: Kept) -> None:
    message = "There is a small effusion."
    twice = Record(id="a", image="x", split="val", texts=(message,), report=f"{message} The effusion is new.")
    for put, deleted, count in ((["a"], [], 1), (["b"], [], 2), ([], ["a"], 1)):
        kept.put(*(replace(twice, id=name) for name in put))
        kept.delete(*deleted)
        assert [tuple(one) for one in kept.engine.facets("c").findings] == [("pleural effusion", count, 0, 0)]


def test_values_are_counted_once_until_a_write(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """And when they are asked for, since every write would have them counted again."""
    made = note_calls(monkeypatch, FacetCounts, "every")
    source = random.Random(1)
    kept.put(*(drawn(source, number) for number in range(10)))
    kept.engine.warm_filters(kept.generation.id)
    assert not made
    answers: set[FilteredFacets] = {kept.engine.facets("c") for _ in range(3)}
    assert len(answers) == 1
    kept.engine.overview("c")
    kept.check_counts("labels", False)
    assert len(made) == 1
    kept.delete("i3")
    assert kept.engine.facets("c").count == 9
    assert len(made) == 2


def test_examples_of_a_collection_beside_one_with_texts(engine: SearchEngine, kept: Kept) -> None:
    other = Kept(engine, name="d")
    for number in range(4):
        kept.put(Record(id=f"a{number}", image="x", split="val"))
        other.put(Record(id=f"b{number}", image="x", split="val", texts=("A dog.",) if number > 2 else ()))
    assert {one.id for one in engine.overview("c").examples} == {"a0", "a1", "a2", "a3"}
    assert [(one.id, one.text) for one in engine.overview("d").examples] == [("b3", "A dog.")]
