"""What tests of backups share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from index.engine import SearchEngine
from tests.index.homes import open_home
from tests.index.samples import ingest
from training.common.manifest import Manifest
from training.models.encoder import Encoder


@pytest.fixture
def again(tmp_path: Path) -> Iterator[SearchEngine]:
    """An empty home, to restore into."""
    engine = open_home(tmp_path / "again")
    yield engine
    engine.close()


@pytest.fixture
def in_sqlite(sqlite: SearchEngine, encoder: Encoder, manifest: Manifest) -> SearchEngine:
    """A home with a collection."""
    ingest(sqlite, encoder, manifest)
    return sqlite
