"""Text towers, and three text networks without pretrained weights."""

from collections.abc import Mapping
from typing import Final

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import relu

from training.common.errors import RecipeError
from training.common.frozen import Frozen
from training.models.config import TextTowerConfig
from training.models.pooling import pool_sentences
from training.models.preprocessing import TokenBatch
from training.models.text_input import Tokenizer
from training.models.tower import (
    BackboneOutput,
    Fork,
    TextBackbone,
    Tower,
    TowerOutput,
    read_by_length,
    read_options,
    transformer_layers,
)

_NARROWING = 4


class SmallTransformerOptions(Frozen):
    """Size of the network."""

    vocab_size: int = Field(gt=0)
    width: int = Field(default=256, gt=0)
    layers: int = Field(default=4, gt=0)
    heads: int = Field(default=4, gt=0, description="A divisor of the width.")
    dropout: float = Field(default=0.1, ge=0, lt=1)
    max_tokens: int = Field(default=128, gt=2)


class _Embeddings(nn.Module):
    def __init__(self, options: SmallTransformerOptions) -> None:
        super().__init__()
        self.tokens = nn.Embedding(options.vocab_size, options.width)
        self.positions = nn.Embedding(options.max_tokens, options.width)
        self.dropout = nn.Dropout(options.dropout)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, input_ids: Tensor) -> Tensor:
        positions = self.positions.weight[: input_ids.shape[1]]
        embedded: Tensor = self.dropout(self.tokens(input_ids) + positions)
        return embedded


