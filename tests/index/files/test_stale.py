"""Files that a killed process has not finished, and those that a living one is still writing."""

import fcntl
import os
import time
from pathlib import Path

import pytest

from index.files.stale import UNTOUCHED_SECONDS, remove_abandoned, remove_stale, try_lock, unfinished
from training.common.atomic import atomic_file, atomic_folder

PLACES = (
    "images/originals/ab/.abcd.0123.part",
    "images/thumbnails/ab/.abcd.webp.0123.part",
    "snapshots/uid-images/.snapshot.json.0123.part",
    "bundles/.digest.0123.part/model.safetensors",
    "jobs/7/.progress.json.part",
    ".backup.tar.part/catalogue.sqlite3",
)


def age(path: Path) -> None:
    then = time.time() - UNTOUCHED_SECONDS - 60
    os.utime(path, (then, then))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with unfinished files of every kind, all of them old, and a whole one."""
    for folder in (*PLACES, "images/originals/ab/abcd", "notes.part"):
        path = tmp_path / folder
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    for path in tmp_path.rglob("*"):
        age(path)
    return tmp_path


def test_every_old_one_goes_and_nothing_else(home: Path) -> None:
    assert len(list(unfinished(home))) == len(PLACES)
    assert remove_stale(unfinished(home), UNTOUCHED_SECONDS) == len(PLACES)
    left = {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    assert left == {"images/originals/ab/abcd", "notes.part"}
    assert remove_stale(unfinished(home), UNTOUCHED_SECONDS) == 0


def test_what_is_being_written_stays(home: Path) -> None:
    with atomic_file(home / "file") as file, atomic_folder(home / "folder") as folder:
        (folder / "inside").write_bytes(b"half")
        # The folder was made long ago, and a file in it is written to now.
        age(folder)
        assert remove_stale(unfinished(home), UNTOUCHED_SECONDS) == len(PLACES)
        file.write(b"whole")
    assert (home / "file").read_bytes() == b"whole"
    assert (home / "folder" / "inside").exists()


def test_a_folder_whose_owner_holds_its_lock_stays(home: Path) -> None:
    part = os.open(home / ".backup.tar.part", os.O_RDONLY)
    fcntl.flock(part, fcntl.LOCK_EX)
    assert remove_stale(unfinished(home), UNTOUCHED_SECONDS) == len(PLACES) - 1
    assert (home / ".backup.tar.part").is_dir()
    os.close(part)
    assert remove_stale(unfinished(home), UNTOUCHED_SECONDS) == 1


def test_a_lock_is_shared_with_those_who_share_it_alone(home: Path) -> None:
    with (home / "notes.part").open() as ours, (home / "notes.part").open() as theirs:
        assert [try_lock(file, shared=True) for file in (ours, theirs)] == [True, True]
        assert not try_lock(ours)


def test_a_file_that_is_being_written_is_told_from_an_abandoned_one(home: Path) -> None:
    young = home / "images/originals/ab/.abce.4567.part"
    young.write_bytes(b"half")
    parts = sorted((home / "images").rglob("*.part"))
    with atomic_file(home / "images/originals/ab/abcf") as file:
        live = next((home / "images").rglob(".abcf.*.part"))
        remove_abandoned([*parts, live, home / "gone"])
        assert live.exists()
        file.write(b"whole")
    assert not any(path.exists() for path in parts)
    assert (home / "images/originals/ab/abcf").read_bytes() == b"whole"
