"""Typed settings of the encoders and of their preprocessing; stored in every bundle."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ImageArchitecture = Literal[
    "clip_resnet",
    "clip_vision_model",
    "convnext",
    "dinov2",
    "mobilenet_v2",
    "resnet",
    "siglip_vision_model",
    "vit",
]
TextArchitecture = Literal[
    "bert", "clip_text_model", "distilbert", "roberta", "siglip_text_model", "small_transformer"
]


class Frozen(BaseModel):
    """Base of all settings: unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HeadConfig(Frozen):
    """Projection from a tower's width to the embedding.

    `linear` is one layer; `mlp` is two layers with a ReLU between them.
    """

    kind: Literal["linear", "mlp"] = "linear"
    hidden: int | None = Field(
        default=None, gt=0, description="Width of the hidden layer; None: the output's."
    )
    dropout: float = Field(default=0.0, ge=0, lt=1)


class TowerConfig(Frozen):
    """What the image and the text tower have in common."""

    pretrained: str | None = Field(
        default=None, description="Local folder or hub name of pretrained weights; None: random weights."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the architecture when it is built with random weights."
    )
    frozen_layers: Annotated[int, Field(ge=0)] | Literal["all"] = Field(
        default=0, description="Embeddings (or stem) and this many first layers keep their weights."
    )
    head: HeadConfig = HeadConfig()


class ImageTowerConfig(TowerConfig):
    """An image encoder of transformers, or CLIP's ResNet, with its pooling and head."""

    architecture: ImageArchitecture
    pooling: Literal["tower", "cls", "mean", "max", "attention"] = Field(
        default="tower", description="`tower` takes the architecture's own pooled output."
    )


class TextTowerConfig(TowerConfig):
    """A text encoder with its pooling over real tokens and its head."""

    architecture: TextArchitecture
    pooling: Literal["cls", "eos", "mean", "max", "attention"] = "mean"
    vocabulary_size: int = Field(
        default=8192,
        ge=300,
        description="Upper bound for the tokenizer learned from the train split when none is pretrained.",
    )


class DualEncoderConfig(Frozen):
    """An image and a text encoder in one space of `dim` numbers."""

    image: ImageTowerConfig
    text: TextTowerConfig
    dim: int = Field(default=512, gt=0)
    local_features: bool = Field(
        default=False, description="Also return regions and tokens, projected to `dim`."
    )


class ImagePreprocessingConfig(Frozen):
    """How a decoded RGB image becomes a square float tensor."""

    size: int = Field(default=224, gt=0)
    resize: Literal["crop", "squash", "pad"] = Field(
        default="crop",
        description="Short side to size and centre crop; stretch; or long side to size and pad.",
    )
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


class TextPreprocessingConfig(Frozen):
    """How a text becomes token ids."""

    max_tokens: int = Field(default=64, gt=2, description="Special tokens included; longer texts are cut.")


class PreprocessingConfig(Frozen):
    """One object for the trainer, the bulk embedder and the service."""

    image: ImagePreprocessingConfig = ImagePreprocessingConfig()
    text: TextPreprocessingConfig = TextPreprocessingConfig()