class SmallTransformer(TextBackbone):
    """Token and position embeddings, pre-norm layers with GELU, and a last norm."""

    stem_paths = ("embeddings",)
    layer_path = "blocks"

    def __init__(self, options: SmallTransformerOptions) -> None:
        super().__init__()
        if options.width % options.heads:
            raise RecipeError(
                f"small_transformer's {options.heads} heads do not divide its width {options.width}."
            )
        self.options = options.model_dump(mode="json")
        self.width = self.local_width = options.width
        self.heads = options.heads
        self.max_tokens = options.max_tokens
        self.embeddings = _Embeddings(options)
        self.blocks = transformer_layers(options.width, options.heads, options.layers, options.dropout)
        self.norm = nn.LayerNorm(options.width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BackboneOutput:
        """Tokens (B, T, C) of ids and mask (B, T)."""
        padding = attention_mask == 0
        hidden = self.embeddings(input_ids)
        fork = None
        for number, block in enumerate(self.blocks, start=1):
            hidden = block(hidden, src_key_padding_mask=padding)
            if number == self.fork_after:
                fork = hidden
        return BackboneOutput(self.norm(hidden), fork=fork)


class GruOptions(Frozen):
    """Size of the network; the defaults are VSE++'s."""

    vocab_size: int = Field(gt=0)
    word_width: int = Field(default=300, gt=0)
    width: int = Field(default=1024, gt=0)
    layers: int = Field(default=1, gt=0)
    bidirectional: bool = Field(
        default=False, description="Read back as well; a word's state is the mean of both (SCAN)."
    )
    max_tokens: int = Field(default=512, gt=2, description="Longest text that it takes.")


class Gru(TextBackbone):
    """Word embeddings and a GRU, forward or bidirectional.

    With `eos` pooling, its feature is the state after the last real token. Padding is never read.
    """

    stem_paths = ("words",)
    layer_path = "recurrent"

    def __init__(self, options: GruOptions) -> None:
        super().__init__()
        self.options = options.model_dump(mode="json")
        self.width = self.local_width = options.width
        self.max_tokens = options.max_tokens
        self.words = nn.Embedding(options.vocab_size, options.word_width)
        self.causal = not options.bidirectional
        widths = [options.word_width, *[options.width] * (options.layers - 1)]
        # One module per layer, so that the first ones can be frozen.
        self.recurrent = nn.ModuleList(
            nn.GRU(width, options.width, batch_first=True, bidirectional=options.bidirectional)
            for width in widths
        )
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BackboneOutput:
        """The state after each token (B, T, C) of ids and mask (B, T); zeros at padding."""
        real = attention_mask.bool()
        states = self.words(input_ids)
        for layer in self.recurrent:
            output, _ = layer(states)
            if not self.causal:
                output = (output.chunk(2, dim=2)[0] + _read_back(layer, states, real)) / 2
            # Padding is at the end, so it doesn't affect real tokens.
            states = output.where(real.unsqueeze(2), 0)
        return BackboneOutput(states)


def _read_back(layer: nn.Module, states: Tensor, real: Tensor) -> Tensor:
    """States (B, T, C) of the backward direction, which starts at each text's last real token.

    Texts are shifted to the end of their rows. Packed sequences would need the lengths on the CPU, which
    synchronizes with the GPU.
    """
    positions = torch.arange(states.shape[1], device=states.device)
    # Rotate rows so that padding precedes the text.
    moved = (positions + real.sum(dim=1, keepdim=True)) % states.shape[1]
    output, _ = layer(_gathered(states, moved))
    return _gathered(output.chunk(2, dim=2)[1], moved.argsort(dim=1))


def _gathered(states: Tensor, positions: Tensor) -> Tensor:
    """States (B, T, C) reordered by positions (B, T)."""
    return states.gather(1, positions.unsqueeze(2).expand_as(states))


class TextCNNOptions(Frozen):
    """Size of the network; the defaults are a ResNet-50 over words."""

    vocab_size: int = Field(gt=0)
    word_width: int = Field(default=300, gt=0)
    widths: tuple[PositiveInt, ...] = Field(
        default=(256, 512, 1024, 2048), description="Channels of each stage."
    )
    depths: tuple[PositiveInt, ...] = Field(default=(3, 4, 6, 3), description="Blocks of each stage.")
    max_tokens: int = Field(default=512, gt=2, description="Longest text that it takes.")


class _Block(nn.Module):
    """A residual bottleneck around a convolution over three words."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        narrow = max(1, width // _NARROWING)
        self.enter = nn.Sequential(nn.Linear(before, narrow), nn.LayerNorm(narrow), nn.ReLU())
        self.mix = nn.Conv1d(narrow, narrow, kernel_size=3, padding=1)
        self.leave = nn.Sequential(
            nn.LayerNorm(narrow), nn.ReLU(), nn.Linear(narrow, width), nn.LayerNorm(width)
        )
        self.skip = nn.Identity() if before == width else nn.Linear(before, width)

    def forward(self, states: Tensor, kept: Tensor) -> Tensor:
        """States (B, T, C) of states; `kept` (B, T, 1) is 0 at padding, which must not affect words."""
        mixed = self.mix((self.enter(states) * kept).transpose(1, 2)).transpose(1, 2)
        return relu(self.skip(states) + self.leave(mixed))


class TextCNN(TextBackbone):
    """Word embeddings and stages of residual convolutions.

    Unlike in DPC, texts keep their length, and normalisation is over each word's channels instead of the
    batch, so that a text's feature doesn't depend on others.
    """

    stem_paths = ("words",)
    layer_path = "blocks"

    def __init__(self, options: TextCNNOptions) -> None:
        super().__init__()
        if not options.widths or len(options.widths) != len(options.depths):
            raise RecipeError("text_cnn has as many widths as depths, one or more: give both.")
        self.options = options.model_dump(mode="json")
        self.width = self.local_width = options.widths[-1]
        self.max_tokens = options.max_tokens
        self.words = nn.Embedding(options.vocab_size, options.word_width)
        widths = [
            width for width, depth in zip(options.widths, options.depths, strict=True) for _ in range(depth)
        ]
        self.blocks = nn.ModuleList(map(_Block, [options.word_width, *widths], widths))
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BackboneOutput:
        """The state of each token (B, T, C) of ids and mask (B, T); zeros at padding."""
        states = self.words(input_ids)
        kept = attention_mask.unsqueeze(2).to(states.dtype)
        for block in self.blocks:
            states = block(states, kept)
        return BackboneOutput(states * kept)


_OWN: Final[Mapping[str, tuple[type[Frozen], type[TextBackbone]]]] = {
    "gru": (GruOptions, Gru),
    "small_transformer": (SmallTransformerOptions, SmallTransformer),
    "text_cnn": (TextCNNOptions, TextCNN),
}


class TextTower(Tower):
    """A text backbone and its pooling."""

    config: TextTowerConfig
    backbone: TextBackbone

    def __init__(self, config: TextTowerConfig, backbone: TextBackbone) -> None:
        if config.pooling == "cls" and backbone.causal:
            raise RecipeError(
                f"The first token of {config.architecture} does not know the text: choose pooling 'eos'."
            )
        pools_itself = config.pooling == "eos" and backbone.pools_itself
        super().__init__(config, backbone, None if pools_itself else config.pooling)
        self.projection = backbone.projection if config.pooling == backbone.projected_pooling else None
        self.fork_pooling = config.pooling

    def forward(self, tokens: TokenBatch) -> TowerOutput:
        """Features of a batch of texts; local features are sentences if the batch has any, otherwise tokens.

        Poolings `cls` and `eos` take a token; others pool the local features.
        """
        features = read_by_length(self.run_backbone, tokens.input_ids, tokens.attention_mask)
        mask = tokens.attention_mask.bool()
        fork = None if features.fork is None else Fork(features.fork, mask)
        local, local_mask = features.local, mask
        if tokens.sentence_ids is not None:
            local, local_mask = pool_sentences(local, tokens.sentence_ids, tokens.sentence_count)
        pooled, weights = features.pooled, None
        if self.pooling is not None:
            positions = self.config.pooling in ("cls", "eos")
            pooled, weights = self.pooling(*((features.local, mask) if positions else (local, local_mask)))
        assert pooled is not None
        count = sum(tokens.local_counts) if tokens.local_counts else None
        return TowerOutput(pooled, local, local_mask, weights, fork, count)


def build_text_tower(config: TextTowerConfig, tokenizer: Tokenizer, *, load_pretrained: bool) -> TextTower:
    """The text tower of a configuration.

    Raises:
        RecipeError: The pretrained model, tokenizer, an option, pooling or frozen layers are invalid.
    """
    architecture, backbone = config.architecture, build_own_text_backbone(config, tokenizer.size)
    if backbone is None:
        # Importing transformers takes seconds.
        from training.models.pretrained.folder import local_folder
        from training.models.transformers_backbones import build_text_backbone

        folder = None if config.pretrained is None else local_folder(config.pretrained)
        backbone = build_text_backbone(
            architecture, config.options, folder, tokenizer, weights=load_pretrained
        )
    words = int(backbone.options["vocab_size"])
    if tokenizer.size > words:
        raise RecipeError(
            f"The tokenizer has {tokenizer.size} words, the text tower only {words}: they do not fit."
        )
    return TextTower(config, backbone)


def build_own_text_backbone(config: TextTowerConfig, vocabulary_size: int) -> TextBackbone | None:
    """A network of this module with random weights; None for architectures of transformers.

    Raises:
        RecipeError: An option is unknown or invalid, or pretrained weights are requested.
    """
    if config.architecture not in _OWN:
        return None
    if config.pretrained is not None:
        raise RecipeError(f"{config.architecture} has no pretrained weights: remove text.pretrained.")
    kind, network = _OWN[config.architecture]
    options = {"vocab_size": vocabulary_size, **config.options}
    return network(read_options(kind, config.architecture, options))
