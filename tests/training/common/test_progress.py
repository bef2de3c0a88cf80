"""What a process says of its progress to the one that started it."""

import json
from pathlib import Path

import pytest

from training.common import progress
from training.common.progress import PROGRESS_VARIABLE, progress_bar


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "progress.json"
    monkeypatch.setenv(PROGRESS_VARIABLE, str(path))
    return path


def test_the_file_follows_the_bar(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FILE_SECONDS", 0)
    state = {"what": "training", "done": 2, "total": 10, "note": ""}
    with progress_bar("training", 10, done=2) as bar:
        assert json.loads(file.read_text()) == state
        bar.advance(3, "loss 1.5")
        assert json.loads(file.read_text()) == {**state, "done": 5, "note": "loss 1.5"}
    assert [path.name for path in file.parent.iterdir()] == ["progress.json"]


def test_it_is_written_seldom_and_at_the_end(file: Path) -> None:
    with progress_bar("embedding", None) as bar:
        for _ in range(1000):
            bar.advance()
        assert json.loads(file.read_text())["done"] < 1000
    assert json.loads(file.read_text())["done"] == 1000


def test_a_quiet_bar_writes_nothing_and_work_goes_on_where_the_file_cannot_be_written(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress_bar("validating", 3, shown=False) as bar:
        bar.advance()
    assert not file.exists()
    monkeypatch.setenv(PROGRESS_VARIABLE, str(file / "progress.json"))
    with progress_bar("training", 2) as bar:
        bar.advance(2)
