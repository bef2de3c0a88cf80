"""A folder of one owner: empty for whoever comes next, and closed to others meanwhile."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from index.backup.contents import working_folder
from index.errors import BackupError

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
