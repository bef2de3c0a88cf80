"""Typed settings of text classification."""

from typing import Annotated, Any, Literal

from pydantic import Field

from training.classification.tasks import TaskName
from training.models.config import Frozen, TextTowerConfig
from training.objectives.reclaim import ReclaimTermSettings
from training.recipes.schema import NamedRecipe, OptimizerConfig, ScheduleConfig


class ClassifierConfig(Frozen):
    """A text backbone and the classifier behind it."""

    architecture: Literal["bert", "distilbert", "roberta", "small_transformer"]
    pretrained: str | None = Field(
        default=None, description="Local folder or hub name of pretrained weights; None: random weights."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the architecture when it is built with random weights."
    )
    pooling: Literal["cls", "mean", "max"] = Field(
        default="cls", description="How tokens become the sentence's feature."
    )
    frozen_layers: Annotated[int, Field(ge=0)] | Literal["all"] = 0
    vocabulary_size: int = Field(
        default=8192,
        ge=300,
        description="Of the tokenizer learned from the training texts.",
    )
    max_tokens: int = Field(default=128, gt=4, description="Special tokens included; longer texts are cut.")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Of the classifier.")

    def tower(self) -> TextTowerConfig:
        """The settings of the backbone and its pooling."""
        names = ("architecture", "pretrained", "options", "pooling", "frozen_layers", "vocabulary_size")
        return TextTowerConfig.model_validate({name: getattr(self, name) for name in names})


class ClassificationDataConfig(Frozen):
    """What is drawn from a task's files."""

    share: float = Field(
        default=1.0, gt=0, le=1, description="Share of the training lines that is kept, drawn at random."
    )
    share_seed: int = Field(default=0, ge=0, description="Of that draw.")
    max_rejected: float = Field(
        default=0.01, ge=0, le=1, description="Share of broken lines above which the run stops."
    )


class ClassificationTrainConfig(Frozen):
    """Length, batch, precision and bookkeeping of a run."""

    batch_size: int = Field(default=32, gt=0)
    epochs: int = Field(default=3, gt=0)
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="auto: bf16 on a GPU that has it, else float32."
    )
    seed: int = Field(default=0, ge=0)
    checkpoint_minutes: float = Field(default=5.0, ge=0, description="At least this often; 0: every step.")
    log_every_steps: int = Field(default=20, gt=0)


class ClassificationRecipe(NamedRecipe):
    """A named, complete description of a run of text classification."""

    task: TaskName
    model: ClassifierConfig
    reclaim: ReclaimTermSettings | None = Field(
        default=None, description="RECLAIM's term on the mean word embedding and the sentence's feature."
    )
    data: ClassificationDataConfig = ClassificationDataConfig()
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = ScheduleConfig(name="linear")
    train: ClassificationTrainConfig = ClassificationTrainConfig()
