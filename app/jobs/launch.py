"""Trainings that the commands start: in several processes of this machine, by torch's own launcher."""

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from training.common.host import end_with_parent
from training.models.encoder import choose_device
from training.recipes.schema import Recipe
from training.recipes.tasks import TaskRecipe
from training.tasks.opening import RunOptions
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import AnotherProcessFailedError
from training.trainer.run_state.folder import RunFolder
from training.trainer.run_state.processes import launched_processes


def without_copies(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """The recipe with images in memory in place of the disk, unless an override says where."""
    said = any(override.partition("=")[0].strip() == "data.cache_images" for override in overrides)
    if said or recipe.data.cache_images is not True:
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"cache_images": "memory"})})


def process_count(wanted: int, recipe: Recipe | TaskRecipe, out: Path, *, resume: bool, device: str) -> int:
    """Number of processes for a training; 1 if it is launched as one of several already.

    If 0 are wanted: that of a resumed run, else one for each GPU, or as many of them as split the batch
    evenly. A single device is not shared.

    Raises:
        RecipeError: The device does not exist.
        TrainingError: The run's checkpoint is damaged.
    """
    if launched_processes() > 1:
        return 1
    if wanted:
        return wanted
    last = RunFolder(out).last
    if resume and last.is_file():
        return len(load_checkpoint(last).random)
    chosen = choose_device(device)
    gpus = torch.cuda.device_count() if chosen.type == "cuda" and chosen.index is None else 1
    return max(count for count in range(1, gpus + 1) if recipe.train.batch_size % count == 0)


def train_together(
    count: int, command: str, recipe: str, data: Path, overrides: Sequence[str], options: RunOptions
) -> None:
    """Run a command that trains in several processes, which end with this one.

    They print for themselves. Stopped by a signal, this waits until they have written their checkpoint.
    On a device without a number each takes a GPU of its own.

    Raises:
        AnotherProcessFailedError: One of them failed, and has said why.
    """
    sets = [part for override in overrides for part in ("--set", override)]
    goes_on = ["--resume"] if options.resume else []
    files = ["--data", str(data), "--out", str(options.out)]
    followed = [part for tracker in options.trackers for part in ("--track", tracker)]
    arguments = [command, recipe, *files, *sets, *goes_on, *followed, "--device", options.device]
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    process = subprocess.Popen(
        [sys.executable, "-m", "app.jobs.launch", str(os.getpid()), str(count), *arguments],
        env={"OMP_NUM_THREADS": str(threads), **os.environ},
        # Ctrl-C at a terminal is passed on below, once.
        start_new_session=True,
    )
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if code:
        raise AnotherProcessFailedError


def main(parent: int, count: int, arguments: Sequence[str]) -> None:
    """Do what torchrun does, on this machine alone, until all processes have ended or one has failed."""
    # The parent needs none of these.
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    end_with_parent(parent)
    launcher = ("--standalone", "--nproc-per-node", str(count), "--module", "app.cli.process")
    # The process that failed has said why; torch would add tracebacks of its launcher.
    logging.disable()
    try:
        run(parse_args([*launcher, "training", str(os.getpid()), *arguments]))  # type: ignore[no-untyped-call]
    except ChildFailedError:
        sys.exit(1)
    except SignalException as received:
        sys.exit(128 + received.sigval)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
