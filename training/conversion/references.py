"""Reference vectors of published encoders, computed by transformers or from open_clip's definition.

The open_clip reference shares no code with the mapping to a bundle's towers: it reads the weights under their
own names, so that a mistake in one can't hide in the other.
"""

import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers.convert_slow_tokenizer import bytes_to_unicode

from training.common.errors import RecipeError
from training.conversion.open_clip import CONFIG_FILE
from training.models.pretrained.architecture import COMPOSITES, quiet
from training.models.pretrained.folder import read_json, read_tensors, tensor_names
from training.models.pretrained.preprocessing import image_processor
from training.models.pretrained.tokens import knows_lower_case_only, transformers_tokenizer

# Most ViT checkpoints were trained without the pooler.
_WITHOUT_POOLER: Final = "vit"
_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_STD: Final = (0.26862954, 0.26130258, 0.27577711)
_OWN_EPS: Final = 1e-5
_TIMM_EPS: Final = 1e-6
_BERT_EPS: Final = 1e-12
# timm's vision transformers whose heads are not 64 wide.
_TIMM_HEADS: Final = {"huge": 16, "giant": 16, "gigantic": 16}
_HEAD_WIDTH: Final = 64
# Quotation marks that ftfy straightens.
_QUOTES: Final = {ord(mark): "'" for mark in "ʼ‘’‚‛"} | {ord(mark): '"' for mark in "“”„‟"}
_Activation = Callable[[Tensor], Tensor]


