"""The loop: batches in, steps, validation, checkpoints. It knows neither objective nor architecture."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from training.data.pairs import Position
from training.errors import DataError
from training.progress import ProgressBar, progress_bar
from training.recipes.load import dump_recipe
from training.recipes.schema import Recipe
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch, BatchLoader, prefetched, without_missing
from training.trainer.optimisation.gradients import average_gradients, gradient_norm
from training.trainer.optimisation.parameter_groups import learning_rate_factor, set_learning_rate
from training.trainer.run_state.checkpoint import (
    Checkpoint,
    load_weights,
    random_state,
    restore_random_state,
    save_checkpoint,
)
from training.trainer.run_state.errors import TrainingInterruptedError
from training.trainer.run_state.metric_sums import LossFigures
from training.trainer.run_state.metrics_log import MetricsLog
from training.trainer.run_state.processes import Processes
from training.trainer.run_state.stopping import StopSignal
from training.trainer.validation import Validation, is_better


@dataclass
class TrainingLoop:
    """A run: what it is made of, and where it stands.

    Attributes:
        recipe: Resolved.
        loss: Of the model and the objective that are trained.
        optimizer: Of both.
        batches: Of the train split, this process's share.
        folder: For `last.pt` and `best.pt`.
        fingerprint: Of the training data.
        total_steps: Length of the run.
        processes: That train together; the leading one writes and reports.
        validation: None without a validation split.
        position: Where it stands.
        metrics: Of the best validation so far; empty before the first.
    """

    recipe: Recipe
    loss: BatchLoss
    optimizer: Optimizer
    batches: BatchLoader
    folder: Path
    fingerprint: str
    total_steps: int
    processes: Processes = field(default_factory=Processes)
    validation: Validation | None = None
    position: Position = field(default_factory=Position)
    metrics: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._device = self.loss.fabric.device
        self._parameters = [parameter for parameter in self.task.parameters() if parameter.requires_grad]
        self._figures = LossFigures(self._device, self.processes)
        self._recipe_yaml = dump_recipe(self.recipe)
        self._saved_at = time.monotonic()

    @property
    def task(self) -> nn.Module:
        """Model and objective."""
        return self.loss.task

    def run(self, log: MetricsLog | None, *, show_progress: bool = True) -> None:
        """Go on from where the run stands to its end.

        Args:
            log: Where the leading process writes figures; None in the others.
            show_progress: Show a bar on standard error.

        Raises:
            TrainingInterruptedError: The user or the system asked to stop; the checkpoint is written.
            TrainingError: A loss or a gradient is not finite.
        """
        self.task.train()
        done = self.position.step
        if not done and self.recipe.train.start_from is not None:
            # What the run starts from is the best until a step makes it better.
            self._validate(log)
        self._figures.restart_clock()
        with (
            StopSignal() as stop,
            prefetched(self.batches.from_position(self.position)) as batches,
            progress_bar("training", self.total_steps, done=done, shown=show_progress) as bar,
        ):
            while self.position.step < self.total_steps:
                batch = without_missing(next(batches), self.processes)
                _check_size(batch, self.processes)
                self._step(batch)
                self.position = self.position.next(self.batches.batches_per_epoch)
                self._report(log, bar)
                validated = self._validate_if_due(log)
                stopped, due = self.processes.any_of([stop.received is not None, self._checkpoint_due()])
                if validated or stopped or due:
                    self._figures.check()
                    self.save("last.pt")
                if stopped and self.position.step < self.total_steps:
                    raise TrainingInterruptedError(
                        f"Stopped after step {self.position.step:,} of {self.total_steps:,}; the checkpoint "
                        "is written. Repeat the command with --resume to go on.",
                        stop.received,
                    )

    def save(self, name: str) -> None:
        """Write the checkpoint of this moment; all processes return when it is written."""
        states = self.processes.gathered(random_state(self._device))
        if self.processes.leads:
            checkpoint = Checkpoint(
                position=self.position,
                task=self.task.state_dict(),
                optimizer=self.optimizer.state_dict(),
                random=states,
                metrics=self.metrics,
                recipe=self._recipe_yaml,
                data=self.fingerprint,
            )
            save_checkpoint(self.folder / name, checkpoint)
        self.processes.of_leader(None)
        self._saved_at = time.monotonic()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take the state of a checkpoint.

        Raises:
            TrainingError: It is that of another model.
        """
        load_weights(self.task, checkpoint, self.folder / "last.pt")
        self.optimizer.load_state_dict(checkpoint.optimizer)
        restore_random_state(checkpoint.random[self.processes.rank], self._device)
        self.position = checkpoint.position
        self.metrics = checkpoint.metrics

    def _step(self, batch: Batch) -> None:
        step = self.position.step
        set_learning_rate(self.optimizer, learning_rate_factor(self.recipe.schedule, step, self.total_steps))
        self.optimizer.zero_grad()
        output = self.loss.backward(batch, step)
        average_gradients(self._parameters, self.processes)
        norm = gradient_norm(self._parameters)
        self._figures.add(step + 1, len(batch.inputs), output, norm)
        if self._device.type == "cpu":
            self._figures.check()
        limit = self.recipe.optimizer.max_grad_norm
        if limit is not None:
            nn.utils.clip_grads_with_norm_(self._parameters, limit, norm)
        self.optimizer.step()
        self.loss.task.after_step()

    def _report(self, log: MetricsLog | None, bar: ProgressBar) -> None:
        step = self.position.step
        if step % self.recipe.train.log_every_steps and step != self.total_steps:
            bar.advance()
            return
        figures = self._figures.read()
        figures["learning_rate"] = self.optimizer.param_groups[-1]["lr"]
        if log is not None:
            log.write(step, "train", figures)
        bar.advance(note=f"loss {figures['loss']:.4g}, {figures['samples_per_second']:,.0f} samples/s")

    def _validate_if_due(self, log: MetricsLog | None) -> bool:
        due = self.position.index == 0 and self.position.epoch % self.recipe.train.evaluate_every_epochs == 0
        if not due and self.position.step < self.total_steps:
            return False
        self._figures.check()
        self._validate(log)
        self._figures.restart_clock()
        return True

    def _validate(self, log: MetricsLog | None) -> None:
        """Measure on the validation split, and keep the weights if they are the best so far."""
        if self.validation is None:
            return
        # The loss is that of the weights that are kept, and of those that a resumed run has.
        self.processes.share_statistics(self.loss.task)
        figures = self.validation.measure()
        if log is not None:
            log.write(self.position.step, "validation", figures)
        if is_better(self.recipe.train.select_by, figures, self.metrics):
            self.metrics = figures
            self.save("best.pt")

    def _checkpoint_due(self) -> bool:
        since = time.monotonic() - self._saved_at
        return self.processes.leads and since >= 60 * self.recipe.train.checkpoint_minutes


def _check_size(batch: Batch, processes: Processes) -> None:
    """Make sure that broken files left enough of a batch to tell items apart, and to normalise them.

    Raises:
        DataError: They did not.
    """
    share = batch.inputs.batch_size // processes.count
    if len(batch.inputs) < min(2, share):
        raise DataError(
            "Fewer than two items of a batch can be read: mend the data, or set data.cache_images to true, "
            "which leaves broken images out from the start."
        )
