"""Files and folders appear whole or not at all."""

import os
import threading
from pathlib import Path

import pytest

from training.common.atomic import atomic_file, atomic_folder, remove_folder


def test_file_replaces_the_old_one_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_failed_file_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_finished_files_are_readable_by_others(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    with atomic_file(tmp_path / "file") as file:
        file.write(b"x")
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "inner").touch()
    assert (tmp_path / "file").stat().st_mode & 0o777 == plain.stat().st_mode & 0o777
    assert (tmp_path / "folder").stat().st_mode & 0o444 == 0o444


def test_private_files_are_for_their_user_alone(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "file", private=True) as file:
        assert [inside.stat().st_mode & 0o777 for inside in tmp_path.iterdir()] == [0o600]
        file.write(b"x")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_the_mask_of_the_process_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads that read the mask by setting it may leave it changed for good."""

    def forbidden(_: int) -> int:
        raise AssertionError("the mask was set")

    monkeypatch.setattr(os, "umask", forbidden)
    with atomic_file(tmp_path / "file") as file, atomic_folder(tmp_path / "folder"):
        file.write(b"x")


def test_many_threads_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write(letter: bytes) -> None:
        for _ in range(20):
            with atomic_file(path) as file:
                file.write(letter * 1000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(path.read_bytes())) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_folder_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    with atomic_folder(path) as folder:
        (folder / "inner").write_text("x")
        assert not path.exists()
    assert (path / "inner").read_text() == "x"
    assert [entry.name for entry in path.parent.iterdir()] == ["folder"]


def test_failed_folder_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "folder") as folder:
        (folder / "inner").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_folder_takes_an_empty_place_but_no_other(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with atomic_folder(empty) as folder:
        (folder / "inner").touch()
    with pytest.raises(FileExistsError, match="exists already"), atomic_folder(empty):
        pass


def test_folder_in_use_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")

    with pytest.raises(KeyboardInterrupt), atomic_folder(path, replace=True) as folder:
        (folder / "new").write_text("new")
        raise KeyboardInterrupt
    assert [file.name for file in tmp_path.rglob("*")] == ["folder", "old"]

    with atomic_folder(path, replace=True) as folder:
        (folder / "new").write_text("new")
    assert [file.name for file in tmp_path.rglob("*")] == ["folder", "new"]


def test_folder_in_use_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")
    rename = Path.replace

    def failing(source: Path, target: Path) -> Path:
        if source.suffix == ".part":
            raise OSError("no space left on device")
        return rename(source, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OSError, match="no space"), atomic_folder(path, replace=True) as folder:
        (folder / "new").write_text("new")
    assert [file.name for file in tmp_path.rglob("*")] == ["folder", "old"]


def test_a_folder_goes_in_one_step_and_one_that_is_not_there_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    removed = []

    def remove(path: Path, *, ignore_errors: bool) -> None:
        assert (path / "inside").is_dir() and not folder.exists()
        removed.append(path.name)

    with monkeypatch.context() as patch:
        patch.setattr("training.common.atomic.shutil.rmtree", remove)
        remove_folder(folder)
    assert [path.name for path in tmp_path.iterdir()] == removed
    assert removed[0].startswith(".folder.") and removed[0].endswith(".old")
    remove_folder(folder)
    (folder / "inside").mkdir(parents=True)
    remove_folder(folder)
    assert [path.name for path in tmp_path.iterdir()] == removed
