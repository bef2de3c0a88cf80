"""Typed settings of text classification."""

from typing import Annotated, Any, Literal

from pydantic import Field

from training.classification.texts.tasks import TaskName
from training.common.frozen import Frozen
from training.models.config import TextTowerConfig
from training.papers.reclaim import ReclaimTermSettings
from training.recipes.schema import ScheduleConfig
from training.recipes.tasks import ChoosingDataConfig, TaskRecipe


class TextClassifierConfig(Frozen):
    """A text backbone and the classifier behind it."""

    architecture: Literal["bert", "distilbert", "roberta", "small_transformer"]
    pretrained: str | None = Field(
        default=None, description="Local folder or hub name of pretrained weights; None: random weights."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the architecture when it is built with random weights."
    )
    pooling: Literal["cls", "mean", "max"] = Field(
        default="cls", description="Pooling of token states into the sentence's feature."
    )
    frozen_layers: Annotated[int, Field(ge=0)] | Literal["all"] = 0
    vocabulary_size: int = Field(
        default=8192,
        ge=300,
        description="Vocabulary size of the tokenizer learned from the training texts.",
    )
    max_tokens: int = Field(default=128, gt=4, description="Special tokens included; longer texts are cut.")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Dropout rate of the classifier.")

    def tower(self) -> TextTowerConfig:
        """The settings of the backbone and its pooling."""
        names = ("architecture", "pretrained", "options", "pooling", "frozen_layers", "vocabulary_size")
        return TextTowerConfig.model_validate({name: getattr(self, name) for name in names})


class TextRecipe(TaskRecipe):
    """A named, complete description of a run of text classification."""

    task: TaskName
    model: TextClassifierConfig
    data: ChoosingDataConfig = ChoosingDataConfig()
    reclaim: ReclaimTermSettings | None = Field(
        default=None, description="RECLAIM's term on the mean word embedding and the sentence's feature."
    )
    schedule: ScheduleConfig = ScheduleConfig(name="linear")
