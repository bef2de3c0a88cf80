"""Read open_clip models: towers, heads, preprocessing, and weights renamed to those of transformers."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator
from tokenizers import Regex, normalizers
from torch import Tensor, nn

from training.common.errors import RecipeError
from training.conversion.published import Published
from training.models.config import (
    DualEncoderConfig,
    HeadConfig,
    ImagePreprocessingConfig,
    ImageTowerConfig,
    PreprocessingConfig,
    TextPreprocessingConfig,
    TextTowerConfig,
)
from training.models.dual_encoder import build_dual_encoder
from training.models.features import PretrainedLogits
from training.models.image_towers import check_image_size
from training.models.preprocessing import Preprocessing
from training.models.pretrained.folder import read_json, read_tensors
from training.models.pretrained.tokens import converted, transformers_tokenizer
from training.models.text_input import Tokenizer
from training.models.transformers_backbones import TEXT_NAMES, map_weights

CONFIG_FILE: Final = "open_clip_config.json"
_OPENAI_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_OPENAI_STD: Final = (0.26862954, 0.26130258, 0.27577711)

_Deviation = Annotated[float, Field(gt=0)]
_Size = Annotated[int, Field(gt=0)]
# Attention heads by the size in a timm name, and by the width of a BERT or RoBERTa.
_LARGE: Final = ("large", "huge", "giant", "gigantic")
_TIMM_HEADS: Final = {"tiny": 3, "small": 6, "base": 12, **dict.fromkeys(_LARGE, 16)}
# Published models of other widths (256, 384) don't agree on the number of heads.
_BERT_HEADS: Final[Mapping[int, int]] = {128: 2, 512: 8, 768: 12, 1024: 16}
_TIMM_NAME: Final = re.compile(r"vit_([a-z]+)_patch\d+.*")
_LOGIT_SCALE: Final = "logit_scale"
# Tensors of transformers' models that don't affect the embedding.
_UNUSED: Final = ("position_ids", "pooler.dense.weight", "pooler.dense.bias", "logit_bias", "attn_mask")
# Weights outside the blocks: open_clip's name, then CLIPVisionModel's.
VISION_NAMES: Final[Mapping[str, str]] = {
    "class_embedding": "embeddings.class_embedding",
    "positional_embedding": "embeddings.position_embedding.weight",
    "conv1.weight": "embeddings.patch_embedding.weight",
    "ln_pre.weight": "pre_layrnorm.weight",
    "ln_pre.bias": "pre_layrnorm.bias",
    "ln_post.weight": "post_layernorm.weight",
    "ln_post.bias": "post_layernorm.bias",
}
_TIMM: Final[Mapping[str, str]] = {
    "cls_token": "embeddings.cls_token",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj.weight": "embeddings.patch_embeddings.projection.weight",
    "patch_embed.proj.bias": "embeddings.patch_embeddings.projection.bias",
    "norm.weight": "layernorm.weight",
    "norm.bias": "layernorm.bias",
}
_TIMM_BLOCK: Final = re.compile(r"blocks\.(\d+)\.(.+)\.(weight|bias)")
_TIMM_PARTS: Final[Mapping[str, str]] = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.o_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


class _Settings(BaseModel):
    """Base of settings; unknown ones are rejected because they may change the embedding."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class VisionSettings(_Settings):
    """Image tower: open_clip's own vision transformer, or one of timm's."""

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
    """Text tower: open_clip's own transformer, or a BERT or RoBERTa of transformers."""

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
    """Both towers and the embedding."""

    embed_dim: _Size
    vision_cfg: VisionSettings
    text_cfg: TextSettings
    quick_gelu: bool = False
    custom_text: bool = False
    init_logit_scale: float | None = Field(default=None, description="In training alone.")


class PreprocessingSettings(_Settings):
    """Image preprocessing."""

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
        RecipeError: The file is missing, or contains an unsupported setting.
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
    """The image preprocessing of a model, with another side in pixels if `size` is preprocessing."""
    preprocessing = settings.preprocess_cfg
    return ImagePreprocessingConfig(
        size=size or settings.model_cfg.vision_cfg.image_size,
        resize="shortest_edge" if preprocessing.resize_mode == "shortest" else "squash",
        mean=preprocessing.mean,
        std=preprocessing.std,
        filter=preprocessing.interpolation,
        rounding="even",
    )


