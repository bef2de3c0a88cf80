"""Counts of values after writes, removals and restores, with fields in memory, hashed, or by the database."""

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from index.engine import SearchEngine
from index.filters.facets import FacetCounts, FilteredFacets
from index.filters.grammar import parse_filter
from tests.index.filters.test_kept_up import Collection
from training.common.manifest import Record
from training.common.record import MetadataValue

FEW = parse_filter({"field": "age", "lt": 50})


class Kept(Collection):
    """A collection whose values are counted in Python."""

    def check(self, field: str, filtered: bool, containing: str = "") -> None:
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
                kept.check(field, filtered)
        kept.check("labels", True, "edem")
        kept.check("study", True, "s1")
        kept.check("urgent", False)
        dates = [str(record.metadata["taken"]) for record in kept.records.values()]
        (taken,) = kept.engine.facets("c", field="taken").facets
        assert (taken.kinds, taken.minimum, taken.maximum) == (("date",), min(dates), max(dates))
        ages = [record.metadata["age"] for record in kept.records.values()]
        (age,) = kept.engine.facets("c", field="age").facets
        assert (age.minimum, age.maximum) == (min(ages), max(ages))


@pytest.mark.parametrize(
    ("told", "age", "shifted"),
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
    kept: Kept, told: list[bool | None], age: int, shifted: bool | None
) -> None:
    for number, one in enumerate(told):
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
    said = "There is a small effusion."
    kept.put(Record(id="a", image="x", split="val", texts=(said,), report=f"{said} The effusion is new."))
    assert [tuple(one) for one in kept.engine.facets("c").findings] == [("pleural effusion", 1, 0, 0)]
    kept.put(Record(id="b", image="x", split="val", texts=(said,), report=f"{said} The effusion is new."))
    assert [tuple(one) for one in kept.engine.facets("c").findings] == [("pleural effusion", 2, 0, 0)]
    kept.delete("a")
    assert [tuple(one) for one in kept.engine.facets("c").findings] == [("pleural effusion", 1, 0, 0)]


def test_values_are_counted_once_until_a_write(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they were counted ahead of the first request."""
    made: list[int] = []
    every = FacetCounts.every

    def noted(self: FacetCounts) -> object:
        made.append(self.state.sequence)
        return every(self)

    monkeypatch.setattr(FacetCounts, "every", noted)
    source = random.Random(1)
    kept.put(*(drawn(source, number) for number in range(10)))
    kept.engine.warm_filters(kept.generation.id)
    answers: set[FilteredFacets] = {kept.engine.facets("c") for _ in range(3)}
    assert len(answers) == 1
    kept.engine.overview("c")
    kept.check("labels", False)
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
