"""Weights in the naming of open_clip and timm under the names of transformers."""

import re
from collections.abc import Mapping
from typing import Final

from torch import Tensor

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