def read_open_clip(folder: Path, size: int | None = None) -> Published:
    """Read an open_clip model whose image tower is a vision transformer (open_clip's own or timm's).

    The folder contains open_clip_config.json, safetensors and a tokenizer. `size` must be the model's own.

    Raises:
        RecipeError: The folder contains no such model, or an unsupported setting or weight.
    """
    settings = read_settings(folder)
    model_settings = settings.model_cfg
    tensors = read_tensors(folder)
    scale = tensors.pop(_LOGIT_SCALE, None)
    tokenizer = converted(transformers_tokenizer(folder), folder, first=_cleaned())
    texts = {name: value for name, value in tensors.items() if not name.startswith("visual.")}
    try:
        image_config, image_weights = _image(model_settings, part(tensors, "visual."))
        text_config, text_weights = _text(model_settings, part(texts, "text.") or texts, tokenizer)
    except KeyError as error:
        raise RecipeError(
            f"The weights in {folder} lack {error}: it is no model that is read here."
        ) from error
    config = DualEncoderConfig(image=image_config, text=text_config, dim=model_settings.embed_dim)
    model = build_dual_encoder(config, tokenizer, load_pretrained=False)
    _load(model, {**image_weights, **text_weights}, folder)
    images = image_preprocessing(settings, size)
    if model.image is not None:
        check_image_size(model.image.backbone, images.size, "--image-size")
    preprocessing = PreprocessingConfig(
        image=images,
        text=TextPreprocessingConfig(max_tokens=model_settings.text_cfg.context_length),
    )
    logits = None if scale is None else PretrainedLogits(math.exp(-scale.item()))
    return Published(model, Preprocessing(preprocessing, tokenizer), logits)


def _cleaned() -> list[normalizers.Normalizer]:
    """Clean texts before tokenization as open_clip does."""
    return [
        normalizers.Replace(Regex("[ʼ‘-‛]"), "'"),
        normalizers.Replace(Regex("[“-‟]"), '"'),
        normalizers.NFC(),
        # Python counts the file and record separators as white space; open_clip doesn't.
        normalizers.Replace(Regex(r"[\s\x1c-\x1f]+"), " "),
        normalizers.Strip(),
    ]


def _image(
    settings: ModelSettings, tensors: Mapping[str, Tensor]
) -> tuple[ImageTowerConfig, dict[str, Tensor]]:
    """The image tower, and the weights of the tower and its head."""
    vision = settings.vision_cfg
    if vision.timm_model_name is None:
        weights = dict(tensors)
        # open_clip stores the transpose.
        head = _linear("image_head", weights.pop("proj").T)
        tower = ImageTowerConfig(
            architecture="clip_vision_model", options=_clip_vision_options(vision, settings.quick_gelu)
        )
        return tower, {**_below("image.backbone.model", map_weights(weights, VISION_NAMES)), **head}
    trunk = map_timm_vision(part(tensors, "trunk."))
    head = _linear("image_head", tensors["head.proj.weight"], tensors.get("head.proj.bias"))
    tower = ImageTowerConfig(architecture="vit", options=_timm_options(vision, trunk))
    return tower, {**_below("image.backbone.model", trunk), **head}


def _clip_vision_options(vision: VisionSettings, quick_gelu: bool) -> dict[str, Any]:
    return {
        "hidden_size": vision.width,
        "num_hidden_layers": vision.layers,
        "num_attention_heads": vision.width // vision.head_width,
        "intermediate_size": int(vision.width * vision.mlp_ratio),
        "image_size": vision.image_size,
        "patch_size": vision.patch_size,
        "hidden_act": "quick_gelu" if quick_gelu else "gelu",
    }


def _timm_options(vision: VisionSettings, trunk: Mapping[str, Tensor]) -> dict[str, Any]:
    """A timm vision transformer's options of ViTConfig."""
    patches = trunk["embeddings.patch_embeddings.projection.weight"]
    width = len(patches)
    return {
        "hidden_size": width,
        "num_hidden_layers": _count(trunk, "layers."),
        "num_attention_heads": _timm_heads(vision.timm_model_name or ""),
        "intermediate_size": len(trunk["layers.0.mlp.fc1.weight"]),
        "image_size": vision.image_size,
        "patch_size": patches.shape[-1],
        "layer_norm_eps": 1e-6,
    }


def _timm_heads(name: str) -> int:
    match = _TIMM_NAME.fullmatch(name)
    if match is None or match[1] not in _TIMM_HEADS:
        raise RecipeError(
            f"The image tower is timm's {name}, whose attention heads are not known here: models named "
            f"vit_SIZE_patch..., of size {', '.join(_TIMM_HEADS)}, are read."
        )
    return _TIMM_HEADS[match[1]]


def _text(
    settings: ModelSettings, tensors: Mapping[str, Tensor], tokenizer: Tokenizer
) -> tuple[TextTowerConfig, dict[str, Tensor]]:
    """The text tower, and the weights of the tower and its head."""
    text = settings.text_cfg
    if text.hf_model_name is None:
        own = dict(tensors)
        head = _linear("text_head", own.pop("text_projection").T)
        options = _clip_text_options(text, tokenizer, settings.quick_gelu)
        tower = TextTowerConfig(architecture="clip_text_model", options=options, pooling="eos")
        return tower, {**_below("text.backbone.model", map_weights(own, TEXT_NAMES)), **head}
    weights = part(tensors, "transformer.")
    # BERT distinguishes two segments of a text; RoBERTa and its relatives don't.
    roberta = len(weights["embeddings.token_type_embeddings.weight"]) == 1
    kind, head = _text_head(text, tensors)
    tower = TextTowerConfig(
        architecture="roberta" if roberta else "bert",
        options=_bert_options(weights, tokenizer, roberta=roberta),
        pooling="mean" if text.hf_pooler_type == "mean_pooler" else "cls",
        head=kind,
    )
    return tower, {**_below("text.backbone.model", weights), **head}


