"""Recorders that wait little."""

import pytest

from app.audit import recorder


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events wait little for others, and attempts follow soon on each other."""
    monkeypatch.setattr(recorder, "_BATCH_SECONDS", 0.05)
    monkeypatch.setattr(recorder, "_RETRY_SECONDS", 0.05)
