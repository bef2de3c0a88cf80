"""The loop of encoders, which knows neither their objective nor their architecture."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from training.errors import DataError
from training.recipes.schema import Recipe, TrainConfig
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch, without_missing
from training.trainer.optimisation.gradients import average_gradients, gradient_norm
from training.trainer.optimisation.parameter_groups import learning_rate_factor, set_learning_rate
from training.trainer.run_state.metric_sums import LossFigures
from training.trainer.run_state.metrics_log import MetricsLog
from training.trainer.run_state.processes import Processes
from training.trainer.steps import StepLoop
from training.trainer.validation import Validation, is_better


@dataclass(kw_only=True)
class TrainingLoop(StepLoop[Batch]):
    """A run that trains an encoder, in one process or several.

    Attributes:
        recipe: Resolved.
        loss: Of the model and the objective that are trained.
        validation: None without a validation split.
    """

    recipe: Recipe
    loss: BatchLoss
    validation: Validation | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._parameters = [parameter for parameter in self.trained.parameters() if parameter.requires_grad]
        self._figures = LossFigures(self.device, self.processes)

    @property
    def trained(self) -> nn.Module:
        """Model and objective."""
        return self.loss.task

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.loss.fabric.device

    @property
    def bookkeeping(self) -> TrainConfig:
        """The recipe's."""
        return self.recipe.train

    def _begin(self, log: MetricsLog | None) -> None:
        if not self.position.step and self.recipe.train.start_from is not None:
            # What the run starts from is the best until a step makes it better.
            self._validate(log)
        self._figures.restart_clock()

    def _check_finite(self) -> None:
        self._figures.check()

    def _step(self, batch: Batch) -> None:
        batch = without_missing(batch, self.processes)
        _check_size(batch, self.processes)
        step = self.position.step
        set_learning_rate(self.optimizer, learning_rate_factor(self.recipe.schedule, step, self.total_steps))
        self.optimizer.zero_grad()
        output = self.loss.backward(batch, step)
        average_gradients(self._parameters, self.processes)
        norm = gradient_norm(self._parameters)
        self._figures.add(step + 1, len(batch.inputs), output, norm)
        if self.device.type == "cpu":
            self._figures.check()
        limit = self.recipe.optimizer.max_grad_norm
        if limit is not None:
            nn.utils.clip_grads_with_norm_(self._parameters, limit, norm)
        self.optimizer.step()
        self.loss.task.after_step()

    def _read_figures(self) -> dict[str, float]:
        return self._figures.read()

    def _note(self, figures: Mapping[str, float]) -> str:
        return f"{super()._note(figures)}, {figures['samples_per_second']:,.0f} samples/s"

    def _measure_if_due(self, log: MetricsLog | None) -> bool:
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
