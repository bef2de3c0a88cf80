"""A run whose result is figures, not an encoder: a module, its loss, and the figure that chooses weights."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from training.common.errors import RecipeError
from training.objectives.base import LossOutput
from training.recipes.load import dump_recipe
from training.recipes.tasks import TaskRecipe
from training.trainer.loop import Batches, Drawn, Task, TrainingLoop
from training.trainer.memory.live import Growth, LiveMemory
from training.trainer.memory.plan import bytes_of_learning, format_bytes, free_bytes
from training.trainer.memory.trial import unchanged, with_margin
from training.trainer.modules import TrainedModule
from training.trainer.opening import OpenRun
from training.trainer.optimisation.batch_norm import warn_of_batch_norm
from training.trainer.optimisation.parameter_groups import optimizer_of
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.processes import Processes

_FEW: Final = 2
_MANY: Final = 4
# A bound need not be made exact where so many times as much is free.
_PLENTY: Final = 4
Measured = TypeVar("Measured")


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[Measured]):
    """Result of a finished run.

    Attributes:
        test: Figures of the best checkpoint on the examples that are reported.
        validation: Metrics of the best checkpoint on the examples that chose it.
        checkpoint: Path of the best checkpoint.
        rejected: Number of lines and images left out.
    """

    test: Measured
    validation: dict[str, float]
    checkpoint: Path
    rejected: int


@dataclass(kw_only=True)
class ModuleTask(Task[Drawn]):
    """Module, batches and validation metric of a run.

    Attributes:
        run: Run in which the module is trained.
        recipe: Resolved recipe.
        module: Module whose `forward` gives the mean loss of the rows that it gets, and its terms.
        batches: Training batches.
        inputs: Arguments of `forward` on the device, from a batch and the number of the step from 0; the
            first one has a row for each sample.
        validate: The figures by which the best checkpoint is chosen; the module is in evaluation mode.
        chosen_by: The figure that chooses; higher is better.
        fingerprint: Digest of data and encoder, which a resumed run must find unchanged.
        largest: Makes a batch that takes as much memory as any; None: all batches are alike.
    """

    run: OpenRun
    recipe: TaskRecipe
    module: TrainedModule
    batches: Batches[Drawn]
    inputs: Callable[[Drawn, int], tuple[Tensor, ...]]
    validate: Callable[[], dict[str, float]]
    chosen_by: str
    fingerprint: str
    largest: Callable[[], Drawn] | None = None

    def check(self, batch: Drawn, step: int) -> None:
        """Make sure that the memory has room for a step of any batch.

        Raises:
            RecipeError: It has not.
        """
        tried = batch if self.largest is None else self.largest()
        check_step(self.module, self.inputs(tried, step), self.run.fabric, self.run.processes)

    def backward(self, batch: Drawn, step: int) -> tuple[LossOutput, int]:
        """Add the gradient of a share of the batch, whose mean counts as much as it has rows."""
        inputs, processes = self.inputs(batch, step), self.run.processes
        samples = len(inputs[0])
        weight = samples * processes.count / sum(processes.gathered(samples))
        with self.run.fabric.autocast():
            total, terms = self.module(*inputs)
        output = LossOutput(weight * total, {name: weight * term for name, term in terms.items()})
        torch.autograd.backward(output.total)
        return output, samples

    def measure(self) -> dict[str, float]:
        """Return the figures of the validation examples."""
        return self.measured(self.validate)

    def measured(self, figures: Callable[[], Measured]) -> Measured:
        """Return figures that the main process computes, the module in evaluation mode; the others wait."""
        self.module.eval()
        (computed,) = self.run.processes.broadcast([figures()] if self.run.processes.is_main else [])
        self.module.train()
        return computed

    def fit(self) -> TrainingLoop[Drawn]:
        """Train to the end, and give the module the weights of the best checkpoint.

        Raises:
            TrainingError: The checkpoint is of other data, or the run went wrong.
            TrainingInterruptedError: The run was asked to stop.
        """
        run, recipe = self.run, self.recipe
        run.processes.check_alike(self.fingerprint + dump_recipe(recipe), "recipes or training data")
        run.share_weights(self.module, recipe.train.seed)
        tower = [] if self.module.tower is None else list(self.module.tower.parameters())
        inside = {id(parameter) for parameter in tower}
        others = [parameter for parameter in self.module.parameters() if id(parameter) not in inside]
        trained = [parameter for parameter in tower if parameter.requires_grad]
        optimizer = optimizer_of(trained, others, recipe.optimizer, run.fabric.device)
        loop = run.fit(
            self, recipe, optimizer, total_steps=recipe.train.epochs * self.batches.batches_per_epoch
        )
        if not loop.metrics:
            raise TrainingError(
                f"The {self.chosen_by} of the validation examples was never a number, so there is no best "
                "checkpoint: try a lower optimizer.lr."
            )
        loop.load_best()
        return loop

    def finish(
        self,
        loop: TrainingLoop[Drawn],
        test: Measured,
        figures: Mapping[str, Any],
        counts: Mapping[str, Any],
        rejected: int,
    ) -> TaskResult[Measured]:
        """Write `results.json`, once.

        Args:
            loop: Loop that has ended.
            test: Figures of the best checkpoint, for the caller.
            figures: The same as `results.json` has them, after the name of the task.
            counts: What was counted in the data.
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
        if self.run.processes.is_main:
            self.run.folder.write_results(results)
        return TaskResult(test, loop.metrics, self.run.folder.best, rejected)


