"""A task as a problem of the loop: one module, with one figure that chooses the best checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from training.objectives.base import LossOutput
from training.tasks.memory import check_step
from training.trainer.loop import Batches, Drawn, Problem
from training.trainer.run_state.processes import Processes
from training.trainer.task import TrainedModule

Found = TypeVar("Found")


class TaskModule(TrainedModule):
    """Module with its loss: `forward` gives the mean over the rows that it takes, and its terms."""

    @property
    def tower(self) -> nn.Module | None:
        """The part that may bring pretrained weights and has a learning rate of its own, if there is one."""
        return None


@dataclass(kw_only=True)
class TaskProblem(Problem[Drawn]):
    """Module, batches and validation metric of a run.

    Attributes:
        module: Module to train.
        batches: Training batches.
        inputs: Arguments of `forward` on the device, from a batch and the number of the step from 0; the
            first one has a row for each sample.
        validate: The figures by which the best checkpoint is chosen; the module is in evaluation mode.
        chosen_by: The figure that chooses; higher is better.
        fingerprint: Digest of data and encoder, which a resumed run must find unchanged.
        fabric: Device and precision.
        processes: That train together.
        largest: Makes a batch that takes as much memory as any; None: all batches are alike.
    """

    module: TaskModule
    batches: Batches[Drawn]
    inputs: Callable[[Drawn, int], tuple[Tensor, ...]]
    validate: Callable[[], dict[str, float]]
    chosen_by: str
    fingerprint: str
    fabric: Fabric
    processes: Processes
    largest: Callable[[], Drawn] | None = None

    def check(self, batch: Drawn, step: int) -> None:
        """Make sure that the memory has room for a step of any batch.

        Raises:
            RecipeError: It has not.
        """
        tried = batch if self.largest is None else self.largest()
        check_step(self.module, self.inputs(tried, step), self.fabric, self.processes)

    def backward(self, batch: Drawn, step: int) -> tuple[LossOutput, int]:
        """Add the gradient of a share of the batch, whose mean counts as much as it has rows."""
        inputs = self.inputs(batch, step)
        samples = len(inputs[0])
        weight = samples * self.processes.count / sum(self.processes.gathered(samples))
        with self.fabric.autocast():
            total, terms = self.module(*inputs)
        output = LossOutput(weight * total, {name: weight * term for name, term in terms.items()})
        torch.autograd.backward(output.total)
        return output, samples

    def measure(self) -> dict[str, float]:
        """The figures of the validation examples."""
        return self.measured(self.validate)

    def measured(self, figures: Callable[[], Found]) -> Found:
        """Figures that the leading process finds, the module in evaluation mode; the others wait for them."""
        self.module.eval()
        (found,) = self.processes.of_leader([figures()] if self.processes.leads else [])
        self.module.train()
        return found
