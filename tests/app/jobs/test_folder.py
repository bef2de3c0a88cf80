"""The folder of a job, the processes of a training, and the heartbeat of a worker."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from app.heartbeat import Heartbeat, count_workers
from app.jobs.folder import ATTEMPT, JobFolder
from app.jobs.kinds import command_line, read_result
from app.jobs.launch import process_count
from app.settings import Settings
from training.common.errors import RecipeError
from training.recipes.load import load_recipe


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


@pytest.mark.parametrize(
    ("wanted", "device", "gpus", "torchrun", "processes"),
    [
        (3, "cpu", 0, False, 3),
        (0, "cpu", 0, False, 1),
        (0, "cpu", 4, False, 1),
        # As many as split the batch evenly.
        (0, "auto", 1, False, 1),
        (0, "auto", 4, False, 4),
        (0, "auto", 5, False, 4),
        (0, "auto", 8, False, 6),
        # One that torchrun has started is not shared again.
        (2, "cpu", 0, True, 1),
    ],
)
def test_as_many_processes_as_are_wanted_or_fit_the_gpus(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: int,
    device: str,
    gpus: int,
    torchrun: bool,
    processes: int,
) -> None:
    recipe = load_recipe("demo-scenes", ["train.batch_size=12"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    if torchrun:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
    assert process_count(wanted, recipe, tmp_path, resume=False, device=device) == processes
    if not torchrun:
        with pytest.raises(RecipeError):
            process_count(0, recipe, tmp_path, resume=False, device="no device")


def _files(settings: Settings) -> set[str]:
    return {file.name for file in (settings.home / "workers").iterdir()}


def test_who_says_nothing_any_more_does_not_count(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    assert count_workers(settings) == 0
    heartbeat = Heartbeat(settings)
    heartbeat.beat()
    (ours,) = _files(settings)
    for name, seconds in (("here:1", 3), ("here:2", 40), ("gone:3", 4000)):
        file = settings.home / "workers" / name
        file.touch()
        os.utime(file, (time.time() - seconds,) * 2)
    assert count_workers(settings) == 2
    os.utime(settings.home / "workers" / ours, (0, 0))
    assert count_workers(settings) == 1
    heartbeat.beat()
    assert count_workers(settings) == 2
    heartbeat.end()
    assert _files(settings) == {"here:1", "here:2"}