class Reference:
    """A published encoder computed by transformers, optionally for another image side.

    Raises:
        RecipeError: transformers cannot load it.
    """

    name = "transformers"

    def __init__(self, folder: Path, size: int | None = None) -> None:
        self._folder = folder
        self._kind = str(read_json(folder / "config.json").get("model_type"))
        self._processor = image_processor(folder)
        self._sizes = {} if size is None else _sizes(self._processor, size)
        projects = self._kind == "clip_vision_model" and "visual_projection.weight" in tensor_names(folder)
        loader: Any = transformers.CLIPVisionModelWithProjection if projects else transformers.AutoModel
        try:
            with quiet():
                self._model = loader.from_pretrained(
                    folder,
                    dtype=torch.float32,
                    use_safetensors=True,
                    local_files_only=True,
                    trust_remote_code=False,
                ).eval()
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise RecipeError(f"transformers cannot load the model in {folder}: {error}") from error

    def embed_images(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """Unit vectors (B, D) of images of any size."""
        rgb = [image.convert("RGB") for image in images]
        pixels = self._processor(rgb, return_tensors="np", **self._sizes)["pixel_values"]
        with torch.inference_mode():
            inputs = {"pixel_values": torch.from_numpy(np.stack(pixels))}
            if self._kind in COMPOSITES:
                return _unit(self._model.get_image_features(**inputs).pooler_output)
            output = self._model(**inputs)
            if self._kind == _WITHOUT_POOLER:
                return _unit(output.last_hidden_state[:, 0])
            # Only vision models with a projection have image_embeds.
            pooled = getattr(output, "image_embeds", None)
            return _unit((output.pooler_output if pooled is None else pooled).flatten(1))

    def embed_texts(self, texts: Sequence[str], limit: int) -> NDArray[np.float32]:
        """Unit vectors (B, D) of texts, cut after `limit` tokens."""
        tokenizer = transformers_tokenizer(self._folder)
        settings: Mapping[str, Any] = {"truncation": True, "max_length": limit, "return_tensors": "pt"}
        if knows_lower_case_only(self._folder):
            # SigLIP was trained on lower-case texts padded to the right, with attention to the padding.
            tokenizer.padding_side = "right"
            lower = [text.lower() for text in texts]
            inputs = {"input_ids": tokenizer(lower, padding="max_length", **settings)["input_ids"]}
        else:
            inputs = dict(tokenizer(list(texts), padding=True, **settings))
        with torch.inference_mode():
            return _unit(self._model.get_text_features(**inputs).pooler_output)


def _sizes(processor: Any, size: int) -> dict[str, Any]:
    """Processor arguments for another image size; a crop keeps its share."""
    square = {"height": size, "width": size}
    edge = processor.size.get("shortest_edge")
    if edge is None:
        return {"size": square}
    crop = getattr(processor, "crop_size", None)
    if crop is None:
        return {"size": {"shortest_edge": size}}
    return {"size": {"shortest_edge": round(edge * size / crop["height"])}, "crop_size": square}


def _unit(features: Tensor) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = functional.normalize(features.float(), dim=-1).numpy()
    return vectors


class OpenClipReference:
    """An open_clip model computed from open_clip's definition.

    Raises:
        RecipeError: A file is missing or damaged.
        LookupError: A setting or weight is missing.
    """

    name = "open_clip's definition"

    def __init__(self, folder: Path) -> None:
        content = read_json(folder / CONFIG_FILE)
        self._settings: dict[str, Any] = content["model_cfg"]
        self._pixels: dict[str, Any] = content.get("preprocess_cfg", {})
        self._weights = _Weights(read_tensors(folder))
        self._tokenizer = transformers_tokenizer(folder)

    def embed_images(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """Unit vectors (B, D) of images of any size."""
        settings = self._settings["vision_cfg"]
        size = settings.get("image_size", 224)
        pixels = torch.stack([_pixels(image, size, self._pixels) for image in images])
        visual = self._weights.below("visual.")
        with torch.inference_mode():
            if settings.get("timm_model_name"):
                return _unit(_timm_vision(visual, settings["timm_model_name"], pixels))
            heads = settings.get("width", 768) // settings.get("head_width", _HEAD_WIDTH)
            return _unit(_own_vision(visual, pixels, heads, self._activation))

    def embed_texts(self, texts: Sequence[str], limit: int) -> NDArray[np.float32]:
        """Unit vectors (B, D) of texts, cut after `limit` tokens."""
        settings = self._settings["text_cfg"]
        cleaned = [" ".join(unicodedata.normalize("NFC", text.translate(_QUOTES)).split()) for text in texts]
        ids = self._ids(cleaned, limit)
        text = self._weights.below("text.") or self._weights
        with torch.inference_mode():
            if not settings.get("hf_model_name"):
                return _unit(_own_text(text, ids, settings.get("heads", 8), self._activation))
            mean = settings.get("hf_pooler_type", settings.get("pooler_type", "mean_pooler")) == "mean_pooler"
            return _unit(_bert_text(text, ids, self._tokenizer.pad_token_id, mean=mean))

    @property
    def _activation(self) -> _Activation:
        return _quick_gelu if self._settings.get("quick_gelu") else functional.gelu

    def _ids(self, texts: Sequence[str], limit: int) -> Tensor:
        settings = self._settings["text_cfg"]
        if settings.get("hf_model_name") or settings.get("hf_tokenizer_name"):
            padding = {"padding": "max_length", "truncation": True, "max_length": limit}
            ids: Tensor = self._tokenizer(list(texts), return_tensors="pt", **padding)["input_ids"]
            return ids
        encoded = _clip_tokenizer(self._tokenizer)(list(texts), truncation=True, max_length=limit)
        return pad_sequence([torch.tensor(ids) for ids in encoded["input_ids"]], batch_first=True)


def _clip_tokenizer(published: Any) -> transformers.CLIPTokenizer:
    """CLIP's byte-pair tokenizer: ids follow the order bytes, word-ending bytes, merges, start, end."""
    merges = json.loads(published.backend_tokenizer.to_str())["model"]["merges"]
    byte_letters: Any = bytes_to_unicode
    letters = list(byte_letters().values())
    pieces = [*letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in merges)]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    pairs: list[Any] = [tuple(pair) for pair in merges]
    return transformers.CLIPTokenizer(numbers, pairs)


class _Weights(dict[str, Tensor]):
    """Weights by name."""

    def below(self, prefix: str) -> "_Weights":
        """The weights under a prefix, without the prefix in their names."""
        return _Weights({name[len(prefix) :]: self[name] for name in self if name.startswith(prefix)})

    def blocks(self, prefix: str) -> list["_Weights"]:
        """The weights of numbered blocks, by number."""
        numbers = {int(name.split(".")[0]) for name in self.below(prefix)}
        return [self.below(f"{prefix}{number}.") for number in sorted(numbers)]

    def linear(self, name: str, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self[f"{name}.weight"], self.get(f"{name}.bias"))

    def norm(self, name: str, hidden: Tensor, eps: float) -> Tensor:
        weight, bias = self[f"{name}.weight"], self[f"{name}.bias"]
        return functional.layer_norm(hidden, hidden.shape[-1:], weight, bias, eps)


def _pixels(image: Image.Image, size: int, settings: Mapping[str, Any]) -> Tensor:
    """An image (3, S, S), preprocessed like torchvision does with Pillow images."""
    filters = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    resampling = filters[settings.get("interpolation", "bicubic")]
    if settings.get("resize_mode", "shortest") == "squash":
        square = image.resize((size, size), resampling)
    else:
        short = min(image.size)
        sides = int(size * image.width / short), int(size * image.height / short)
        resized = image.resize(sides, resampling)
        left, top = round((resized.width - size) / 2.0), round((resized.height - size) / 2.0)
        square = resized.crop((left, top, left + size, top + size))
    unit = torch.from_numpy(np.array(square.convert("RGB"))).permute(2, 0, 1) / 255
    mean, std = (torch.tensor(settings.get(name, by)) for name, by in (("mean", _MEAN), ("std", _STD)))
    return (unit - mean[:, None, None]) / std[:, None, None]


def _own_vision(weights: _Weights, pixels: Tensor, heads: int, activation: _Activation) -> Tensor:
    hidden = _patches(pixels, weights["conv1.weight"], None, weights["class_embedding"])
    hidden = weights.norm("ln_pre", hidden + weights["positional_embedding"], _OWN_EPS)
    hidden = _own_blocks(weights, hidden, heads, activation, None)
    return weights.norm("ln_post", hidden[:, 0], _OWN_EPS) @ weights["proj"]


def _own_text(weights: _Weights, ids: Tensor, heads: int, activation: _Activation) -> Tensor:
    hidden = weights["token_embedding.weight"][ids] + weights["positional_embedding"][: ids.shape[1]]
    future = torch.full((ids.shape[1], ids.shape[1]), -math.inf).triu(1)
    hidden = weights.norm("ln_final", _own_blocks(weights, hidden, heads, activation, future), _OWN_EPS)
    # The end-of-text token has the highest id.
    return hidden[torch.arange(len(ids)), ids.argmax(dim=1)] @ weights["text_projection"]


def _own_blocks(
    weights: _Weights, hidden: Tensor, heads: int, activation: _Activation, mask: Tensor | None
) -> Tensor:
    for block in weights.blocks("transformer.resblocks."):
        normed = block.norm("ln_1", hidden, _OWN_EPS)
        parts = functional.linear(normed, block["attn.in_proj_weight"], block["attn.in_proj_bias"])
        hidden = hidden + block.linear("attn.out_proj", _attend(parts.chunk(3, -1), heads, mask))
        inner = activation(block.linear("mlp.c_fc", block.norm("ln_2", hidden, _OWN_EPS)))
        hidden = hidden + block.linear("mlp.c_proj", inner)
    return hidden


def _timm_vision(weights: _Weights, name: str, pixels: Tensor) -> Tensor:
    trunk = weights.below("trunk.")
    hidden = _patches(
        pixels, trunk["patch_embed.proj.weight"], trunk["patch_embed.proj.bias"], trunk["cls_token"]
    )
    hidden = hidden + trunk["pos_embed"]
    heads = _TIMM_HEADS.get(name.split("_")[1], hidden.shape[-1] // _HEAD_WIDTH)
    for block in trunk.blocks("blocks."):
        parts = block.linear("attn.qkv", block.norm("norm1", hidden, _TIMM_EPS)).chunk(3, -1)
        hidden = hidden + block.linear("attn.proj", _attend(parts, heads, None))
        inner = functional.gelu(block.linear("mlp.fc1", block.norm("norm2", hidden, _TIMM_EPS)))
        hidden = hidden + block.linear("mlp.fc2", inner)
    return weights.linear("head.proj", trunk.norm("norm", hidden, _TIMM_EPS)[:, 0])


def _bert_text(weights: _Weights, ids: Tensor, padding: int, *, mean: bool) -> Tensor:
    model = weights.below("transformer.")
    segments = model["embeddings.token_type_embeddings.weight"]
    roberta, mask = len(segments) == 1, ids != padding
    eps = _OWN_EPS if roberta else _BERT_EPS
    # RoBERTa counts positions from the padding id.
    positions = mask.cumsum(dim=1) * mask + padding if roberta else torch.arange(ids.shape[1]).expand_as(ids)
    hidden = model["embeddings.word_embeddings.weight"][ids] + segments[0]
    hidden = hidden + model["embeddings.position_embeddings.weight"][positions]
    hidden = model.norm("embeddings.LayerNorm", hidden, eps)
    seen = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)[:, None, None]
    for block in model.blocks("encoder.layer."):
        parts = (block.linear(f"attention.self.{part}", hidden) for part in ("query", "key", "value"))
        attended = _attend(parts, hidden.shape[-1] // _HEAD_WIDTH, seen)
        attended = block.linear("attention.output.dense", attended)
        hidden = block.norm("attention.output.LayerNorm", hidden + attended, eps)
        inner = block.linear("output.dense", functional.gelu(block.linear("intermediate.dense", hidden)))
        hidden = block.norm("output.LayerNorm", hidden + inner, eps)
    real = mask.unsqueeze(2).to(hidden.dtype)
    pooled = (hidden * real).sum(dim=1) / real.sum(dim=1) if mean else hidden[:, 0]
    if "proj.weight" in weights:
        return weights.linear("proj", pooled)
    if "proj.0.weight" in weights:
        return weights.linear("proj.2", functional.gelu(weights.linear("proj.0", pooled)))
    return pooled


def _patches(pixels: Tensor, weight: Tensor, bias: Tensor | None, first: Tensor) -> Tensor:
    """Tokens of images: a class token, then patches row by row."""
    patches = functional.conv2d(pixels, weight, bias, stride=weight.shape[-1]).flatten(2).transpose(1, 2)
    return torch.cat([first.reshape(1, 1, -1).expand(len(pixels), 1, -1), patches], dim=1)


def _attend(parts: Iterable[Tensor], heads: int, mask: Tensor | None) -> Tensor:
    """Attention of queries, keys and values (B, T, C) by heads."""
    query, key, value = (part.reshape(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    return functional.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).flatten(2)


def _quick_gelu(hidden: Tensor) -> Tensor:
    return hidden * torch.sigmoid(1.702 * hidden)
