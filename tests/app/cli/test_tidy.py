"""`recoquest tidy` on what killed processes have left unfinished."""

import os
import time
from pathlib import Path

from app.engine import open_engine
from app.settings import Settings
from tests.app.commands import run_command


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
