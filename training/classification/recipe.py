"""Typed settings of image classification, and the figures that ReCo reports for them."""

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from training.common.frozen import Frozen
from training.data.augmentation_config import AugmentationConfig
from training.models.config import ImageArchitecture, ImagePreprocessingConfig, ImageTowerConfig
from training.recipes.schema import ScheduleConfig, decoded_at_a_scale
from training.recipes.tasks import TaskDataConfig, TaskRecipe


class ImageDataConfig(TaskDataConfig):
    """Labels, splits and decoding of a manifest's images."""

    labels: tuple[str, ...] | None = Field(
        default=None, description="Labels to predict; None: every label of the train split."
    )
    validation_images: int = Field(
        default=0,
        ge=0,
        description="About so many images of the train split, whole groups, are held out to choose the best "
        "checkpoint; 0: the val split chooses.",
    )
    test_split: Literal["test", "val"] = Field(
        default="test", description="Split of the final figures; val where validation_images are held out."
    )
    workers: int = Field(
        default=0,
        ge=0,
        description="Threads that decode, and processes for DICOM files; 0: as many as there are cores.",
    )
    cache_images: bool | Literal["memory"] = Field(
        default=True, description="Decode training images before the first step and keep them resized."
    )

    @model_validator(mode="after")
    def _chosen_on_other_images(self) -> Self:
        if self.test_split == "val" and not self.validation_images:
            raise ValueError(
                "the val split cannot both choose and test: set validation_images, or test_split to test"
            )
        return self


class ImageClassifierConfig(Frozen):
    """An image tower that a classifier starts from where it is not that of a bundle."""

    architecture: ImageArchitecture
    pretrained: str | None = Field(
        default=None,
        description="Local folder or hub name of pretrained weights, or for resnet a file with torchvision's "
        "names; None: random weights.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the architecture when it is built with random weights."
    )
    pooling: Literal["tower", "cls", "mean", "max", "attention"] = Field(
        default="tower", description="`tower` takes the architecture's own pooled output."
    )

    def tower(self) -> ImageTowerConfig:
        """The settings of the tower."""
        return ImageTowerConfig.model_validate(self.model_dump())


class ImageRecipe(TaskRecipe):
    """A named, complete description of a run of image classification."""

    task: Literal["labels"]
    encoder: str | None = Field(
        default=None,
        description="Folder of a bundle whose image tower and preprocessing the classifier starts from.",
    )
    model: ImageClassifierConfig | None = Field(
        default=None, description="The tower to start from where there is no bundle."
    )
    preprocessing: ImagePreprocessingConfig | None = Field(
        default=None, description="Preprocessing for `model`; a bundle has its own."
    )
    frozen: bool = Field(
        description="Linear evaluation: the encoder keeps its weights and statistics. False: fine-tuning."
    )
    data: ImageDataConfig = ImageDataConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    schedule: ScheduleConfig = ScheduleConfig()

    @model_validator(mode="before")
    @classmethod
    def _decode_at_a_scale(cls, value: Any) -> Any:
        """A bundle has its own preprocessing; a new classifier decodes as new encoders do."""
        if not isinstance(value, dict) or value.get("model") is None:
            return value
        return {**value, "preprocessing": decoded_at_a_scale(value.get("preprocessing") or {})}

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if self.encoder is not None and (self.model is not None or self.preprocessing is not None):
            raise ValueError("a bundle has its own model and preprocessing: set both to null, or encoder")
        if self.preprocessing is not None and self.model is None:
            raise ValueError("preprocessing belongs to model: add model, or set preprocessing to null")
        return self


CHEXPERT_LABELS: Final = (
    *("Atelectasis", "Cardiomegaly", "Edema", "Fracture"),
    *("No Finding", "Pleural Effusion", "Pneumonia", "Pneumothorax"),
)


def published(recipe: ImageRecipe) -> dict[str, float]:
    """The mean AUC of each row of ReCo's table 2 on CheXpert, in percent, for a protocol and share.

    Empty for other labels, splits or shares.
    """
    shares = 0.01, 0.1, 1.0
    data = recipe.data
    chexpert = data.labels is not None and set(data.labels) == set(CHEXPERT_LABELS)
    if not chexpert or data.test_split != "val" or data.share not in shares:
        return {}
    # Linear evaluation, then fine-tuning, each in the order of the shares.
    rows = {
        "random weights, by ConVIRT": ((58.2, 63.7, 66.2), (70.4, 81.1, 85.8)),
        "ImageNet, by ConVIRT": ((75.7, 79.7, 81.0), (80.1, 84.8, 87.6)),
        "ConVIRT": ((85.9, 86.8, 87.3), (87.0, 88.1, 88.1)),
        "ImageNet, by ReCo": ((69.90, 74.13, 77.43), (74.90, 82.98, 87.37)),
        "InfoNCE": ((86.65, 88.25, 88.38), (87.38, 88.30, 88.55)),
        "ReCo": ((86.90, 88.28, 88.57), (87.07, 88.33, 88.58)),
    }
    column = shares.index(data.share)
    return {row: (linear if recipe.frozen else tuned)[column] for row, (linear, tuned) in rows.items()}
