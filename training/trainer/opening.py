"""The frame of every run: its folder, device and processes, and the training loop in it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lightning_fabric import Fabric
from torch import nn
from torch.optim import Optimizer

from training.common.rejections import Rejection, Rejections
from training.recipes.schema import Recipe
from training.recipes.tasks import TaskRecipe
from training.trainer.loop import Callback, Drawn, Task, TrainingLoop
from training.trainer.optimisation.batch_norm import check_batch_norm, synchronise
from training.trainer.run_state.checkpoint import Checkpoint, seed_everything
from training.trainer.run_state.devices import build_fabric, pin_threads
from training.trainer.run_state.folder import RunFolder
from training.trainer.run_state.processes import Processes, check_divisible, joined
from training.trainer.run_state.tracking import TrackerName, check_trackers

logger = logging.getLogger(__name__)
AnyRecipe = TypeVar("AnyRecipe", Recipe, TaskRecipe)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Folder, device and output of a run.

    Attributes:
        out: Empty or new; with `resume`, the folder of a run with the same recipe and data.
        resume: Continue from the last checkpoint; on a CPU the result is bit-equal to a run without a stop.
        device: A torch device; "auto": the GPU if there is one, otherwise the CPU.
        show_progress: Show bars on standard error.
        trackers: Trackers in addition to TensorBoard.
    """

    out: Path
    resume: bool = False
    device: str = "auto"
    show_progress: bool = True
    trackers: tuple[TrackerName, ...] = ()


@dataclass(frozen=True)
class OpenRun:
    """A run that is ready to start or to resume.

    Attributes:
        folder: Folder of the run.
        fabric: Device and precision.
        processes: Processes that train together, each on its share of every batch.
        checkpoint: Checkpoint to resume from; None: a new run.
        show_progress: Show bars on standard error; only the main process does.
        trackers: Trackers in addition to TensorBoard.
    """

    folder: RunFolder
    fabric: Fabric
    processes: Processes
    checkpoint: Checkpoint | None
    show_progress: bool
    trackers: tuple[TrackerName, ...]

    def synchronise_batch_norm(self, module: nn.Module, *, smallest: int, several: bool = True) -> bool:
        """Compute the statistics of batch norm that is trained over the GPUs of all processes.

        Args:
            module: Module to train.
            smallest: Fewest items that a forward pass sees.
            several: False leaves each process its own statistics.

        Returns:
            Whether they are; on CPUs each process has those of its share.

        Raises:
            RecipeError: Batch norm would see a single item.
        """
        check_batch_norm(module, smallest=smallest)
        synchronised = several and self.processes.count > 1 and self.fabric.device.type == "cuda"
        if synchronised:
            synchronise(module)
        return synchronised

    def share_weights(self, module: nn.Module, seed: int) -> None:
        """Move a module to the device, with the same weights in all processes, and seed each by its rank."""
        self.processes.share_weights(module.to(self.fabric.device))
        if self.processes.rank:
            seed_everything(seed, self.processes.rank)

    def fit(
        self,
        task: Task[Drawn],
        recipe: AnyRecipe,
        optimizer: Optimizer,
        *,
        total_steps: int,
        callbacks: Sequence[Callback] = (),
    ) -> TrainingLoop[Drawn]:
        """Train to the end.

        Raises:
            TrainingError: The checkpoint is of other data, or the run went wrong.
            TrainingInterruptedError: The run was asked to stop.
        """
        loop = TrainingLoop(
            recipe=recipe,
            task=task,
            optimizer=optimizer,
            device=self.fabric.device,
            folder=self.folder,
            total_steps=total_steps,
            processes=self.processes,
            callbacks=callbacks,
        )
        loop.start(self.checkpoint)
        loop.run(show_progress=self.show_progress, trackers=self.trackers)
        return loop

    def report(self, *parts: Rejections) -> tuple[Rejection, ...]:
        """Log what any process left out of the data, and return it."""
        whole = [part.joined(self.processes.gathered(part)) for part in parts]
        for rejections in whole:
            if rejections.items:
                logger.warning("%s", rejections.summary())
        return tuple(item for rejections in whole for item in rejections.items)


@contextmanager
def open_run(recipe: AnyRecipe, options: RunOptions) -> Iterator[OpenRun]:
    """Check the folder before any data are read, join the other processes, and seed the global generators.

    Started by torchrun, all processes train one model together; the main one writes and reports.

    Raises:
        TrainingError: The folder is not empty, has no checkpoint of this recipe to resume from, or a tracker
            is not installed.
        RecipeError: The device does not exist, or the processes cannot split a batch evenly.
    """
    check_trackers(options.trackers)
    pin_threads()
    fabric = build_fabric(recipe.train.precision, options.device)
    with joined(fabric) as processes:
        check_divisible(recipe.train.batch_size, processes.count)
        folder = RunFolder(options.out)
        checkpoint = folder.checkpoint_to_resume(recipe, processes, resume=options.resume)
        seed_everything(recipe.train.seed)
        shown = options.show_progress and processes.is_main
        yield OpenRun(folder, fabric, processes, checkpoint, shown, options.trackers)
