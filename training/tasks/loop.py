"""The loop of a task: one module, with one figure that chooses the best checkpoint."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule, _FabricOptimizer
from torch import Tensor, nn

from training.tasks.config import TaskRecipe, TaskTrainConfig
from training.trainer.optimisation.gradients import gradient_norm
from training.trainer.optimisation.parameter_groups import learning_rate_factor, set_learning_rate
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.metrics_log import MetricsLog
from training.trainer.steps import Batches, Drawn, StepLoop


class TaskModule(nn.Module):
    """Module with its loss: `forward` takes tensors, as Fabric requires, and gives a loss and its terms."""

    @property
    def tower(self) -> nn.Module | None:
        """The part that may bring pretrained weights and has a learning rate of its own, if there is one."""
        return None

    def after_step(self) -> None:
        """Do what belongs behind every step of the optimizer; most need nothing."""


@dataclass(frozen=True)
class Problem(Generic[Drawn]):
    """Module, batches and validation metric of a run.

    Attributes:
        module: Module to train.
        batches: Training batches.
        inputs: Arguments of `forward` on the device, from a batch and the number of the step from 0.
        measure: The figures by which the best checkpoint is chosen; the module is in evaluation mode.
        chosen_by: The figure that chooses; higher is better.
        fingerprint: Digest of data and encoder, which a resumed run must find unchanged.
    """

    module: TaskModule
    batches: Batches[Drawn]
    inputs: Callable[[Drawn, int], tuple[Tensor, ...]]
    measure: Callable[[], dict[str, float]]
    chosen_by: str
    fingerprint: str


@dataclass(kw_only=True)
class TaskLoop(StepLoop[Drawn]):
    """A run of a task, in one process.

    Attributes:
        recipe: Resolved.
        fabric: Device and precision.
        problem: Module, batches and metric of the run.
        task: The problem's module, set up by Fabric.
        stepping: The optimizer, set up by Fabric.
    """

    recipe: TaskRecipe
    fabric: Fabric
    problem: Problem[Drawn]
    task: _FabricModule
    stepping: _FabricOptimizer

    def __post_init__(self) -> None:
        super().__post_init__()
        self._latest: dict[str, Tensor] = {}

    @property
    def trained(self) -> nn.Module:
        """The problem's module."""
        return self.task

    @property
    def device(self) -> torch.device:
        """Device of the module."""
        return self.fabric.device

    @property
    def bookkeeping(self) -> TaskTrainConfig:
        """Training settings of the recipe."""
        return self.recipe.train

    def _step(self, batch: Drawn) -> None:
        step, module = self.position.step, self.problem.module
        factor = learning_rate_factor(self.recipe.schedule, step, self.total_steps)
        set_learning_rate(self.optimizer, factor)
        total, terms = self.task(*self.problem.inputs(batch, step))
        self.stepping.zero_grad()
        self.fabric.backward(total)
        norm = gradient_norm(list(module.parameters()))
        if not torch.isfinite(total + norm):
            what = "gradient" if torch.isfinite(total) else "loss"
            raise TrainingError(
                f"The {what} of step {step + 1:,} is not a finite number, so the run stopped; "
                "its last checkpoint is from before. Try a lower optimizer.lr, or optimizer.max_grad_norm=1."
            )
        limit = self.recipe.optimizer.max_grad_norm
        if limit is not None:
            self.fabric.clip_gradients(self.task, self.stepping, max_norm=limit, error_if_nonfinite=False)
        self.stepping.step()
        module.after_step()
        self._latest = {"loss": total.detach(), **terms}

    def _read_figures(self) -> dict[str, float]:
        return {name: float(value) for name, value in self._latest.items()}

    def _measure_if_due(self, log: MetricsLog | None) -> bool:
        if self.position.index:
            return False
        self.task.eval()
        figures = self.problem.measure()
        self.task.train()
        if log is not None:
            log.write(self.position.step, "validation", figures)
        name = self.problem.chosen_by
        if not self.metrics or figures[name] > self.metrics[name]:
            self.metrics = figures
            self.save("best.pt")
        return True
