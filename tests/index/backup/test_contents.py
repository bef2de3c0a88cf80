"""Keys of a home in its backup, known by their fingerprints, and the folder that a backup is written in."""

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from index.backup import restore_backup, write_backup
from index.backup.contents import AUDIT_SETTING, bring_keys, sealed_keys, working_folder
from index.engine import SearchEngine
from index.errors import BackupError

KEYS = {"audit.key": bytes(range(32)), "patients.key": bytes(range(32, 64))}
PASSPHRASE = "many words, and än umlaut"


def test_the_keys_come_back_and_only_by_the_passphrase(tmp_path: Path) -> None:
    written = sealed_keys(KEYS, PASSPHRASE)
    assert all(key.hex() not in written for key in KEYS.values())
    assert sealed_keys(KEYS, PASSPHRASE) != written
    with pytest.raises(BackupError, match="passphrase is not that"):
        bring_keys(written.encode(), {}, "another passphrase", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert bring_keys(written.encode(), {}, PASSPHRASE, tmp_path) == []
    for name, key in KEYS.items():
        assert bytes.fromhex((tmp_path / name).read_text()) == key
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("there", "passed_over", "lacking"),
    [
        (KEYS, (), []),
        ({}, (), ["audit.key", "patients.key"]),
        ({"audit.key": KEYS["patients.key"], "patients.key": KEYS["patients.key"]}, (), ["audit.key"]),
        ({"patients.key": KEYS["patients.key"]}, ("audit.key",), []),
    ],
)
def test_keys_that_are_missing_or_others_are_named(
    tmp_path: Path, there: Mapping[str, bytes], passed_over: tuple[str, ...], lacking: list[str]
) -> None:
    written = sealed_keys(KEYS, None).encode()
    assert bring_keys(written, there, PASSPHRASE, tmp_path, passed_over) == lacking
    assert list(tmp_path.iterdir()) == []


def test_another_key_of_patients_is_not_replaced(tmp_path: Path) -> None:
    written = sealed_keys(KEYS, PASSPHRASE).encode()
    others = {"audit.key": b"1" * 32, "patients.key": b"2" * 32}
    with pytest.raises(BackupError, match=r"has another patients\.key than the home that was backed up"):
        bring_keys(written, others, PASSPHRASE, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert bring_keys(written, {"audit.key": others["audit.key"]}, PASSPHRASE, tmp_path) == []
    assert bytes.fromhex((tmp_path / "audit.key").read_text()) == KEYS["audit.key"]


@pytest.mark.parametrize("written", [b"{", b"[]", b'{"fingerprints": 3, "sealed": null}'])
def test_damaged_keys_are_an_error(tmp_path: Path, written: bytes) -> None:
    with pytest.raises(BackupError, match="is damaged"):
        bring_keys(written, {}, PASSPHRASE, tmp_path)


def test_a_key_that_is_a_setting_is_not_carried(tmp_path: Path) -> None:
    written = sealed_keys({AUDIT_SETTING: b"a long secret of somebody"}, PASSPHRASE).encode()
    assert bring_keys(written, {}, PASSPHRASE, tmp_path) == [AUDIT_SETTING]
    assert bring_keys(written, {AUDIT_SETTING: b"a long secret of somebody"}, None, tmp_path) == []
    both = sealed_keys({AUDIT_SETTING: b"a long secret of somebody", **KEYS}, PASSPHRASE).encode()
    assert bring_keys(both, {}, PASSPHRASE, tmp_path) == [AUDIT_SETTING]
    assert list(tmp_path.iterdir()) == []


def test_a_restore_is_refused_before_it_begins(
    indexed: SearchEngine, tmp_path: Path, again: SearchEngine
) -> None:
    backup = tmp_path / "backup.tar"
    write_backup(indexed.home, backup, keys=sealed_keys(KEYS, PASSPHRASE), show_progress=False)

    def restore(keys: Mapping[str, bytes] | None, passphrase: str | None = None) -> None:
        restore_backup(again.home, backup, keys=keys, passphrase=passphrase, show_progress=False)

    with pytest.raises(BackupError, match=r"Bring audit\.key and patients\.key of the home"):
        restore({})
    assert not list(again.home.store.originals())
    assert again.collections() == []
    restore({}, PASSPHRASE)
    assert bytes.fromhex((tmp_path / "again/audit.key").read_text()) == KEYS["audit.key"]
    assert again.collections()


def test_a_backup_of_an_earlier_version_asks_for_the_key_of_the_trail(
    tmp_path: Path, again: SearchEngine
) -> None:
    with tarfile.open(tmp_path / "backup.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("bundles/digest/bundle.json"))
    with pytest.raises(BackupError, match=r"Bring audit\.key of the home"):
        restore_backup(again.home, tmp_path / "backup.tar", keys={}, show_progress=False)
    with pytest.raises(BackupError, match="was cut off"):
        restore_backup(
            again.home, tmp_path / "backup.tar", keys={"audit.key": b"k" * 32}, show_progress=False
        )


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


@pytest.mark.slow
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
