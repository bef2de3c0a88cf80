"""Trainings that the commands start: in several processes of this machine, by torch's own launcher."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from training.models.encoder import choose_device
from training.recipes.schema import Recipe
from training.recipes.tasks import TaskRecipe
from training.trainer.opening import RunOptions
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import AnotherProcessFailedError
from training.trainer.run_state.folder import RunFolder
from training.trainer.run_state.processes import launched_processes

# Signals for which torch's launcher sets handlers that it leaves.
_CAUGHT: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def without_copies(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """The recipe with images in memory instead of the disk, unless an override says where."""
    is_overridden = any(override.partition("=")[0].strip() == "data.cache_images" for override in overrides)
    if is_overridden or recipe.data.cache_images is not True:
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"cache_images": "memory"})})


def process_count(
    requested: int, recipe: Recipe | TaskRecipe, out: Path, *, resume: bool, device: str
) -> int:
    """Number of processes for a training; 1 if it is already launched as one of several.

    If 0 are requested: that of a resumed run, otherwise one for each GPU, or as many of them as split the
    batch evenly. A single device is not shared.

    Raises:
        RecipeError: The device does not exist.
        TrainingError: The run's checkpoint is damaged.
    """
    if launched_processes() > 1:
        return 1
    if requested:
        return requested
    last = RunFolder(out).last
    if resume and last.is_file():
        return len(load_checkpoint(last).random)
    chosen = choose_device(device)
    gpus = torch.cuda.device_count() if chosen.type == "cuda" and chosen.index is None else 1
    return max(count for count in range(1, gpus + 1) if recipe.train.batch_size % count == 0)


def train_together(
    count: int, command: str, recipe: str, data: Path, overrides: Sequence[str], options: RunOptions
) -> None:
    """Do what torchrun does with a command that trains in several processes, which end with this one.

    They print for themselves. Stopped by a signal, this waits until they have written their checkpoint.
    On a device without a number each takes a GPU of its own.

    Raises:
        AnotherProcessFailedError: One of them failed, and has reported why.
    """
    # No other command needs these.
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    sets = [part for override in overrides for part in ("--set", override)]
    goes_on = ["--resume"] if options.resume else []
    files = ["--data", str(data), "--out", str(options.out)]
    followed = [part for tracker in options.trackers for part in ("--track", tracker)]
    arguments = [command, recipe, *files, *sets, *goes_on, *followed, "--device", options.device]
    before = {number: signal.getsignal(number) for number in _CAUGHT}
    # What is ignored stays so: a hang-up does not end a training that `nohup` began.
    caught = ",".join(signal.Signals(number).name for number in _CAUGHT if before[number] != signal.SIG_IGN)
    launcher = (
        "--standalone",
        *("--nproc-per-node", str(count)),
        *("--signals-to-handle", caught),
        *("--module", "app.cli.process"),
    )
    member = ("training", str(os.getpid()))
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    # The failed process has reported why; torch would add tracebacks of its launcher.
    logging.disable()
    try:
        run(parse_args([*launcher, *member, *arguments]))  # type: ignore[no-untyped-call]
    except ChildFailedError:
        raise AnotherProcessFailedError from None
    except SignalException as received:
        if received.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        sys.exit(128 + received.sigval)
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)
