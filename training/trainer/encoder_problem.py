"""The training of encoders as a problem of the loop, whatever their objective and their architecture."""

from dataclasses import dataclass

from training.errors import DataError
from training.objectives.base import LossOutput
from training.recipes.schema import Recipe
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch, BatchLoader, without_missing
from training.trainer.loop import Problem
from training.trainer.run_state.processes import Processes
from training.trainer.validation import Validation


@dataclass(kw_only=True)
class EncoderProblem(Problem[Batch]):
    """Model and objective, the pairs that they are trained on, and the validation split.

    Attributes:
        recipe: Resolved.
        loss: Of the model and the objective that are trained.
        batches: Pairs of the train split.
        fingerprint: Of the pairs.
        processes: That train together.
        validation: None without a validation split.
    """

    recipe: Recipe
    loss: BatchLoss
    batches: BatchLoader
    fingerprint: str
    processes: Processes
    validation: Validation | None = None

    def __post_init__(self) -> None:
        self.module = self.loss.task
        self.chosen_by = self.recipe.train.select_by
        self.in_one_pass = self.loss.chunk_size is None
        self.measured_at_start = self.recipe.train.start_from is not None

    def backward(self, batch: Batch, step: int) -> tuple[LossOutput, int]:
        """Add the gradient of the objective.

        Raises:
            DataError: Broken files left too little of the batch.
        """
        batch = without_missing(batch, self.processes)
        _check_size(batch, self.processes)
        return self.loss.backward(batch, step), len(batch.inputs)

    @property
    def validated(self) -> bool:
        """Whether there is a validation split."""
        return self.validation is not None

    def measure(self) -> dict[str, float]:
        """The retrieval of the validation split, and its loss where that decides."""
        return {} if self.validation is None else self.validation.measure()


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
