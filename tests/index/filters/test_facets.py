"""The overview of a collection: values of its fields, and images to begin with."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from index.engine import SearchEngine
from index.errors import UnknownCollectionError
from index.filters.facets import MAX_EXAMPLES, MAX_VALUES, Facet
from index.ingest import ingest_manifest
from tests.index.samples import make_manifest, make_records
from training.data.manifest import Manifest
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


def test_values_come_most_frequent_first(indexed: SearchEngine) -> None:
    for facet in indexed.overview("films").facets:
        counts = [value.count for value in facet.values]
        assert counts == sorted(counts, reverse=True)


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


def test_overview_follows_what_is_written(
    indexed: SearchEngine, encoder: Encoder, manifest: Manifest, tmp_path: Path
) -> None:
    before = indexed.overview("films")
    assert indexed.overview("films") is before
    grown = make_manifest(tmp_path / "data", [*manifest.records, *make_records(24)[20:]])
    ingest_manifest(indexed, "films", encoder, grown)
    (age,) = (facet for facet in indexed.overview("films").facets if facet.name == "age")
    assert age.maximum == 43


def test_unknown_collection(indexed: SearchEngine) -> None:
    with pytest.raises(UnknownCollectionError):
        indexed.overview("fims")
