"""The overview of a collection: values of its fields, and images to begin with."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.errors import QueryError
from index.filters.facets import MAX_EXAMPLES, MAX_VALUES, Facet
from index.filters.grammar import parse_filter
from index.ingest import ingest_manifest
from tests.index.samples import begin_generation, make_manifest, make_records, put_vectors, unit_vectors
from training.common.manifest import Manifest, Record
from training.models.encoder import Encoder


@pytest.fixture
def indexed(engine: SearchEngine, encoder: Encoder, manifest: Manifest) -> SearchEngine:
    ingest_manifest(engine, "films", encoder, manifest)
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


def test_numbers_have_a_range_instead_of_values(indexed: SearchEngine) -> None:
    (age,) = (facet for facet in indexed.overview("films").facets if facet.name == "age")
    assert (age.kinds, age.minimum, age.maximum, age.values) == (("number",), 20, 39, ())


def test_field_of_several_kinds(engine: SearchEngine, encoder: Encoder, tmp_path: Path) -> None:
    values: list[str | int | bool] = [f"word {number}" for number in range(MAX_VALUES + 5)]
    records = [
        replace(record, metadata={"mixed": value})
        for record, value in zip(make_records(MAX_VALUES + 9), [*values, 7, 3, True, True], strict=True)
    ]
    ingest_manifest(engine, "films", encoder, make_manifest(tmp_path / "mixed", records))
    (mixed,) = (facet for facet in engine.overview("films").facets if facet.name == "mixed")
    assert mixed.kinds == ("boolean", "number", "text")
    assert (mixed.values[0].value, mixed.values[0].count) == (True, 2)
    assert len(mixed.values) == MAX_VALUES
    assert mixed.distinct == MAX_VALUES + 6
    assert (mixed.minimum, mixed.maximum) == (3, 7)


def test_examples_are_images_with_their_shortest_text_from_all_over(
    indexed: SearchEngine, manifest: Manifest
) -> None:
    records = {record.id: record for record in manifest.records}
    examples = indexed.overview("films").examples
    assert len({example.id for example in examples}) == len(examples) <= MAX_EXAMPLES
    assert all(example.text == min(records[example.id].texts, key=len) for example in examples)
    places = [list(records).index(example.id) for example in examples]
    assert places == sorted(places)
    assert places[0] < 5 and places[-1] > 12


def test_examples_without_texts(engine: SearchEngine, encoder: Encoder, tmp_path: Path) -> None:
    records = [replace(record, texts=()) for record in make_records(3)]
    ingest_manifest(engine, "films", encoder, make_manifest(tmp_path / "bare", records))
    examples = engine.overview("films").examples
    assert [(example.id, example.text) for example in examples] == [(record.id, "") for record in records]


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
    put_vectors(engine, begin_generation(engine, "c", 4), records, unit_vectors(len(records), 4))


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
    with pytest.raises(QueryError, match="to count"):
        engine.facets("c", field="stduy")
    with pytest.raises(QueryError, match="goes with field"):
        engine.facets("c", containing="s0001")
