"""Typed settings of visual question answering."""

from typing import Any, Literal

from pydantic import Field, model_validator

from training.classification.images.config import ImageClassifierConfig
from training.common.frozen import Frozen
from training.models.config import ImagePreprocessingConfig, ImageTowerConfig, TextTowerConfig
from training.papers.reclaim import ReclaimTermSettings
from training.recipes.schema import ScheduleConfig, decoded_at_a_scale
from training.recipes.tasks import ChoosingDataConfig, TaskRecipe


class QuestionDataConfig(ChoosingDataConfig):
    """Answers and images used of a folder of VQA v2."""

    min_answer_count: int = Field(
        default=9, gt=0, description="Answers are those that as many training questions have."
    )
    workers: int = Field(
        default=0,
        ge=0,
        description="Threads that decode, and processes for DICOM files; 0: as many as there are cores.",
    )
    cache_images: bool | Literal["memory"] = Field(
        default=True, description="Decode all images before the first step and keep them resized."
    )


class QuestionEncoderConfig(Frozen):
    """Word embeddings and a GRU with random weights."""

    word_width: int = Field(default=600, gt=0)
    width: int = Field(default=1280, gt=0, description="Width of the GRU and of all layers behind it.")
    vocabulary_size: int = Field(default=20_000, ge=300, description="Upper bound; special tokens included.")
    max_tokens: int = Field(default=16, gt=2, description="Start and end included; longer questions are cut.")

    def tower(self) -> TextTowerConfig:
        """The settings of the text tower."""
        options: dict[str, Any] = {"word_width": self.word_width, "width": self.width}
        return TextTowerConfig(
            architecture="gru", options=options, pooling="eos", vocabulary_size=self.vocabulary_size
        )


class ImageRegionsConfig(ImageClassifierConfig):
    """An image tower whose local features are the regions that a question looks at."""

    frozen: bool = Field(default=True, description="The tower keeps its weights and statistics.")

    def tower(self) -> ImageTowerConfig:
        """The settings of the image tower."""
        frozen = {"frozen_layers": "all" if self.frozen else 0}
        return ImageTowerConfig.model_validate({**self.model_dump(exclude={"frozen"}), **frozen})


class AnswerModelConfig(Frozen):
    """A bilinear attention network (Kim et al. 2018) over image regions and words."""

    image: ImageRegionsConfig
    question: QuestionEncoderConfig = QuestionEncoderConfig()
    glimpses: int = Field(default=8, gt=0, description="Attention maps, each read after the one before.")
    dropout: float = Field(default=0.2, ge=0, lt=1, description="Dropout before each projection.")
    last_dropout: float = Field(default=0.5, ge=0, lt=1, description="Dropout of attention and classifier.")


class QuestionRecipe(TaskRecipe):
    """A named, complete description of a run of visual question answering."""

    task: Literal["vqa"]
    model: AnswerModelConfig
    preprocessing: ImagePreprocessingConfig = ImagePreprocessingConfig()
    data: QuestionDataConfig = QuestionDataConfig()
    reclaim: ReclaimTermSettings | None = Field(
        default=None, description="RECLAIM's term on the features of question and image."
    )
    schedule: ScheduleConfig = ScheduleConfig()

    @model_validator(mode="before")
    @classmethod
    def _decode_at_a_scale(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {**value, "preprocessing": decoded_at_a_scale(value.get("preprocessing", {}))}
