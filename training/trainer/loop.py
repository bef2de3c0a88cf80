"""The loop of every run: batches in, steps, measurements, checkpoints, until it is done or asked to stop."""

import logging
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from training.common.progress import ProgressBar, progress_bar
from training.data.pairs import Position
from training.objectives.base import LossOutput
from training.recipes.load import dump_recipe
from training.recipes.schema import Recipe
from training.recipes.tasks import TaskRecipe
from training.trainer.batches import page_locked, prefetched
from training.trainer.modules import TrainedModule
from training.trainer.optimisation.gradients import GradientAverage, gradient_norm
from training.trainer.optimisation.parameter_groups import learning_rate_factor, set_learning_rate
from training.trainer.run_state.checkpoint import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    random_state,
    restore_random_state,
    save_checkpoint,
)
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError
from training.trainer.run_state.folder import RunFolder
from training.trainer.run_state.metrics_log import LossFigures, MetricsLog
from training.trainer.run_state.processes import Processes
from training.trainer.run_state.tracking import TrackerName
from training.trainer.validation import is_better

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_log = logging.getLogger(__name__)

Drawn = TypeVar("Drawn")
DrawnAlone = TypeVar("DrawnAlone", covariant=True)


class Batches(Protocol[DrawnAlone]):
    """The training batches of a run."""

    @property
    def batches_per_epoch(self) -> int:
        """How many there are in each epoch."""

    def from_position(self, position: Position) -> Iterator[DrawnAlone]:
        """All batches from a position on, without an end."""


class Task(ABC, Generic[Drawn]):
    """Subject of a run: a module, the loss of its batches, and figures that tell how good its weights are.

    Attributes:
        module: Trained; its weights are in the checkpoints.
        batches: Batches of the train split, this process's share.
        fingerprint: Digest of the data and the encoder that a resumed run must find unchanged.
        chosen_by: Figure of `measure` that decides the best checkpoint.
        measured_at_start: Training begins with weights that may stay the best.
        in_one_pass: Each parameter has its whole gradient in a single backward pass.
    """

    module: TrainedModule
    batches: Batches[Drawn]
    fingerprint: str
    chosen_by: str
    measured_at_start: bool = False
    in_one_pass: bool = True

    def check(self, batch: Drawn, step: int) -> None:
        """Refuse a run that cannot do its first step.

        Args:
            batch: Batch of that step, this process's share.
            step: Number of the step, from 0.

        Raises:
            RecipeError: The sentence says why.
        """

    @abstractmethod
    def backward(self, batch: Drawn, step: int) -> tuple[LossOutput, int]:
        """Add the gradient of the loss of a training step to the parameters.

        Args:
            batch: This process's share.
            step: Number of the step, from 0.

        Returns:
            The loss, whose mean over the processes is that of the whole batch, and the share's samples.
        """

    @property
    def validated(self) -> bool:
        """Whether there is a validation split."""
        return True

    @abstractmethod
    def measure(self) -> dict[str, float]:
        """Figures of the validation split, the same in every process; none where there is no such split."""


class Callback:
    """Follows a run: derive from it and write the methods that you need. Every process calls them."""

    def after_step(self, loop: "TrainingLoop[Any]", loss: LossOutput) -> None:
        """Called after each step of the optimizer; `loop.position.step` steps are done.

        `loss.total` and `loss.terms` are this process's, on the device: reading them waits for a GPU.
        """

    def after_measurement(self, loop: "TrainingLoop[Any]", figures: Mapping[str, float]) -> bool | None:
        """Called after each measurement on the validation split; True ends the training, in time for it.

        The figures are the same in every process. Decide by them alone, so that all processes end together.
        """


