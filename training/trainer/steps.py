"""The loop of every run: batches in, steps, measurements, checkpoints, until it is done or asked to stop."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from training.data.pairs import Position
from training.progress import ProgressBar, progress_bar
from training.recipes.load import dump_recipe
from training.recipes.schema import NamedRecipe
from training.trainer.batches import prefetched
from training.trainer.run_state.checkpoint import (
    Checkpoint,
    load_weights,
    random_state,
    restore_random_state,
    save_checkpoint,
)
from training.trainer.run_state.errors import TrainingInterruptedError
from training.trainer.run_state.metrics_log import MetricsLog
from training.trainer.run_state.processes import Processes
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


class Bookkeeping(Protocol):
    """How often a run reports, and writes a checkpoint at least."""

    @property
    def log_every_steps(self) -> int:
        """Steps between two reports."""

    @property
    def checkpoint_minutes(self) -> float:
        """Minutes between two checkpoints."""


@dataclass(kw_only=True)
class StepLoop(ABC, Generic[Drawn]):
    """A run: its parts, and where it stands.

    Attributes:
        recipe: Resolved.
        optimizer: Of the parameters that are trained.
        batches: Of the train split, this process's share.
        folder: For `last.pt` and `best.pt`.
        fingerprint: Of the training data.
        total_steps: Length of the run.
        processes: That train together; the leading one writes and reports.
        position: Where it stands.
        metrics: Of the best checkpoint so far; empty before the first.
    """

    recipe: NamedRecipe
    optimizer: Optimizer
    batches: Batches[Drawn]
    folder: Path
    fingerprint: str
    total_steps: int
    processes: Processes = field(default_factory=Processes)
    position: Position = field(default_factory=Position)
    metrics: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._recipe_yaml = dump_recipe(self.recipe)
        self._saved_at = time.monotonic()

    @property
    @abstractmethod
    def trained(self) -> nn.Module:
        """The module whose weights are in the checkpoints."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the module is."""

    @property
    @abstractmethod
    def bookkeeping(self) -> Bookkeeping:
        """How often the run reports and is saved."""

    @abstractmethod
    def _step(self, batch: Drawn) -> None:
        """Do a step of the optimizer."""

    @abstractmethod
    def _read_figures(self) -> dict[str, float]:
        """Return the figures of the steps since they were read last; there is a loss among them."""

    @abstractmethod
    def _measure_if_due(self, log: MetricsLog | None) -> bool:
        """Measure on the validation split if it is time, and keep the best weights; return whether it was."""

    def _begin(self, log: MetricsLog | None) -> None:
        """Do what comes before the first of the steps that are left."""

    def _check_finite(self) -> None:
        """Make sure that what a checkpoint will hold is finite.

        Raises:
            TrainingError: A loss or a gradient of a step before was not.
        """

    def _note(self, figures: Mapping[str, float]) -> str:
        return f"loss {figures['loss']:.4g}"

    def run(self, log: MetricsLog | None, *, show_progress: bool = True) -> None:
        """Go on from where the run stands to its end.

        Args:
            log: Where the leading process writes figures; None in the others.
            show_progress: Show a bar on standard error.

        Raises:
            TrainingInterruptedError: The user or the system asked to stop; the checkpoint is written.
            TrainingError: A loss or a gradient is not finite.
        """
        self.trained.train()
        self._begin(log)
        with (
            StopSignal() as stop,
            prefetched(self.batches.from_position(self.position)) as batches,
            progress_bar("training", self.total_steps, done=self.position.step, shown=show_progress) as bar,
        ):
            while self.position.step < self.total_steps:
                self._step(next(batches))
                self.position = self.position.next(self.batches.batches_per_epoch)
                self._report(log, bar)
                measured = self._measure_if_due(log)
                stopped, due = self.processes.any_of([stop.received is not None, self._checkpoint_due()])
                if measured or stopped or due:
                    self._check_finite()
                    self.save("last.pt")
                if stopped and self.position.step < self.total_steps:
                    raise TrainingInterruptedError(
                        f"Stopped after step {self.position.step:,} of {self.total_steps:,}; the checkpoint "
                        "is written. Repeat the command with --resume to go on.",
                        stop.received,
                    )

    def save(self, name: str) -> None:
        """Write the checkpoint of this moment; all processes return when it is written."""
        states = self.processes.gathered(random_state(self.device))
        if self.processes.leads:
            checkpoint = Checkpoint(
                position=self.position,
                task=self.trained.state_dict(),
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
        load_weights(self.trained, checkpoint, self.folder / "last.pt")
        self.optimizer.load_state_dict(checkpoint.optimizer)
        restore_random_state(checkpoint.random[self.processes.rank], self.device)
        self.position = checkpoint.position
        self.metrics = checkpoint.metrics

    def _report(self, log: MetricsLog | None, bar: ProgressBar) -> None:
        step = self.position.step
        if step % self.bookkeeping.log_every_steps and step != self.total_steps:
            bar.advance()
            return
        figures = self._read_figures()
        figures["learning_rate"] = self.optimizer.param_groups[-1]["lr"]
        if log is not None:
            log.write(step, "train", figures)
        bar.advance(note=self._note(figures))

    def _checkpoint_due(self) -> bool:
        since = time.monotonic() - self._saved_at
        return self.processes.leads and since >= 60 * self.bookkeeping.checkpoint_minutes
