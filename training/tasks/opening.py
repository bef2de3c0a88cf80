"""Start of a run of any task: folder, device and loop."""

from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from lightning_fabric import Fabric

from training.errors import RecipeError
from training.tasks.config import TaskRecipe
from training.tasks.loop import Problem, TaskLoop
from training.trainer.optimisation.parameter_groups import adam
from training.trainer.run_state.checkpoint import Checkpoint, seed_everything
from training.trainer.run_state.devices import build_fabric, pin_threads
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.folder import RunFolder
from training.trainer.run_state.metrics_log import MetricsLog
from training.trainer.steps import Drawn


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
    """

    out: Path
    resume: bool = False
    device: str = "auto"
    show_progress: bool = True


@dataclass(frozen=True)
class OpenRun(Generic[Drawn]):
    """A run that may begin or go on.

    Attributes:
        recipe: Resolved.
        folder: Folder of the run.
        fabric: Device and precision.
        checkpoint: Checkpoint to resume from; None: a new run.
        show_progress: Show bars on standard error.
    """

    recipe: TaskRecipe
    folder: RunFolder
    fabric: Fabric
    checkpoint: Checkpoint | None
    show_progress: bool

    def fit(self, problem: Problem[Drawn]) -> TaskLoop[Drawn]:
        """Train to the end; the folder then holds the best checkpoint.

        Raises:
            TrainingError: The checkpoint is of other data, or the run went wrong.
            TrainingInterruptedError: The run was asked to stop.
        """
        loop = self._loop(problem)
        if self.checkpoint is None:
            loop.save(self.folder.last.name)
            self.folder.write_recipe(self.recipe)
        elif self.checkpoint.data != loop.fingerprint:
            raise TrainingError(
                "The training data or the encoder are not those that the run in "
                f"{self.folder.path} was started with: give the same, or start a new run in another folder."
            )
        else:
            loop.restore(self.checkpoint)
        with MetricsLog(self.folder.path, loop.position.step) as log:
            loop.run(log, show_progress=self.show_progress)
        return loop

    def _loop(self, problem: Problem[Drawn]) -> TaskLoop[Drawn]:
        tower = [] if problem.module.tower is None else list(problem.module.tower.parameters())
        inside = {id(parameter) for parameter in tower}
        others = [parameter for parameter in problem.module.parameters() if id(parameter) not in inside]
        trained = [parameter for parameter in tower if parameter.requires_grad]
        optimizer = adam(trained, others, self.recipe.optimizer, self.fabric.device)
        task, wrapped = self.fabric.setup(problem.module, optimizer)
        return TaskLoop(
            recipe=self.recipe,
            optimizer=optimizer,
            batches=problem.batches,
            folder=self.folder.checkpoints,
            fingerprint=problem.fingerprint,
            total_steps=self.recipe.train.epochs * problem.batches.batches_per_epoch,
            fabric=self.fabric,
            problem=problem,
            task=task,
            stepping=wrapped,
        )


def open_run(recipe: TaskRecipe, options: RunOptions) -> OpenRun[Drawn]:
    """Check the folder before any data are read, choose the device, and seed the global generators.

    Raises:
        TrainingError: The folder is not empty, or has no checkpoint of this recipe to resume from.
        RecipeError: The device does not exist, or there are several processes.
    """
    pin_threads()
    folder, checkpoint = RunFolder(options.out), None
    if options.resume:
        checkpoint = folder.read_checkpoint(recipe)
    else:
        folder.check_unused()
    fabric = build_fabric(recipe.train.precision, options.device)
    if fabric.world_size > 1:
        raise RecipeError("This command runs in one process: start it without torchrun.")
    seed_everything(recipe.train.seed)
    return OpenRun(recipe, folder, fabric, checkpoint, options.show_progress)
