"""What tests of views share."""

import pytest

from index.vectors import passing


@pytest.fixture
def code_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with codes after the first search."""
    for name in ("WIDE", "_CODES_BEGUN", "_CODES_SEARCHED", "_SCANNED_A_CODED"):
        monkeypatch.setattr(passing, name, 0)
    monkeypatch.setattr(passing, "_CODES_A_SCANNED", 1e12)
    monkeypatch.setattr(passing, "_COPIED", 0)
