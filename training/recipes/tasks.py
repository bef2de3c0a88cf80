"""Typed settings that all tasks have in common."""

from pydantic import Field

from training.common.frozen import Frozen
from training.recipes.schema import PRECISION_HELP, NamedRecipe, OptimizerConfig, Precision, ScheduleConfig


class TaskDataConfig(Frozen):
    """Fraction of the data used, and tolerance of broken records."""

    share: float = Field(
        default=1.0, gt=0, le=1, description="Share of the training examples that is kept, drawn at random."
    )
    share_seed: int = Field(default=0, ge=0, description="Seed of that draw.")
    max_rejected: float = Field(
        default=1.0, ge=0, le=1, description="Share of broken lines and images above which the run stops."
    )


class ChoosingDataConfig(TaskDataConfig):
    """Examples of data whose published splits are training and test: a held-out share is for validation."""

    validation_share: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="Share of the training examples that is held out to choose the best checkpoint; `share` "
        "is of the rest.",
    )


class TaskTrainConfig(Frozen):
    """Length, batch, precision and bookkeeping of a run."""

    batch_size: int = Field(default=32, gt=0, description="Examples of a step, over all processes together.")
    epochs: int = Field(default=3, gt=0)
    precision: Precision = Field(default="auto", description=PRECISION_HELP)
    seed: int = Field(default=0, ge=0)
    evaluate_every_epochs: int = Field(default=1, gt=0)
    checkpoint_minutes: float = Field(default=5.0, ge=0, description="At least this often; 0: every step.")
    log_every_steps: int = Field(default=20, gt=0)


class TaskRecipe(NamedRecipe):
    """Settings common to the recipes of all tasks."""

    data: TaskDataConfig = TaskDataConfig()
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    train: TaskTrainConfig = TaskTrainConfig()
