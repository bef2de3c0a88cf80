"""The text half of a CLIP file in open_clip's naming, as transformers' CLIPTextModel."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from training.common.errors import RecipeError
from training.models.pretrained.folder import read_json, read_tensors, tensor_names

_HEAD_WIDTH = 64
TEXT_NAMES: Final[Mapping[str, str]] = {
    "positional_embedding": "embeddings.position_embedding.weight",
    "token_embedding.weight": "embeddings.token_embedding.weight",
    "ln_final.weight": "final_layer_norm.weight",
    "ln_final.bias": "final_layer_norm.bias",
}
_PARTS = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_BLOCK = re.compile(r"transformer\.resblocks\.(\d+)\.(.+)[._](weight|bias)")
_PREFIXES = ("positional_embedding", "token_embedding.", "ln_final.", "transformer.resblocks.")


def is_open_clip(folder: Path) -> bool:
    """Whether the folder's weights are named as open_clip names them."""
    return "ln_final.weight" in tensor_names(folder)


def open_clip_text_options(folder: Path) -> dict[str, Any]:
    """The options of CLIPTextConfig that the folder's weights have."""
    tensors = read_tensors(folder, prefixes=_PREFIXES)
    vocabulary, width = tensors["token_embedding.weight"].shape
    layers = {match[1] for name in tensors if (match := _BLOCK.fullmatch(name))}
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "num_attention_heads": max(1, width // _HEAD_WIDTH),
        "intermediate_size": tensors["transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
        "max_position_embeddings": tensors["positional_embedding"].shape[0],
        "hidden_act": "quick_gelu" if _quick_gelu(folder) else "gelu",
    }


def load_open_clip_text(model: nn.Module, folder: Path) -> nn.Module:
    """The same CLIPTextModel with the folder's weights.

    Raises:
        RecipeError: The file lacks weights of the model.
    """
    mapped = map_weights(read_tensors(folder, prefixes=_PREFIXES), TEXT_NAMES)
    try:
        model.load_state_dict(mapped)
    except RuntimeError as error:
        raise RecipeError(f"The text weights in {folder} are not those of CLIP: {error}") from error
    return model


def map_weights(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Weights of a transformer of open_clip under the names of CLIP's models; unknown ones keep theirs."""
    mapped: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        mapped |= {names[name]: tensor} if name in names else _block(name, tensor)
    return mapped


def _block(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """A weight of a block; one input projection becomes three."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return {name: tensor}
    layer, part, kind = match.groups()
    if part == "attn.in_proj":
        return {
            f"encoder.layers.{layer}.self_attn.{target}_proj.{kind}": piece
            for target, piece in zip("qkv", tensor.chunk(3), strict=True)
        }
    return {f"encoder.layers.{layer}.{_PARTS.get(part, part)}.{kind}": tensor}


def _quick_gelu(folder: Path) -> bool:
    """OpenAI's weights need the quick form; a file without a configuration is taken for theirs."""
    path = folder / "open_clip_config.json"
    if not path.is_file():
        return True
    return bool(read_json(path).get("model_cfg", {}).get("quick_gelu", False))