@dataclass(kw_only=True)
class TrainingLoop(Generic[Drawn]):
    """A run, in one process or several: its parts, and its position.

    Attributes:
        recipe: Resolved.
        task: Module, batches and measurements.
        optimizer: Optimizer of the parameters that are trained.
        device: Where the module is.
        folder: Folder of the run.
        total_steps: Length of the run.
        processes: Processes that train together; the main one writes and reports.
        position: Next batch.
        metrics: Metrics of the best checkpoint so far; empty before the first.
        callbacks: Called at each step and measurement.
    """

    recipe: Recipe | TaskRecipe
    task: Task[Drawn]
    optimizer: Optimizer
    device: torch.device
    folder: RunFolder
    total_steps: int
    processes: Processes = field(default_factory=Processes)
    position: Position = field(default_factory=Position)
    metrics: dict[str, float] = field(default_factory=dict)
    callbacks: Sequence[Callback] = ()

    def __post_init__(self) -> None:
        module = self.task.module
        self._recipe_yaml = dump_recipe(self.recipe)
        self._parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._average = GradientAverage(self._parameters, self.processes)
        self._figures = LossFigures(self.device, self.processes)
        self._saved_at = time.monotonic()
        self._log: MetricsLog | None = None
        self._ended = False

    def start(self, checkpoint: Checkpoint | None) -> None:
        """Begin at step 0 with a first checkpoint, or where a checkpoint ends.

        Raises:
            TrainingError: The checkpoint is of other data or of another model, or the disk has no room.
        """
        if self.processes.is_main:
            self.folder.check_room(
                self._checkpoint_bytes, validated=self.task.validated, resumed=checkpoint is not None
            )
            self._warn_of_warmup()
        if checkpoint is None:
            self.save(self.folder.last.name)
            if self.processes.is_main:
                self.folder.write_recipe(self.recipe)
            return
        if checkpoint.data != self.task.fingerprint:
            raise TrainingError(
                "The training data or the encoder are not those that the run in "
                f"{self.folder.path} was started with: give the same, or start a new run in another folder."
            )
        if checkpoint.metrics and self.processes.is_main:
            # The best checkpoint is needed at the end, too late to learn that it cannot be used.
            self.load_best()
        self.restore(checkpoint)

    def _warn_of_warmup(self) -> None:
        warmup = self.recipe.schedule.warmup_steps
        if warmup > self.total_steps:
            _log.warning(
                "The warm-up of %s steps is longer than the run of %s: the learning rate rises to %.0f %% of "
                "the recipe's and no further. Set schedule.warmup_steps to less.",
                f"{warmup:,}",
                f"{self.total_steps:,}",
                100 * self.total_steps / warmup,
            )

    def run(self, *, show_progress: bool = True, trackers: Sequence[TrackerName] = ()) -> None:
        """Continue from the run's position to its end.

        Args:
            show_progress: Show a bar on standard error.
            trackers: Trackers in addition to TensorBoard.

        Raises:
            TrainingInterruptedError: The user or the system asked to stop; the checkpoint is written.
            TrainingError: A loss or a gradient is not finite.
        """
        if not self.processes.is_main:
            self._run(show_progress)
            return
        with MetricsLog(self.folder.path, self.position.step, trackers) as self._log:
            self._run(show_progress)

    def _run(self, show_progress: bool) -> None:
        self.task.module.train()
        if not self.position.step and self.task.measured_at_start:
            self._measure()
        self._figures.restart_clock()
        drawn = page_locked(self.task.batches.from_position(self.position), self.device)
        with (
            StopSignal() as stop,
            prefetched(drawn) as batches,
            progress_bar("training", self.total_steps, done=self.position.step, shown=show_progress) as bar,
        ):
            first = self.position.step
            while self.position.step < self.total_steps and not self._ended:
                batch = next(batches)
                if self.position.step == first:
                    self.task.check(batch, first)
                loss = self._step(batch)
                self.position = self.position.next(self.task.batches.batches_per_epoch)
                for callback in self.callbacks:
                    callback.after_step(self, loss)
                self._report(bar)
                measured = self._measure_if_due()
                stopped, due = self.processes.any_rank([stop.received is not None, self._checkpoint_due()])
                if measured or stopped or due:
                    self._figures.check()
                    self.save(self.folder.last.name)
                if stopped and self.position.step < self.total_steps and not self._ended:
                    raise TrainingInterruptedError(
                        f"Stopped after step {self.position.step:,} of {self.total_steps:,}; the checkpoint "
                        "is written. Repeat the command with --resume to continue.",
                        stop.received,
                    )

    def save(self, name: str) -> None:
        """Write the checkpoint of this moment; all processes return when it is written."""
        states = self.processes.gathered(random_state(self.device))
        if self.processes.is_main:
            checkpoint = Checkpoint(
                position=self.position,
                task=self.task.module.state_dict(),
                optimizer=self.optimizer.state_dict(),
                random=states,
                metrics=self.metrics,
                recipe=self._recipe_yaml,
                data=self.task.fingerprint,
            )
            save_checkpoint(self.folder.checkpoints / name, checkpoint)
        self.processes.broadcast(None)
        self._saved_at = time.monotonic()

    @property
    def _checkpoint_bytes(self) -> int:
        """Size of a checkpoint once the optimizer has its two means of every gradient."""
        module = self.task.module
        weights: int = sum(value.nbytes for value in (*module.parameters(), *module.buffers()))
        return weights + 2 * sum(parameter.nbytes for parameter in self._parameters)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take the state of a checkpoint.

        Raises:
            TrainingError: It is that of another model.
        """
        load_weights(self.task.module, checkpoint, self.folder.last)
        self.optimizer.load_state_dict(checkpoint.optimizer)
        restore_random_state(checkpoint.random[self.processes.rank], self.device)
        self.position = checkpoint.position
        self.metrics = checkpoint.metrics

    def load_best(self) -> Checkpoint:
        """Read the best checkpoint, and give the module its weights.

        Raises:
            TrainingError: It cannot be read, or is of another run.
        """
        best = load_checkpoint(self.folder.best)
        if best.data != self.task.fingerprint:
            raise TrainingError(f"{self.folder.best} is from a run on other data: start the run anew.")
        load_weights(self.task.module, best, self.folder.best)
        return best

    def _step(self, batch: Drawn) -> LossOutput:
        """Do a step of the optimizer."""
        step = self.position.step
        set_learning_rate(self.optimizer, learning_rate_factor(self.recipe.schedule, step, self.total_steps))
        self.optimizer.zero_grad()
        self._average.begin(overlap=self.task.in_one_pass)
        output, samples = self.task.backward(batch, step)
        self._average.finish()
        norm = gradient_norm(self._parameters)
        self._figures.add(step + 1, samples, output, norm)
        if self.device.type == "cpu":
            self._figures.check()
        limit = self.recipe.optimizer.max_grad_norm
        if limit is not None:
            nn.utils.clip_grads_with_norm_(self._parameters, limit, norm)
        self.optimizer.step()
        self.task.module.after_step()
        return output

    def _report(self, bar: ProgressBar) -> None:
        step = self.position.step
        if step % self.recipe.train.log_every_steps and step != self.total_steps:
            bar.advance()
            return
        figures = self._figures.read()
        figures["learning_rate"] = self.optimizer.param_groups[-1]["lr"]
        if self._log is not None:
            self._log.write(step, "train", figures)
        bar.advance(note=f"loss {figures['loss']:.4g}, {figures['samples_per_second']:,.0f} samples/s")

    def _measure_if_due(self) -> bool:
        """Measure after the epochs of the recipe and at the end; return whether it was time."""
        due = self.position.index == 0 and self.position.epoch % self.recipe.train.evaluate_every_epochs == 0
        if not due and self.position.step < self.total_steps:
            return False
        self._figures.check()
        self._measure()
        self._figures.restart_clock()
        return True

    def _measure(self) -> None:
        """Measure on the validation split, and keep the weights if they are the best so far."""
        # The figures are those of the weights that are kept, and of those that a resumed run has.
        self.processes.share_statistics(self.task.module)
        figures = self.task.measure()
        if not figures:
            return
        if self._log is not None:
            self._log.write(self.position.step, "validation", figures)
        if is_better(self.task.chosen_by, figures, self.metrics):
            self.metrics = figures
            self.save(self.folder.best.name)
        for callback in self.callbacks:
            self._ended |= bool(callback.after_measurement(self, figures))

    def _checkpoint_due(self) -> bool:
        since = time.monotonic() - self._saved_at
        return self.processes.is_main and since >= 60 * self.recipe.train.checkpoint_minutes


class StopSignal:
    """Notes SIGINT and SIGTERM while its block runs; the second one acts as it would without it.

    Outside the main thread, where Python allows no handlers, it notes nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
