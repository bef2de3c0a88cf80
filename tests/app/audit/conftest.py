"""Recorders that wait little, and a catalogue without a home."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.audit import recorder
from index.catalogue import Catalogue, open_catalogue


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events wait little for others, and attempts follow soon on each other."""
    monkeypatch.setattr(recorder, "_BATCH_SECONDS", 0.05)
    monkeypatch.setattr(recorder, "_RETRY_SECONDS", 0.05)


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    opened = open_catalogue(f"sqlite:///{tmp_path / 'c.db'}")
    yield opened
    opened.close()
