"""Trainings that tests give to workers: long enough to continue elsewhere, or never to end by themselves."""

import json
import os
import time
from pathlib import Path

from app.jobs.folder import JobFolder
from index.catalogue.jobs import Job
from tests.e2e.work import TINY
from tests.jobs import Jobs

EPOCHS = 30
OVERRIDES = [
    *TINY,
    f"train.epochs={EPOCHS}",
    "train.batch_size=8",
    "train.checkpoint_minutes=0",
    "train.log_every_steps=1",
]
SETS = [part for override in OVERRIDES for part in ("--set", override)]


def give_training(jobs: Jobs, scenes: Path) -> int:
    return jobs.give("train", "demo-scenes", "--data", scenes.name, *SETS, folder=scenes.parent)


def give_long_training(jobs: Jobs, scenes: Path) -> int:
    """One that the test ends: seconds may pass until a worker sees that it is to, however fast it trains."""
    sets = [*SETS, "--set", "train.epochs=1000"]
    return jobs.give("train", "demo-scenes", "--data", scenes.name, *sets, folder=scenes.parent)


def in_training(job: Job) -> bool:
    assert not job.has_ended, job
    return job.progress is not None and job.progress["what"] == "training" and job.progress["done"] >= 5


def check_steps(run: Path) -> None:
    """Each step of a run is in its figures once, in order."""
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").open() if '"train"' in line]
    assert steps == list(range(1, len(steps) + 1))


def check_done(job: Job, run: Path) -> None:
    """A training has come to its end, and has the figures of its bundle as its result."""
    assert job.progress is not None
    assert job.progress["done"] == job.progress["total"]
    assert job.result == json.loads((run / "bundle" / "metrics.json").read_text())
    check_steps(run)


def wait_for_the_lock(folder: JobFolder) -> None:
    """Wait until no process of the job is left."""
    deadline = time.monotonic() + 10
    while (lock := folder.lock()) is None:
        assert time.monotonic() < deadline, "the job's process outlives its worker"
        time.sleep(0.05)
    os.close(lock)
