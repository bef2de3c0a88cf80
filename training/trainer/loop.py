"""The loop: batches in, steps, validation, checkpoints. It knows neither objective nor architecture."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule, _FabricOptimizer
from torch import Tensor

from training.data.pairs import Position
from training.progress import ProgressBar, progress_bar
from training.recipes.load import dump_recipe
from training.recipes.schema import Recipe
from training.trainer.batches import Batch, BatchLoader, prefetched
from training.trainer.checkpoint import Checkpoint, random_state, restore_random_state, save_checkpoint
from training.trainer.errors import TrainingInterruptedError
from training.trainer.figures import LossFigures
from training.trainer.metrics_log import MetricsLog
from training.trainer.optimisation import learning_rate_factor, set_learning_rate
from training.trainer.stopping import StopSignal
from training.trainer.validation import Validation, is_better

PrepareImages = Callable[[Tensor, int | None], Tensor]


@dataclass
class TrainingLoop:
    """A run: what it is made of, and where it stands.

    Attributes:
        recipe: Resolved.
        fabric: Device and precision.
        task: Model and objective, set up by Fabric.
        optimizer: Of the task, set up by Fabric.
        batches: Of the train split.
        prepare: Makes pixels of uint8 images, changed at random when a step is given.
        folder: For `last.pt` and `best.pt`.
        fingerprint: Of the training data.
        total_steps: Length of the run.
        validation: None without a validation split.
        position: Where it stands.
        metrics: Of the best validation so far; empty before the first.
    """

    recipe: Recipe
    fabric: Fabric
    task: _FabricModule
    optimizer: _FabricOptimizer
    batches: BatchLoader
    prepare: PrepareImages
    folder: Path
    fingerprint: str
    total_steps: int
    validation: Validation | None = None
    position: Position = field(default_factory=Position)
    metrics: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._figures = LossFigures(self.fabric.device)
        self._recipe_yaml = dump_recipe(self.recipe)
        self._saved_at = time.monotonic()

    def run(self, log: MetricsLog, *, show_progress: bool = True) -> None:
        """Go on from where the run stands to its end.

        Raises:
            TrainingInterruptedError: The user or the system asked to stop; the checkpoint is written.
            TrainingError: A loss is not a finite number.
        """
        self.task.train()
        self._figures.restart_clock()
        done = self.position.step
        with (
            StopSignal() as stop,
            prefetched(self.batches.from_position(self.position)) as batches,
            progress_bar("training", self.total_steps, done=done, shown=show_progress) as bar,
        ):
            while self.position.step < self.total_steps:
                self._step(next(batches))
                self.position = self.position.next(self.batches.batches_per_epoch)
                self._report(log, bar)
                validated = self._validate_if_due(log)
                if validated or stop.received or self._checkpoint_due():
                    self._figures.check()
                    self.save("last.pt")
                if stop.received and self.position.step < self.total_steps:
                    raise TrainingInterruptedError(
                        f"Stopped after step {self.position.step:,} of {self.total_steps:,}; the checkpoint "
                        "is written. Repeat the command with --resume to go on."
                    )

    def batch_loss(self, batch: Batch) -> Tensor:
        """The loss of a batch (scalar) as it is measured in validation: no gradient, no random changes."""
        self.task.eval()
        with torch.no_grad():
            total, _ = self._forward(batch.to(self.fabric.device), None)
        self.task.train()
        return total

    def save(self, name: str) -> None:
        """Write the checkpoint of this moment."""
        checkpoint = Checkpoint(
            position=self.position,
            task=self.task.state_dict(),
            optimizer=self.optimizer.state_dict(),
            random=random_state(),
            metrics=self.metrics,
            recipe=self._recipe_yaml,
            data=self.fingerprint,
        )
        save_checkpoint(self.folder / name, checkpoint)
        self._saved_at = time.monotonic()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take the state of a checkpoint."""
        self.task.load_state_dict(checkpoint.task)
        self.optimizer.optimizer.load_state_dict(checkpoint.optimizer)
        restore_random_state(checkpoint.random)
        self.position = checkpoint.position
        self.metrics = checkpoint.metrics

    def _step(self, batch: Batch) -> None:
        step = self.position.step
        factor = learning_rate_factor(self.recipe.schedule, step, self.total_steps)
        set_learning_rate(self.optimizer.optimizer, factor)
        batch = batch.to(self.fabric.device)
        total, terms = self._forward(batch, step)
        self._figures.add(step + 1, len(batch.images), total, terms)
        if self.fabric.device.type == "cpu":
            self._figures.check()
        self.optimizer.zero_grad()
        self.fabric.backward(total)
        limit = self.recipe.optimizer.max_grad_norm
        if limit is not None:
            self.fabric.clip_gradients(self.task, self.optimizer, max_norm=limit, error_if_nonfinite=False)
        self.optimizer.step()

    def _forward(self, batch: Batch, step: int | None) -> tuple[Tensor, dict[str, Tensor]]:
        tokens = batch.tokens
        pixels = self.prepare(batch.images, step)
        total, terms = self.task(pixels, tokens.input_ids, tokens.attention_mask, batch.positive_mask)
        return total, terms

    def _report(self, log: MetricsLog, bar: ProgressBar) -> None:
        step = self.position.step
        if step % self.recipe.train.log_every_steps and step != self.total_steps:
            bar.advance()
            return
        figures = self._figures.read()
        figures["learning_rate"] = self.optimizer.optimizer.param_groups[-1]["lr"]
        log.write(step, "train", figures)
        bar.advance(note=f"loss {figures['loss']:.4g}, {figures['samples_per_second']:,.0f} samples/s")

    def _validate_if_due(self, log: MetricsLog) -> bool:
        due = self.position.index == 0 and self.position.epoch % self.recipe.train.evaluate_every_epochs == 0
        if not due and self.position.step < self.total_steps:
            return False
        self._figures.check()
        if self.validation is not None:
            figures = self.validation.measure()
            log.write(self.position.step, "validation", figures)
            if is_better(self.recipe.train.select_by, figures, self.metrics):
                self.metrics = figures
                self.save("best.pt")
        self._figures.restart_clock()
        return True

    def _checkpoint_due(self) -> bool:
        return time.monotonic() - self._saved_at >= 60 * self.recipe.train.checkpoint_minutes