def prepare_batch_norm(run: OpenRun, module: nn.Module, *, smallest: int) -> None:
    """Compute the statistics of batch norm over all GPUs; on CPUs warn that each process has its own.

    Raises:
        RecipeError: Batch norm would see a single item.
    """
    synchronised = run.synchronise_batch_norm(module, smallest=smallest)
    warn_of_batch_norm(module, chunks=False, shares=run.processes.count > 1 and not synchronised)


def check_step(module: TrainedModule, inputs: Sequence[Tensor], fabric: Fabric, processes: Processes) -> None:
    """Make sure that a step has room, by forward and backward passes of some rows, which leave no trace.

    Args:
        module: In training mode; `forward` gives the mean over the rows that it takes, and its terms.
        inputs: Inputs of a step, the first one with a row for each sample.
        fabric: Device and precision.
        processes: Processes that train together.

    Raises:
        RecipeError: It has not.
    """
    samples = len(inputs[0])
    device = fabric.device
    free = free_bytes(device, processes)
    learning = bytes_of_learning(module, processes)

    def fits(needed: int) -> bool:
        return not any(processes.any_rank([with_margin(needed + learning, device) > free]))

    # A forward pass may train networks next to the model. Adam will take twice as much as this copy.
    weights = deepcopy(module.state_dict())
    with unchanged(module, device):
        rows = min(_FEW, samples)
        trace = _trace(module, inputs, rows, fabric)
        growth = Growth(rows, rows, trace, trace)
        if not fits(_PLENTY * growth.at(samples)) and fits(growth.at(_MANY)):
            rows = min(_MANY, samples)
            growth = Growth(growth.few, rows, trace, _trace(module, inputs, rows, fabric))
    module.load_state_dict(weights)
    needed = growth.at(samples)
    if not fits(needed):
        raise RecipeError(
            f"A training step needs {format_bytes(with_margin(needed + learning, device))} of memory, and "
            f"{format_bytes(free)} are free: make room, or set train.batch_size to less."
        )


def _trace(module: TrainedModule, inputs: Sequence[Tensor], rows: int, fabric: Fabric) -> list[int]:
    """The bytes used by a forward and a backward pass of the first rows."""
    samples = len(inputs[0])
    first = [part[:rows] if part.dim() and len(part) == samples else part for part in inputs]
    with LiveMemory(fabric.device) as live, fabric.autocast():
        total, _ = module(*first)
        torch.autograd.backward(total)
    return live.trace
