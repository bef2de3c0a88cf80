from pathlib import Path

import pytest

from index.views import memory

GIB = 1024**3


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a container that may take 8 GiB and has taken 6, on a machine with more."""
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    monkeypatch.setattr(memory, "_of_machine", lambda: 100 * GIB)
    (tmp_path / "memory.max").write_text(f"{8 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{6 * GIB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {GIB}\ninactive_anon 7\ninactive_file {5 * GIB}\nslab 9\n")
    return tmp_path


def test_files_that_a_container_has_read_are_free_memory(group: Path) -> None:
    assert memory.free_memory() == 7 * GIB


def test_without_a_limit_what_the_machine_has_counts(group: Path) -> None:
    (group / "memory.max").write_text("max\n")
    assert memory.free_memory() == 100 * GIB
    (group / "memory.max").unlink()
    assert memory.free_memory() == 100 * GIB


def test_the_machine_says_what_is_free() -> None:
    assert memory._of_machine() > 0
