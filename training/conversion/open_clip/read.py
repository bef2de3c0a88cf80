"""An open_clip model as towers, heads and preprocessing, its weights under the names of transformers."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tokenizers import Regex, normalizers
from torch import Tensor, nn

from training.common.errors import RecipeError
from training.conversion.open_clip.config import (
    ModelSettings,
    TextSettings,
    VisionSettings,
    image_preprocessing,
    read_settings,
)
from training.conversion.published import Published
from training.models.config import (
    DualEncoderConfig,
    HeadConfig,
    ImageTowerConfig,
    PreprocessingConfig,
    TextPreprocessingConfig,
    TextTowerConfig,
)
from training.models.dual_encoder import build_dual_encoder
from training.models.images.towers import check_image_size
from training.models.inputs.tokenizer import Tokenizer
from training.models.logits import PretrainedLogits
from training.models.preprocessing import Preprocessing
from training.models.pretrained.folder import read_tensors
from training.models.pretrained.tokens import converted, transformers_tokenizer
from training.models.texts.clip_text_weights import TEXT_NAMES, map_weights

# Attention heads by the size in a name of timm, and by the width of a BERT or RoBERTa.
_TIMM_HEADS: Final[Mapping[str, int]] = {
    "tiny": 3,
    "small": 6,
    "base": 12,
    "large": 16,
    "huge": 16,
    "giant": 16,
    "gigantic": 16,
}
# Published models of other widths, such as 256 or 384, differ in their heads.
_BERT_HEADS: Final[Mapping[int, int]] = {128: 2, 512: 8, 768: 12, 1024: 16}
_TIMM_NAME: Final = re.compile(r"vit_([a-z]+)_patch\d+.*")
_LOGIT_SCALE: Final = "logit_scale"
# Of transformers' models, without any effect on the embedding.
_UNUSED: Final = ("position_ids", "pooler.dense.weight", "pooler.dense.bias", "logit_bias", "attn_mask")

# Of open_clip's own vision transformer, outside of its blocks, and of CLIPVisionModel.
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


def read_open_clip(folder: Path, size: int | None = None) -> Published:
    """Read an open_clip model with vision transformers, of its own or of timm, from its folder.

    Args:
        folder: With open_clip_config.json, safetensors and a tokenizer.
        size: Side of images in pixels, which has to be the model's; None: the model's.

    Raises:
        RecipeError: The folder holds no such model, or a setting or weight that is not followed here.
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
    """Clean texts as open_clip does before any tokenizer reads them."""
    return [
        normalizers.Replace(Regex("[ʼ‘-‛]"), "'"),
        normalizers.Replace(Regex("[“-‟]"), '"'),
        normalizers.NFC(),
        # Separators of files and records are white space in Python, but not here.
        normalizers.Replace(Regex(r"[\s\x1c-\x1f]+"), " "),
        normalizers.Strip(),
    ]


def _image(
    settings: ModelSettings, tensors: Mapping[str, Tensor]
) -> tuple[ImageTowerConfig, dict[str, Tensor]]:
    """The image tower, and the weights of it and its head."""
    vision = settings.vision_cfg
    if vision.timm_model_name is None:
        weights = dict(tensors)
        # open_clip keeps the transposed matrix.
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
    """The options of ViTConfig that timm's vision transformer has."""
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
    found = _TIMM_NAME.fullmatch(name)
    if found is None or found[1] not in _TIMM_HEADS:
        raise RecipeError(
            f"The image tower is timm's {name}, whose attention heads are not known here: models named "
            f"vit_SIZE_patch..., of size {', '.join(_TIMM_HEADS)}, are read."
        )
    return _TIMM_HEADS[found[1]]


def _text(
    settings: ModelSettings, tensors: Mapping[str, Tensor], tokenizer: Tokenizer
) -> tuple[TextTowerConfig, dict[str, Tensor]]:
    """The text tower, and the weights of it and its head."""
    text = settings.text_cfg
    if text.hf_model_name is None:
        own = dict(tensors)
        head = _linear("text_head", own.pop("text_projection").T)
        options = _clip_text_options(text, tokenizer, settings.quick_gelu)
        tower = TextTowerConfig(architecture="clip_text_model", options=options, pooling="eos")
        return tower, {**_below("text.backbone.model", map_weights(own, TEXT_NAMES)), **head}
    weights = part(tensors, "transformer.")
    # BERT tells two segments of a text apart, RoBERTa and its relatives none.
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
    """The weights of a linear head, which comes behind a dropout."""
    return _layer(f"{head}.1", weight, weight.new_zeros(len(weight)) if bias is None else bias)


def _layer(name: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def _below(prefix: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    kept = {name: value for name, value in weights.items() if not name.endswith(_UNUSED)}
    return {f"{prefix}.{name}": value for name, value in kept.items()}


def _count(weights: Mapping[str, Tensor], prefix: str) -> int:
    """How many layers the weights have."""
    return len({name.split(".")[0] for name in part(weights, prefix)})


def _load(model: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Load weights that are all of a model and nothing else."""
    known = model.state_dict().keys()
    missing, others = sorted(known - weights.keys()), sorted(weights.keys() - known)
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
    """Weights of timm's vision transformer as those of ViTModel; others keep their names."""
    mapped: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        found = _TIMM_BLOCK.fullmatch(name)
        if name in _TIMM:
            mapped[_TIMM[name]] = tensor
        elif found is not None and found[2] == "attn.qkv":
            for target, piece in zip("qkv", tensor.chunk(3), strict=True):
                mapped[f"layers.{found[1]}.attention.{target}_proj.{found[3]}"] = piece
        elif found is not None and found[2] in _TIMM_PARTS:
            mapped[f"layers.{found[1]}.{_TIMM_PARTS[found[2]]}.{found[3]}"] = tensor
        else:
            mapped[name] = tensor
    return mapped
