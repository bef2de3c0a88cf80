"""Trainings in several processes: how many, and that they are stopped, killed and gone on with together."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed.elastic.multiprocessing.api import SignalException

from app.jobs.folder import JobFolder
from app.jobs.launch import process_count, train_together
from index.catalogue.jobs import cancel_job
from tests.app.jobs.trainings import (
    SETS,
    check_done,
    give_long_training,
    give_training,
    in_training,
    wait_for_the_lock,
)
from tests.e2e.work import COMMAND
from tests.jobs import Jobs, opened_jobs
from training.common.errors import RecipeError
from training.models.bundle import read_bundle
from training.recipes.load import load_recipe
from training.trainer.opening import RunOptions
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.tracking import TrackerName


@pytest.mark.parametrize(
    ("expected", "device", "gpus", "torchrun", "processes"),
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
    expected: int,
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
    assert process_count(expected, recipe, tmp_path, resume=False, device=device) == processes
    if not torchrun:
        with pytest.raises(RecipeError):
            process_count(0, recipe, tmp_path, resume=False, device="no device")


def test_the_launcher_gets_the_training_and_the_signals_that_are_not_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(words: list[str]) -> None:
        assert " ".join(words) == (
            "--standalone --nproc-per-node 3 --signals-to-handle SIGTERM,SIGINT,SIGQUIT --module "
            f"app.cli.process training {os.getpid()} train r --data d --out {tmp_path} --set a=1 --resume "
            "--track wandb --device cpu"
        )
        assert logging.root.manager.disable == logging.CRITICAL
        signal.signal(signal.SIGHUP, signal.default_int_handler)
        raise SignalException("stopped", signal.SIGTERM)

    monkeypatch.setattr("torch.distributed.run.parse_args", lambda words: words)
    monkeypatch.setattr("torch.distributed.run.run", run)
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    options = RunOptions(tmp_path, resume=True, device="cpu", trackers=(TrackerName.WANDB,))
    with pytest.raises(SystemExit, match="143"):
        train_together(3, "train", "r", Path("d"), ["a=1"], options)
    assert {**os.environ, "logging": logging.root.manager.disable} == {"OMP_NUM_THREADS": "2", "logging": 0}
    assert signal.signal(signal.SIGHUP, before) == signal.SIG_IGN


PROCESSES = 2
MEMBER = "app.cli.process training"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with opened_jobs(tmp_path / "home", None, train_processes=PROCESSES) as opened:
        yield opened


def _run(jobs: Jobs, number: int) -> Path:
    return JobFolder.for_job(jobs.settings, number).path / "run"


def _processes(run: Path) -> dict[int, str]:
    """The processes of a training, and their command lines."""
    results = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if str(run) in words:
            results[int(file.parent.name)] = " ".join(words)
    return results


def _members(run: Path) -> list[int]:
    return [process for process, line in _processes(run).items() if MEMBER in line]


def _train_by_hand(scenes: Path, out: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES))
    command = ("train", "demo-scenes", "--data", str(scenes), "--out", str(out), "--device", "cpu", *SETS)
    threads = max(1, len(os.sched_getaffinity(0)) // PROCESSES)
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    subprocess.run(
        [sys.executable, *torchrun, "--no-python", *COMMAND, *command], check=True, env=environment
    )


# They begin many processes, each of which takes seconds to import what it needs.
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_whose_worker_is_killed_goes_on_to_what_torchrun_comes_to(
    jobs: Jobs, scenes: Path, tmp_path: Path
) -> None:
    number = give_training(jobs, scenes)
    run = _run(jobs, number)
    with jobs.worker() as worker:
        jobs.wait(number, in_training)
        assert len(_members(run)) == PROCESSES
        worker.kill()
        worker.wait()
    wait_for_the_lock(JobFolder.for_job(jobs.settings, number))
    assert not _processes(run)
    assert jobs.get(number).state == "running"
    with jobs.worker():
        done = jobs.wait(number)
    assert (done.state, done.attempts, done.lapses) == ("done", 2, 1), jobs.log(number)
    assert not _processes(run)
    check_done(done, run)
    _train_by_hand(scenes, tmp_path / "by-hand")
    assert read_bundle(run / "bundle").digest == read_bundle(tmp_path / "by-hand" / "bundle").digest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_that_is_cancelled_writes_its_checkpoint_and_leaves_no_process(jobs: Jobs, scenes: Path) -> None:
    number = give_long_training(jobs, scenes)
    run = _run(jobs, number)
    with jobs.worker():
        jobs.wait(number, in_training)
        with jobs.catalogue.write() as session:
            cancel_job(session, number)
        assert jobs.wait(number).state == "cancelled"
        assert not _processes(run)
    stopped = load_checkpoint(run / "checkpoints" / "last.pt")
    assert len(stopped.random) == PROCESSES
    assert "Stopped." in jobs.log(number)
    assert not (run / "bundle").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_that_loses_a_process_fails_and_says_so(jobs: Jobs, scenes: Path) -> None:
    number = give_long_training(jobs, scenes)
    run = _run(jobs, number)
    with jobs.worker():
        jobs.wait(number, in_training)
        os.kill(_members(run)[-1], signal.SIGKILL)
        failed = jobs.wait(number)
        assert not _processes(run)
    assert failed.state == "failed"
    assert "Another process of the run ended without saying why" in (failed.error or ""), jobs.log(number)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hang_up_does_not_end_one_that_nohup_began(scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ("train", "demo-scenes", "--data", str(scenes), "--out", str(out), "--device", "cpu", *SETS)
    nohup = ("nohup", *COMMAND, *command, "--processes", str(PROCESSES))
    with subprocess.Popen(nohup, stdin=subprocess.DEVNULL) as training:
        try:
            for _ in range(600):
                if len(_members(out)) == PROCESSES:
                    break
                time.sleep(0.2)
            for process in (training.pid, *_members(out)):
                os.kill(process, signal.SIGHUP)
            assert training.wait(600) == 0
        finally:
            training.kill()
    assert (out / "bundle").exists()