def _clip_text_options(text: TextSettings, tokenizer: Tokenizer, quick_gelu: bool) -> dict[str, Any]:
    return {
        "vocab_size": text.vocab_size,
        "hidden_size": text.width,
        "num_hidden_layers": text.layers,
        "num_attention_heads": text.heads,
        "intermediate_size": int(text.width * text.mlp_ratio),
        "max_position_embeddings": text.context_length,
        "hidden_act": "quick_gelu" if quick_gelu else "gelu",
        "pad_token_id": tokenizer.pad_id,
    }


def _bert_options(weights: Mapping[str, Tensor], tokenizer: Tokenizer, *, roberta: bool) -> dict[str, Any]:
    words, width = weights["embeddings.word_embeddings.weight"].shape
    if width not in _BERT_HEADS:
        raise RecipeError(
            f"The text tower is {width} wide, so its attention heads are not known here: towers of "
            f"{', '.join(map(str, _BERT_HEADS))} are read."
        )
    return {
        "vocab_size": words,
        "hidden_size": width,
        "num_hidden_layers": _count(weights, "encoder.layer."),
        "num_attention_heads": _BERT_HEADS[width],
        "intermediate_size": len(weights["encoder.layer.0.intermediate.dense.weight"]),
        "max_position_embeddings": len(weights["embeddings.position_embeddings.weight"]),
        "type_vocab_size": len(weights["embeddings.token_type_embeddings.weight"]),
        "pad_token_id": tokenizer.pad_id,
        "layer_norm_eps": 1e-5 if roberta else 1e-12,
    }


def _text_head(text: TextSettings, tensors: Mapping[str, Tensor]) -> tuple[HeadConfig, dict[str, Tensor]]:
    if text.hf_proj_type is None:
        return HeadConfig(kind="identity"), {}
    if text.hf_proj_type == "linear":
        return HeadConfig(), _linear("text_head", tensors["proj.weight"])
    first, last = tensors["proj.0.weight"], tensors["proj.2.weight"]
    kind = HeadConfig(kind="mlp", hidden=len(first), activation="gelu")
    return kind, {
        **_layer("text_head.0", first, first.new_zeros(len(first))),
        **_layer("text_head.3", last, last.new_zeros(len(last))),
    }


def _linear(head: str, weight: Tensor, bias: Tensor | None = None) -> dict[str, Tensor]:
    """The weights of a linear head, which follows a dropout."""
    return _layer(f"{head}.1", weight, weight.new_zeros(len(weight)) if bias is None else bias)


def _layer(name: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def _below(prefix: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    kept = {name: value for name, value in weights.items() if not name.endswith(_UNUSED)}
    return {f"{prefix}.{name}": value for name, value in kept.items()}


def _count(weights: Mapping[str, Tensor], prefix: str) -> int:
    """Number of layers in the weights."""
    return len({name.split(".")[0] for name in part(weights, prefix)})


def _load(model: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Load weights that must match a model exactly."""
    expected = model.state_dict().keys()
    missing, others = sorted(expected - weights.keys()), sorted(weights.keys() - expected)
    if missing or others:
        wrong = f"lack {missing[0]}" if missing else f"have {others[0]}, which is not followed here"
        raise RecipeError(f"The weights in {folder} {wrong}: only vision transformers of open_clip are read.")
    try:
        model.load_state_dict({name: value.contiguous() for name, value in weights.items()})
    except RuntimeError as error:
        raise RecipeError(f"The weights in {folder} do not fit its settings: {error}") from error


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors below a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def map_timm_vision(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename weights of timm's vision transformer to those of ViTModel; others keep their names."""
    mapped: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        match = _TIMM_BLOCK.fullmatch(name)
        if name in _TIMM:
            mapped[_TIMM[name]] = tensor
        elif match is not None and match[2] == "attn.qkv":
            for target, piece in zip("qkv", tensor.chunk(3), strict=True):
                mapped[f"layers.{match[1]}.attention.{target}_proj.{match[3]}"] = piece
        elif match is not None and match[2] in _TIMM_PARTS:
            mapped[f"layers.{match[1]}.{_TIMM_PARTS[match[2]]}.{match[3]}"] = tensor
        else:
            mapped[name] = tensor
    return mapped
