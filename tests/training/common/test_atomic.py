"""Files and folders appear whole or not at all."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from training.common.atomic import atomic_file, atomic_folder, remove_folder


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_replaces_the_old_one_only_at_a_good_end(tmp_path: Path, fails: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with suppress(KeyboardInterrupt), atomic_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
        if fails:
            raise KeyboardInterrupt
    assert path.read_bytes() == (b"old" if fails else b"new")
    assert names(tmp_path) == ["file"]


def test_finished_files_are_readable_by_others_and_private_ones_by_their_user_alone(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with atomic_file(tmp_path / "file") as file:
        file.write(b"x")
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "inner").touch()
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes["file"] == modes["plain"]
    assert modes["folder"] & 0o444 == 0o444
    private = tmp_path / "folder" / "private"
    with atomic_file(private, private=True) as file:
        unfinished = [path for path in private.parent.iterdir() if path.name != "inner"]
        assert [path.stat().st_mode & 0o777 for path in unfinished] == [0o600]
        file.write(b"x")
    assert private.stat().st_mode & 0o777 == 0o600


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
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_folder_appears_at_a_good_end(tmp_path: Path, fails: bool) -> None:
    with suppress(KeyboardInterrupt), atomic_folder(tmp_path / "deep" / "folder") as folder:
        (folder / "inner").write_text("x")
        assert not (tmp_path / "deep" / "folder").exists()
        if fails:
            raise KeyboardInterrupt
    assert names(tmp_path) == (["deep"] if fails else ["deep", "deep/folder", "deep/folder/inner"])


def test_a_folder_takes_an_empty_place_and_another_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with atomic_folder(path) as folder:
        (folder / "old").touch()
    with pytest.raises(FileExistsError, match="exists already"), atomic_folder(path):
        pass
    for fails in (True, False):
        with suppress(KeyboardInterrupt), atomic_folder(path, replace=True) as folder:
            (folder / "new").touch()
            if fails:
                raise KeyboardInterrupt
        assert names(tmp_path) == ["folder", "folder/old" if fails else "folder/new"]


def test_folder_in_use_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    rename = Path.replace

    def failing(source: Path, target: Path) -> Path:
        if source.suffix == ".part":
            raise OSError("no space left on device")
        return rename(source, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OSError, match="no space"), atomic_folder(tmp_path / "folder", replace=True) as folder:
        (folder / "new").touch()
    assert names(tmp_path) == ["folder", "folder/old"]


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
