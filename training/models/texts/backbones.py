"""The text models of transformers as text backbones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from training.models.config import TextArchitecture
from training.models.inputs.tokenizer import Tokenizer
from training.models.pretrained.architecture import (
    architecture_options,
    configuration,
    load_pretrained,
    pretrained_configuration,
    read_projection,
)
from training.models.pretrained.folder import read_json, read_tensors
from training.models.texts.clip_text_weights import is_open_clip, load_open_clip_text, open_clip_text_options
from training.models.tower import Projection, TextBackbone, TextFeatures


@dataclass(frozen=True, slots=True)
class _Family:
    """Where a model of transformers keeps what a tower needs."""

    config: str
    model: str
    layers: str
    settings: tuple[tuple[str, Any], ...] = ()


_FAMILIES: dict[str, _Family] = {
    "altclip_text_model": _Family("AltCLIPTextConfig", "AltCLIPTextModel", "roberta.encoder.layers"),
    "bert": _Family("BertConfig", "BertModel", "encoder.layer", (("add_pooling_layer", False),)),
    "roberta": _Family("RobertaConfig", "RobertaModel", "encoder.layer", (("add_pooling_layer", False),)),
    "distilbert": _Family("DistilBertConfig", "DistilBertModel", "transformer.layer"),
    "clip_text_model": _Family("CLIPTextConfig", "CLIPTextModel", "encoder.layers"),
    "siglip_text_model": _Family("SiglipTextConfig", "SiglipTextModel", "encoder.layers"),
}
# Types of models of transformers that text towers are made of.
TEXT_TYPES: Final = tuple(_FAMILIES)

# Pooling of the feature that models for images and texts project into their common space.
PROJECTED_POOLING: Final[Mapping[TextArchitecture, Literal["cls", "eos"]]] = {
    "altclip_text_model": "cls",
    "bert": "cls",
    "clip_text_model": "eos",
    "siglip_text_model": "eos",
}


@dataclass(frozen=True, slots=True)
class TrainedTexts:
    """How a model for images and texts was trained to read texts.

    Attributes:
        pooling: Of its projected feature.
        max_tokens: Of the longest text, special tokens included.
    """

    pooling: Literal["cls", "eos"]
    max_tokens: int


class TransformersTextBackbone(TextBackbone):
    """A text model of transformers."""

    def __init__(self, family: _Family, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__()
        self._family = family
        self.model = model
        self.options = options
        # AltCLIP's tokens leave it in the width of its teacher's.
        width = options.get("project_dim") or options.get("hidden_size") or options["dim"]
        self.width = self.local_width = int(width)
        if self.width == int(options.get("hidden_size", self.width)):
            self.heads = int(options.get("num_attention_heads") or options["n_heads"])
        self.max_tokens = _most_tokens(family, options)
        self.causal = family.model == "CLIPTextModel"

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> TextFeatures:
        """Tokens (B, T, C) of ids and mask (B, T)."""
        output = self._read(input_ids=input_ids, attention_mask=self._mask(attention_mask))
        return TextFeatures(output.last_hidden_state, fork=self._fork(output))

    def _mask(self, attention_mask: Tensor) -> Tensor:
        """The mask (B, T) on a CPU, and elsewhere as attention takes it.

        Of the former, transformers looks whether there is padding at all, for which it waits for a GPU.
        """
        if attention_mask.device.type == "cpu":
            return attention_mask
        return attended(attention_mask, causal=self.causal)

    def _read(self, **inputs: Tensor) -> Any:
        settings = {} if self.fork_after is None else {"output_hidden_states": True}
        return self.model(**inputs, **settings)

    def _fork(self, output: Any) -> Tensor | None:
        return None if self.fork_after is None else output.hidden_states[self.fork_after]

    def forward_pairs(self, input_ids: Tensor, attention_mask: Tensor, segments: Tensor) -> TextFeatures:
        """Tokens (B, T, C) of rows that may hold two texts each.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T).
            segments: (B, T), 0 in the first text and 1 in the second; BERT has an embedding for each, other
                architectures make no use of it.
        """
        if int(self.options.get("type_vocab_size", 0)) < 2:
            both: TextFeatures = self(input_ids, attention_mask)
            return both
        mask = self._mask(attention_mask)
        output = self.model(input_ids=input_ids, attention_mask=mask, token_type_ids=segments)
        return TextFeatures(output.last_hidden_state)

    def stem(self) -> Sequence[nn.Module]:
        """The embeddings."""
        base = getattr(self.model, "roberta", self.model)
        return [attrgetter("embeddings")(base)]

    def layers(self) -> Sequence[Sequence[nn.Module]]:
        """The transformer layers."""
        return [[layer] for layer in attrgetter(self._family.layers)(self.model)]


def attended(attention_mask: Tensor, *, causal: bool) -> Tensor:
    """(B, 1, T, T) bool, True where a token (row) attends to another (column).

    Args:
        attention_mask: (B, T), 1 for real tokens.
        causal: A token attends to none behind it.
    """
    real = attention_mask.bool()[:, None, None, :].expand(-1, 1, attention_mask.shape[1], -1)
    return real.tril() if causal else real


class SiglipTextBackbone(TransformersTextBackbone):
    """SigLIP's text model, which was trained on texts padded to its full length and attends to that padding.

    It pads every text itself, so a caller's padding has no effect. Its pooled feature is the last position's.
    """

    def __init__(self, family: _Family, model: nn.Module, options: dict[str, Any], pad_id: int) -> None:
        super().__init__(family, model, options)
        self.pools_itself = True
        self.width = int(options["projection_size"])
        self._pad_id = pad_id

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> TextFeatures:
        """Tokens (B, T, C) and the pooled feature (B, W) of ids and mask (B, T)."""
        real = input_ids.masked_fill(attention_mask == 0, self._pad_id)[:, : self.max_tokens]
        full = functional.pad(real, (0, self.max_tokens - real.shape[1]), value=self._pad_id)
        output = self._read(input_ids=full)
        length, fork = input_ids.shape[1], self._fork(output)
        return TextFeatures(
            output.last_hidden_state[:, :length],
            output.pooler_output,
            None if fork is None else fork[:, :length],
        )


def build_transformers_backbone(
    architecture: TextArchitecture,
    options: dict[str, Any],
    folder: Path | None,
    tokenizer: Tokenizer,
    *,
    weights: bool,
) -> TransformersTextBackbone:
    """A text model from options with random weights, or from a pretrained folder.

    Args:
        architecture: Its model type in transformers.
        options: Of the architecture; a folder's own come first.
        folder: Of a pretrained model; None: random weights.
        tokenizer: Gives the ids of special tokens, and the vocabulary's size where the options leave it open.
        weights: Load the folder's weights, not only its architecture.
    """
    family = _FAMILIES[architecture]
    kind = getattr(transformers, family.config)
    model_kind = getattr(transformers, family.model)
    settings = dict(family.settings)
    if folder is None:
        config = configuration(kind, {**_token_options(tokenizer), **options})
        model = model_kind(config, **settings)
    elif architecture == "clip_text_model" and is_open_clip(folder):
        config = configuration(kind, {**_token_options(tokenizer), **open_clip_text_options(folder)})
        model = load_open_clip_text(model_kind(config), folder) if weights else model_kind(config)
    else:
        config = pretrained_configuration(kind, folder, TEXT_TYPES)
        model = (
            load_pretrained(model_kind, config, folder, **settings)
            if weights
            else model_kind(config, **settings)
        )
    resolved = architecture_options(config)
    backbone = (
        SiglipTextBackbone(family, model, resolved, tokenizer.pad_id)
        if architecture == "siglip_text_model"
        else TransformersTextBackbone(family, model, resolved)
    )
    if folder is not None and weights:
        backbone.projection = pretrained_projection(architecture, folder, backbone.width)
        backbone.projected_pooling = PROJECTED_POOLING.get(architecture)
    return backbone


def _most_tokens(family: _Family, options: Mapping[str, Any]) -> int:
    """Tokens of the longest text that a model reads."""
    positions = int(options["max_position_embeddings"])
    if family.model in ("RobertaModel", "AltCLIPTextModel"):
        # Their positions begin behind the padding id.
        positions -= int(options["pad_token_id"]) + 1
    return positions


def _token_options(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "vocab_size": tokenizer.size,
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.eos_id,
    }


def pretrained_projection(architecture: TextArchitecture, folder: Path, width: int) -> Projection | None:
    """The projection of pooled text features of this width in a pretrained folder; None if it has none."""
    if architecture not in PROJECTED_POOLING:
        return None
    if architecture == "siglip_text_model":
        return Projection(torch.eye(width))
    if architecture == "clip_text_model" and is_open_clip(folder):
        stored = read_projection(folder, "text_projection")
        # open_clip keeps the transposed matrix.
        return None if stored is None else Projection(stored.weight.T)
    return read_projection(folder, "text_projection.weight")


def pretrained_width(architecture: TextArchitecture, folder: Path) -> int | None:
    """Width of a pretrained model's space of images and texts; None if it has none."""
    if architecture == "siglip_text_model":
        stored = read_tensors(folder, prefixes=["text_model.head.weight"])
        return next((len(weight) for weight in stored.values()), None)
    projection = pretrained_projection(architecture, folder, 0)
    return None if projection is None else len(projection.weight)


def trained_texts(architecture: TextArchitecture, folder: Path) -> TrainedTexts | None:
    """How the model for images and texts in a folder reads texts; None of a model of another kind.

    Raises:
        RecipeError: The folder holds a model of another architecture.
    """
    pooling, settings = PROJECTED_POOLING.get(architecture), folder / "config.json"
    if pooling is None:
        return None
    family = _FAMILIES[architecture]
    if architecture == "clip_text_model" and is_open_clip(folder):
        return TrainedTexts(pooling, _most_tokens(family, open_clip_text_options(folder)))
    if not settings.is_file() or read_json(settings).get("model_type") == "bert":
        return None
    config = pretrained_configuration(getattr(transformers, family.config), folder, TEXT_TYPES)
    tokens = _most_tokens(family, architecture_options(config))
    tokenizer = folder / "tokenizer_config.json"
    named = read_json(tokenizer).get("model_max_length") if tokenizer.is_file() else None
    return TrainedTexts(pooling, tokens if named is None else min(tokens, int(named)))
