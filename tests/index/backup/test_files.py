"""Files of a backup and of a restore: what is unfinished is private and goes, what is used stays."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from index.backup import restore, restore_backup, write_backup
from index.backup.contents import working_folder
from index.catalogue.tables import OrphanRow
from index.engine import SearchEngine
from index.errors import BackupError, StoreError
from index.files.image_store import ImageStore
from index.writes.deletion import collect_garbage
from tests.index.meanwhile import at_first, note_calls


@pytest.fixture
def backup(in_sqlite: SearchEngine, tmp_path: Path) -> Path:
    write_backup(in_sqlite.home, tmp_path / "backup.tar", show_progress=False)
    return tmp_path / "backup.tar"


def _files(home: Path) -> set[str]:
    return {path.name for path in (home / "images" / "originals").glob("*/*")}


def _loose(engine: SearchEngine) -> set[str]:
    with engine.home.catalogue.read() as session:
        return set(session.execute(select(OrphanRow.sha256)).scalars())


def test_what_a_restore_that_failed_has_put_into_the_store_is_removed_later(
    backup: Path, again: SearchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "_NOTED_AT_ONCE", 4)
    puts = itertools.count()

    def take_seven(*_: object) -> None:
        if next(puts) >= 7:
            raise StoreError("the disk does not take it")

    with monkeypatch.context() as patched:
        note_calls(patched, ImageStore, "put", take_seven)
        with pytest.raises(StoreError):
            restore_backup(again.home, backup, show_progress=False)
    left = _files(tmp_path / "again")
    assert len(left) == 7
    assert left <= _loose(again)
    collect_garbage(again.home)
    assert (_files(tmp_path / "again"), _loose(again)) == (set(), set())
    assert restore_backup(again.home, backup, show_progress=False).images == 20


def test_nobody_removes_the_files_of_a_restore_before_images_use_them(
    backup: Path, again: SearchEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_first(monkeypatch, restore, "_take_catalogue", lambda: collect_garbage(again.home))
    assert restore_backup(again.home, backup, show_progress=False).images == 20
    assert len(_files(tmp_path / "again")) == 20
    assert _loose(again) == set()


_OWNER = """
import sys
from pathlib import Path
from index.backup.contents import working_folder
with working_folder(Path(sys.argv[1])) as folder:
    (folder / "inside").mkdir()
    (folder / "inside" / "file").write_text("half")
    (folder / "link").symlink_to(folder.parent)
    print("at work", flush=True)
    sys.stdin.readline()
"""


def test_it_is_empty_and_private_and_goes_at_the_end(tmp_path: Path) -> None:
    with working_folder(tmp_path / ".work") as folder:
        assert list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("x")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), working_folder(tmp_path / ".work"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_nobody_else_enters_and_what_a_killed_owner_leaves_is_removed(tmp_path: Path) -> None:
    path, other = tmp_path / ".work", tmp_path / "other"
    other.write_text("stays")
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "at work\n"
        with pytest.raises(BackupError, match="Another process is at work"), working_folder(path):
            pass
        assert (path / "inside" / "file").read_text() == "half"
        os.kill(owner.pid, signal.SIGKILL)
    assert (path / "inside" / "file").exists()
    with working_folder(path) as folder:
        assert list(folder.iterdir()) == []
    assert [left.name for left in tmp_path.iterdir()] == ["other"]
