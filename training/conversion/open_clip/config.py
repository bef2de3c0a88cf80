"""The settings of an open_clip model that decide its embeddings."""

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from training.common.errors import RecipeError
from training.models.config import ImagePreprocessingConfig
from training.models.pretrained.folder import read_json

CONFIG_FILE: Final = "open_clip_config.json"
_OPENAI_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_OPENAI_STD: Final = (0.26862954, 0.26130258, 0.27577711)

_Deviation = Annotated[float, Field(gt=0)]
_Size = Annotated[int, Field(gt=0)]


class _Settings(BaseModel):
    """Unknown settings are refused, for they may change the embedding."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class VisionSettings(_Settings):
    """Of the image tower: open_clip's own transformer, or one of timm."""

    image_size: _Size = 224
    patch_size: _Size = 16
    width: _Size = 768
    layers: _Size = 12
    head_width: _Size = 64
    mlp_ratio: float = 4.0
    patch_dropout: float = Field(default=0.0, description="In training alone.")
    timm_model_name: str | None = None
    timm_model_pretrained: bool = Field(default=False, description="Where training began.")
    timm_pool: Literal["", "token"] | None = None
    timm_proj: Literal["linear"] | None = "linear"
    timm_proj_bias: bool = False
    timm_drop: float = Field(default=0.0, description="In training alone.")
    timm_drop_path: float | None = Field(default=None, description="In training alone.")

    @model_validator(mode="after")
    def _check_pool(self) -> Self:
        if self.timm_model_name is not None and self.timm_pool is None:
            raise ValueError("without a timm_pool, open_clip takes the mean of the patches")
        return self


class TextSettings(_Settings):
    """Of the text tower: open_clip's own transformer, or a BERT or RoBERTa of transformers."""

    context_length: int = Field(default=77, gt=2)
    vocab_size: _Size = 49408
    width: _Size = 512
    heads: _Size = 8
    layers: _Size = 12
    mlp_ratio: float = 4.0
    hf_tokenizer_name: str | None = None
    tokenizer_kwargs: dict[str, Any] | None = Field(default=None, max_length=0)
    hf_model_name: str | None = None
    hf_model_pretrained: bool = Field(default=True, description="Where training began.")
    hf_proj_type: Literal["linear", "mlp"] | None = Field(
        default="mlp", validation_alias=AliasChoices("hf_proj_type", "proj")
    )
    hf_pooler_type: Literal["cls_last_hidden_state_pooler", "mean_pooler"] = Field(
        default="mean_pooler", validation_alias=AliasChoices("hf_pooler_type", "pooler_type")
    )


class ModelSettings(_Settings):
    """Of the whole model."""

    embed_dim: _Size
    vision_cfg: VisionSettings
    text_cfg: TextSettings
    quick_gelu: bool = False
    custom_text: bool = False
    init_logit_scale: float | None = Field(default=None, description="In training alone.")


class PreprocessingSettings(_Settings):
    """Of images."""

    size: int | tuple[int, int] | None = None
    mode: Literal["RGB"] = "RGB"
    mean: tuple[float, float, float] = _OPENAI_MEAN
    std: tuple[_Deviation, _Deviation, _Deviation] = _OPENAI_STD
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    resize_mode: Literal["shortest", "squash"] = "shortest"
    fill_color: int = 0


class OpenClipSettings(_Settings):
    """Content of open_clip_config.json."""

    model_cfg: ModelSettings
    preprocess_cfg: PreprocessingSettings = PreprocessingSettings()


def read_settings(folder: Path) -> OpenClipSettings:
    """The settings of the model in a folder.

    Raises:
        RecipeError: The file is missing, or a setting in it is not followed here.
    """
    content = read_json(folder / CONFIG_FILE)
    try:
        return OpenClipSettings.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecipeError(
            f"{folder / CONFIG_FILE}: {where} is not followed here ({first['msg']})."
        ) from error


def image_preprocessing(settings: OpenClipSettings, size: int | None) -> ImagePreprocessingConfig:
    """How the images of a model are prepared, with another side in pixels if there is one."""
    given = settings.preprocess_cfg
    return ImagePreprocessingConfig(
        size=size or settings.model_cfg.vision_cfg.image_size,
        resize="shortest_edge" if given.resize_mode == "shortest" else "squash",
        mean=given.mean,
        std=given.std,
        filter=given.interpolation,
        rounding="even",
    )
