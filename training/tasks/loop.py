"""The loop of a task: batches in, steps, measures on what chooses, checkpoints."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule, _FabricOptimizer
from torch import Tensor, nn

from training.data.pairs import Position
from training.progress import ProgressBar, progress_bar
from training.recipes.load import dump_recipe
from training.tasks.config import TaskRecipe
from training.trainer.batches import prefetched
from training.trainer.optimisation.gradients import gradient_norm
from training.trainer.optimisation.parameter_groups import learning_rate_factor, set_learning_rate
from training.trainer.run_state.checkpoint import (
    Checkpoint,
    load_weights,
    random_state,
    restore_random_state,
    save_checkpoint,
)
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError
from training.trainer.run_state.folder import RunFolder
from training.trainer.run_state.metrics_log import MetricsLog
from training.trainer.run_state.stopping import StopSignal

Drawn = TypeVar("Drawn")
DrawnAlone = TypeVar("DrawnAlone", covariant=True)


class Batches(Protocol[DrawnAlone]):
    """The training batches of a run."""

    @property
    def batches_per_epoch(self) -> int:
        """How many there are in each epoch."""

    def from_position(self, position: Position) -> Iterator[DrawnAlone]:
        """All batches from a position on, without an end."""


class TaskModule(nn.Module):
    """What is trained: `forward` takes plain tensors, which Fabric knows, and gives a loss and its terms."""

    @property
    def tower(self) -> nn.Module | None:
        """The part that may bring pretrained weights and has a learning rate of its own, if there is one."""
        return None

    def after_step(self) -> None:
        """Do what belongs behind every step of the optimizer; most need nothing."""


@dataclass(frozen=True)
class Problem(Generic[Drawn]):
    """What a run learns, and what it is measured by.

    Attributes:
        module: That is trained.
        batches: To train on.
        inputs: What the module takes of a batch in a step, counted from 0, on the device.
        measure: The figures by which the best checkpoint is chosen; the module is in evaluation mode.
        chosen_by: The figure that chooses; higher is better.
        fingerprint: Of all that a resumed run must find as it was.
    """

    module: TaskModule
    batches: Batches[Drawn]
    inputs: Callable[[Drawn, int], tuple[Tensor, ...]]
    measure: Callable[[], dict[str, float]]
    chosen_by: str
    fingerprint: str


@dataclass
class TaskLoop(Generic[Drawn]):
    """A run: what it is made of, and where it stands.

    Attributes:
        recipe: Resolved.
        fabric: Device and precision.
        problem: What is learned.
        task: The problem's module, set up by Fabric.
        optimizer: Of the module, set up by Fabric.
        folder: Of the run.
        position: Where it stands.
        metrics: Of the best checkpoint so far; empty before the first.
    """

    recipe: TaskRecipe
    fabric: Fabric
    problem: Problem[Drawn]
    task: _FabricModule
    optimizer: _FabricOptimizer
    folder: RunFolder
    position: Position = field(default_factory=Position)
    metrics: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._batches_per_epoch = self.problem.batches.batches_per_epoch
        self.total_steps = self.recipe.train.epochs * self._batches_per_epoch
        self._recipe_yaml = dump_recipe(self.recipe)
        self._saved_at = time.monotonic()

    def run(self, log: MetricsLog, *, show_progress: bool = True) -> None:
        """Go on from where the run stands to its end.

        Raises:
            TrainingInterruptedError: The user or the system asked to stop; the checkpoint is written.
            TrainingError: A loss or a gradient is not a finite number.
        """
        self.task.train()
        done = self.position.step
        with (
            StopSignal() as stop,
            prefetched(self.problem.batches.from_position(self.position)) as batches,
            progress_bar("training", self.total_steps, done=done, shown=show_progress) as bar,
        ):
            while self.position.step < self.total_steps:
                figures = self._step(next(batches))
                self.position = self.position.next(self._batches_per_epoch)
                self._report(figures, log, bar)
                measured = self._measure_if_due(log)
                if measured or stop.received or self._checkpoint_due():
                    self.save()
                if stop.received and self.position.step < self.total_steps:
                    raise TrainingInterruptedError(
                        f"Stopped after step {self.position.step:,} of {self.total_steps:,}; the checkpoint "
                        "is written. Repeat the command with --resume to go on.",
                        stop.received,
                    )

    def save(self, *, best: bool = False) -> None:
        """Write the checkpoint of this moment."""
        checkpoint = Checkpoint(
            position=self.position,
            task=self.task.state_dict(),
            optimizer=self.optimizer.state_dict(),
            random=[random_state(self.fabric.device)],
            metrics=self.metrics,
            recipe=self._recipe_yaml,
            data=self.problem.fingerprint,
        )
        save_checkpoint(self.folder.best if best else self.folder.last, checkpoint)
        self._saved_at = time.monotonic()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take the state of a checkpoint.

        Raises:
            TrainingError: It was written with other data, another encoder or another module.
        """
        if checkpoint.data != self.problem.fingerprint:
            raise TrainingError(
                "The training data or the encoder are not those that the run in "
                f"{self.folder.path} was started with: give the same, or start a new run in another folder."
            )
        load_weights(self.task, checkpoint, self.folder.last)
        self.optimizer.optimizer.load_state_dict(checkpoint.optimizer)
        restore_random_state(checkpoint.random[0], self.fabric.device)
        self.position = checkpoint.position
        self.metrics = checkpoint.metrics

    def _step(self, batch: Drawn) -> dict[str, Tensor]:
        step, module = self.position.step, self.problem.module
        factor = learning_rate_factor(self.recipe.schedule, step, self.total_steps)
        set_learning_rate(self.optimizer.optimizer, factor)
        total, terms = self.task(*self.problem.inputs(batch, step))
        self.optimizer.zero_grad()
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
            self.fabric.clip_gradients(self.task, self.optimizer, max_norm=limit, error_if_nonfinite=False)
        self.optimizer.step()
        module.after_step()
        return {"loss": total.detach(), **terms}

    def _report(self, figures: Mapping[str, Tensor], log: MetricsLog, bar: ProgressBar) -> None:
        step = self.position.step
        if step % self.recipe.train.log_every_steps and step != self.total_steps:
            bar.advance()
            return
        values = {name: float(value) for name, value in figures.items()}
        values["learning_rate"] = self.optimizer.optimizer.param_groups[-1]["lr"]
        log.write(step, "train", values)
        bar.advance(note=f"loss {values['loss']:.4g}")

    def _measure_if_due(self, log: MetricsLog) -> bool:
        if self.position.index:
            return False
        self.task.eval()
        figures = self.problem.measure()
        self.task.train()
        log.write(self.position.step, "validation", figures)
        name = self.problem.chosen_by
        if not self.metrics or figures[name] > self.metrics[name]:
            self.metrics = figures
            self.save(best=True)
        return True

    def _checkpoint_due(self) -> bool:
        return time.monotonic() - self._saved_at >= 60 * self.recipe.train.checkpoint_minutes
