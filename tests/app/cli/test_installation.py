"""`recoquest backup` into a folder, and `tidy` after killed processes."""

import os
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.engine import open_engine
from app.settings import Settings
from index.backup import write_backup
from index.backup.contents import AUDIT_SETTING, sealed_keys
from tests.app.commands import plain_output, run_command

PASSPHRASE = "many words, long"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with closing(open_engine(Settings(home=tmp_path / "home"))):
        return tmp_path / "home"


def test_the_newest_backups_of_a_folder_stay_and_all_where_one_fails(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    old = [folder / f"recoquest-2026010{day}T021500Z.tar" for day in range(1, 5)]
    others = [folder / "recoquest-before.tar", folder / "notes.txt"]
    for path in (*old, *others):
        path.write_text("as it was")
    begun = datetime.now(UTC).replace(microsecond=0)
    run_command("backup", "--folder", folder, home=home)
    assert all(path.exists() for path in old)
    (unlimited,) = set(folder.iterdir()) - {*old, *others}
    unlimited.unlink()
    run_command("backup", "--folder", folder, "--keep", 3, home=home)
    (new,) = set(folder.iterdir()) - {*old, *others}
    written = datetime.strptime(new.name, "recoquest-%Y%m%dT%H%M%SZ.tar").replace(tzinfo=UTC)
    assert begun <= written <= datetime.now(UTC)
    assert [path.exists() for path in old] == [False, False, True, True]
    run_command("backup", "--folder", folder, "--keep", 1, home=tmp_path / "nowhere", code=1)
    assert {*folder.iterdir()} == {*old[2:], *others, new}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "Name either a file"),
        (("a.tar", "--folder", "."), "Name either a file"),
        (("a.tar", "--keep", "3"), "--keep is about"),
        (("--folder", "nowhere"), "nowhere is no folder"),
    ],
)
def test_a_wrong_place_is_named(home: Path, words: tuple[str, ...], expected: str) -> None:
    assert expected in plain_output(run_command("backup", *words, home=home, code=2))


def _sealed(home: Path, folder: Path, keys: dict[str, bytes]) -> Path:
    """A backup with keys that a passphrase opens."""
    with closing(open_engine(Settings(home=home))) as engine:
        sealed = sealed_keys(keys, PASSPHRASE)
        write_backup(engine.home, folder / "backup.tar", keys=sealed, show_progress=False)
    return folder / "backup.tar"


@pytest.mark.parametrize(
    ("keys", "passphrase", "required", "not_required"),
    [
        (["audit.key"], "", "Bring audit.key of the home", "RECOQUEST_AUDIT_KEY"),
        (["audit.key", "patients.key"], "", "Bring audit.key and patients.key of", "RECOQUEST_AUDIT_KEY"),
        ([AUDIT_SETTING], "", "Set RECOQUEST_AUDIT_KEY as it was", "Bring"),
        ([AUDIT_SETTING, "patients.key"], PASSPHRASE, "Set RECOQUEST_AUDIT_KEY as it was", "Bring"),
        (["audit.key"], "other words, long", "The passphrase is not that of the backup", "AUDIT_KEY"),
    ],
)
def test_a_refused_restore_changes_nothing_and_asks_for_what_was_in_use(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: list[str],
    passphrase: str,
    required: str,
    not_required: str,
) -> None:
    file = _sealed(home, tmp_path, {name: bytes([index]) * 32 for index, name in enumerate(keys)})
    if passphrase:
        monkeypatch.setenv("RECOQUEST_BACKUP_PASSPHRASE", passphrase)
    message = plain_output(run_command("restore", file, home=tmp_path / "new", code=1))
    assert required in message
    assert not_required not in message
    assert not (tmp_path / "new").exists()
    run_command("restore", file, "--without-keys", home=tmp_path / "new")


def test_a_restore_brings_the_keys_into_a_new_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _sealed(home, tmp_path, {"audit.key": bytes(32), "patients.key": b"1" * 32})
    monkeypatch.setenv("RECOQUEST_BACKUP_PASSPHRASE", PASSPHRASE)
    run_command("restore", file, home=tmp_path / "new")
    assert {"audit.key", "patients.key"} <= {path.name for path in (tmp_path / "new").iterdir()}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_old_unfinished_files_are_removed_and_counted(tmp_path: Path) -> None:
    open_engine(Settings(home=tmp_path)).close()
    left = [tmp_path / f"images/originals/0{number}/.file.{number}.part" for number in range(3)]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half")
    then = time.time() - 2 * 3600
    for path in left[:2]:
        os.utime(path, (then, then))
    for removed in ("Removed 2 unfinished files of processes that were killed.\n", ""):
        assert run_command("tidy", home=tmp_path).output == f"{removed}Garbage is removed.\n"
    assert [path.exists() for path in left] == [False, False, True]
