"""What hits show."""

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Engine

from index.catalogue.database import DirectRead
from index.engine import SearchEngine
from index.search.results import FoundImages
from tests.index.samples import begin_generation, make_records, put_vectors, unit_vectors

# What SQLite takes unless it was built otherwise.
MAX_VALUES = 32_766


def test_no_read_has_more_values_than_databases_take(
    engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_vectors(engine, begin_generation(engine, "c", 4), make_records(3), unit_vectors(3, 4))
    counts, statements, read = [], [], DirectRead.rows

    def rows(self: DirectRead, engine: Engine, keys: Sequence[int]) -> list[Any]:
        counts.append(len(keys))
        statements.append(self)
        return read(self, engine, keys)

    monkeypatch.setattr(DirectRead, "rows", rows)
    found = FoundImages(engine.home.catalogue).of(range(MAX_VALUES + 10, 0, -1))
    assert {image.id for image in found if image is not None} == {record.id for record in make_records(3)}
    assert found[-3:] == [image for image in found if image is not None]
    # One reads images with their texts, the other findings.
    assert len(set(statements)) == 2
    assert sum(counts) == 2 * (MAX_VALUES + 10)
    assert max(counts) <= MAX_VALUES
