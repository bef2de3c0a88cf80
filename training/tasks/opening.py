"""Start of a run of any task: folder, device, processes and loop."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from lightning_fabric import Fabric
from torch import nn

from training.common.rejections import Rejections
from training.recipes.load import dump_recipe
from training.recipes.tasks import TaskRecipe
from training.tasks.problem import TaskProblem
from training.trainer.loop import Drawn, TrainingLoop
from training.trainer.optimisation.batch_norm import check_batch_norm, synchronise, warn_of_batch_norm
from training.trainer.optimisation.parameter_groups import optimizer_of
from training.trainer.run_state.checkpoint import Checkpoint, seed_everything
from training.trainer.run_state.devices import build_fabric, pin_threads
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.folder import RunFolder
from training.trainer.run_state.processes import Processes, check_divisible, joined
from training.trainer.run_state.tracking import TrackerName, check_trackers

logger = logging.getLogger(__name__)
Reported = TypeVar("Reported")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Folder, device and output of a run.

    Attributes:
        out: Empty or new; with `resume`, the folder of a run with the same recipe and data. It then holds
            `results.json`, `checkpoints/last.pt` and `best.pt`, `metrics.jsonl`, `tensorboard/` and the
            resolved `recipe.yaml`.
        resume: Go on from the last checkpoint; on a CPU the result is bit-equal to a run that never stopped.
        device: A torch device; "auto": the GPU if there is one, else the CPU.
        show_progress: Show bars on standard error.
        trackers: Follow the run beside TensorBoard.
    """

    out: Path
    resume: bool = False
    device: str = "auto"
    show_progress: bool = True
    trackers: tuple[TrackerName, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[Reported]):
    """Result of a finished run.

    Attributes:
        test: Figures of the best checkpoint on the examples that are reported.
        validation: Metrics of the best checkpoint on the examples that chose it.
        checkpoint: Path of the best checkpoint.
        rejected: Number of lines and images left out.
    """

    test: Reported
    validation: dict[str, float]
    checkpoint: Path
    rejected: int


@dataclass(frozen=True)
class OpenRun:
    """A run that may begin or go on.

    Attributes:
        recipe: Resolved.
        folder: Folder of the run.
        fabric: Device and precision.
        processes: That train together, each on its share of every batch.
        checkpoint: Checkpoint to resume from; None: a new run.
        show_progress: Show bars on standard error; the leading process alone does.
        trackers: Follow the run beside TensorBoard.
    """

    recipe: TaskRecipe
    folder: RunFolder
    fabric: Fabric
    processes: Processes
    checkpoint: Checkpoint | None
    show_progress: bool
    trackers: tuple[TrackerName, ...]

    def handle_batch_norm(self, module: nn.Module, *, smallest: int) -> None:
        """Take the statistics of batch norm that is trained over all GPUs; on CPUs of each process's share.

        Raises:
            RecipeError: Batch norm would see a single item.
        """
        several = self.processes.count > 1
        synchronised = several and self.fabric.device.type == "cuda"
        check_batch_norm(module, smallest=smallest)
        warn_of_batch_norm(module, chunks=False, shares=several and not synchronised)
        if synchronised:
            synchronise(module)

    def fit(self, problem: TaskProblem[Drawn]) -> TrainingLoop[Drawn]:
        """Train to the end; the module then has the weights of the best checkpoint.

        Raises:
            TrainingError: The checkpoint is of other data, or the run went wrong.
            TrainingInterruptedError: The run was asked to stop.
        """
        self.processes.check_alike(problem.fingerprint + dump_recipe(self.recipe), "recipes or training data")
        self.processes.share_weights(problem.module.to(self.fabric.device))
        if self.processes.rank:
            seed_everything(self.recipe.train.seed, self.processes.rank)
        loop = self._loop(problem)
        loop.start(self.checkpoint)
        loop.run(show_progress=self.show_progress, trackers=self.trackers)
        if not loop.metrics:
            raise TrainingError(
                f"The {problem.chosen_by} of the validation examples was never a number, so there is no best "
                "checkpoint: try a lower optimizer.lr."
            )
        loop.load_best()
        return loop

    def report(self, *parts: Rejections) -> int:
        """Name the records that any process left out, and count them."""
        whole = [part.joined(self.processes.gathered(part)) for part in parts]
        for rejections in whole:
            if rejections.items:
                logger.warning("%s", rejections.summary())
        return sum(map(len, whole))

    def finish(
        self,
        loop: TrainingLoop[Drawn],
        reported: Reported,
        figures: Mapping[str, Any],
        counts: Mapping[str, Any],
        rejected: int,
    ) -> "TaskResult[Reported]":
        """Write `results.json`, once.

        Args:
            loop: Of the training that has ended.
            reported: Figures of the best checkpoint, for the caller.
            figures: The same as `results.json` has them, with the task before them.
            counts: What was counted of the data.
            rejected: Number of lines and images left out.
        """
        results = {
            "recipe": self.recipe.name,
            **figures,
            "validation": loop.metrics,
            "steps": loop.position.step,
            **counts,
            "rejected": rejected,
        }
        if self.processes.leads:
            self.folder.write_results(results)
        return TaskResult(reported, loop.metrics, self.folder.best, rejected)

    def _loop(self, problem: TaskProblem[Drawn]) -> TrainingLoop[Drawn]:
        tower = [] if problem.module.tower is None else list(problem.module.tower.parameters())
        inside = {id(parameter) for parameter in tower}
        others = [parameter for parameter in problem.module.parameters() if id(parameter) not in inside]
        trained = [parameter for parameter in tower if parameter.requires_grad]
        return TrainingLoop(
            recipe=self.recipe,
            problem=problem,
            optimizer=optimizer_of(trained, others, self.recipe.optimizer, self.fabric.device),
            device=self.fabric.device,
            folder=self.folder,
            total_steps=self.recipe.train.epochs * problem.batches.batches_per_epoch,
            processes=self.processes,
        )


@contextmanager
def open_run(recipe: TaskRecipe, options: RunOptions) -> Iterator[OpenRun]:
    """Check the folder before any data are read, join the other processes, and seed the global generators.

    Started by torchrun, all processes train one model together; the first one writes and reports.

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
        shown = options.show_progress and processes.leads
        yield OpenRun(recipe, folder, fabric, processes, checkpoint, shown, options.trackers)
