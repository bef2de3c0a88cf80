"""The folder of a job."""

import os
import subprocess
import sys
from pathlib import Path

from app.jobs.folder import ATTEMPT, JobFolder
from app.jobs.kinds import command_line, read_result


def test_the_lock_is_held_until_the_last_process_that_has_it_ends(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    lock = folder.lock()
    assert lock is not None
    assert folder.lock() is None
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,)
    ) as process:
        os.close(lock)
        assert folder.lock() is None
        process.communicate(b"\n")
    again = folder.lock()
    assert again is not None
    os.close(again)


def test_the_last_sentence_is_of_the_latest_attempt(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    first = f"{ATTEMPT}1 by a\nrecoquest: Stopped.\n{ATTEMPT}2 by b\nTraining\n"
    folder.log.write_text(first)
    assert folder.last_sentence() is None
    folder.log.write_text(f"{first}recoquest: One.\n{'.' * 100_000}\nrecoquest: Two.\n")
    assert folder.last_sentence() == "Two."


def test_progress_that_is_none_is_none(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    assert folder.read_progress() is None
    for content in ("", "[1]", '{"done"'):
        folder.progress.write_text(content)
        assert folder.read_progress() is None


def test_a_training_goes_on_from_its_checkpoint_and_begins_anew_without_one(tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = ["recipe", "--data", "d"]
    begun = ["train", "--out", str(run), "--processes", "2", *given]
    assert command_line("train", given, tmp_path, 2) == begun
    # A process that is killed before its first checkpoint leaves a folder in which no run could begin.
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / ".last.pt.part").touch()
    assert command_line("train", given, tmp_path, 2) == begun
    assert not run.exists()
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "last.pt").touch()
    assert command_line("train", given, tmp_path, 2) == [*begun[:5], "--resume", *given]
    assert command_line("tidy", [], tmp_path, 2) == ["tidy"]
    assert command_line("pacs_sync", ["films"], tmp_path, 2) == ["pacs", "sync", "films"]


def test_a_result_is_read_where_there_is_one(tmp_path: Path) -> None:
    assert read_result("evaluate", tmp_path) is None
    (tmp_path / "report.json").write_text('{"rsum": 1}')
    assert read_result("evaluate", tmp_path) == {"rsum": 1}
    assert read_result("tidy", tmp_path) is None
    (tmp_path / "report.json").write_text('{"rsum": "' + "x" * 100_000 + '"}')
    assert read_result("evaluate", tmp_path) is None
