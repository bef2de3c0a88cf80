"""Text towers: a backbone and its pooling over real tokens."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import relu

from training.common.errors import RecipeError
from training.common.frozen import Frozen
from training.models.config import TextTowerConfig
from training.models.heads.pooling import build_pooling, pool_sentences
from training.models.inputs.tokenizer import Tokenizer
from training.models.preprocessing import TokenBatch
from training.models.slices import read_by_length
from training.models.tower import Fork, TextBackbone, TextFeatures, Tower, TowerOutput, read_options

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

    def __init__(self, options: SmallTransformerOptions) -> None:
        super().__init__()
        self.options = options.model_dump(mode="json")
        self.width = self.local_width = options.width
        self.heads = options.heads
        self.max_tokens = options.max_tokens
        self.embeddings = _Embeddings(options)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                options.width,
                options.heads,
                dim_feedforward=4 * options.width,
                dropout=options.dropout,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(options.layers)
        )
        self.norm = nn.LayerNorm(options.width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> TextFeatures:
        """Tokens (B, T, C) of ids and mask (B, T)."""
        padding = attention_mask == 0
        hidden = self.embeddings(input_ids)
        fork = None
        for number, block in enumerate(self.blocks, start=1):
            hidden = block(hidden, src_key_padding_mask=padding)
            if number == self.fork_after:
                fork = hidden
        return TextFeatures(self.norm(hidden), fork=fork)

    def stem(self) -> Sequence[nn.Module]:
        """The embeddings."""
        return [self.embeddings]

    def layers(self) -> Sequence[Sequence[nn.Module]]:
        """The transformer layers."""
        return [[block] for block in self.blocks]


def build_small_transformer(options: dict[str, Any], vocabulary_size: int) -> SmallTransformer:
    """A small transformer with random weights.

    Raises:
        RecipeError: An option is unknown or does not fit.
    """
    parsed = read_options(
        SmallTransformerOptions, "small_transformer", {"vocab_size": vocabulary_size, **options}
    )
    if parsed.width % parsed.heads:
        raise RecipeError(f"small_transformer's {parsed.heads} heads do not divide its width {parsed.width}.")
    return SmallTransformer(parsed)


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
    """Word embeddings and a recurrent network that reads from the first word to the last, or both ways.

    Pooled by `eos`, its feature is the state behind the last real token. Padding is never read.
    """

    def __init__(self, options: GruOptions) -> None:
        super().__init__()
        self.options = options.model_dump(mode="json")
        self.width = self.local_width = options.width
        self.max_tokens = options.max_tokens
        self.words = nn.Embedding(options.vocab_size, options.word_width)
        self.causal = not options.bidirectional
        widths = [options.word_width, *[options.width] * (options.layers - 1)]
        # One module a layer, so that the first ones can be frozen.
        self.recurrent = nn.ModuleList(
            nn.GRU(width, options.width, batch_first=True, bidirectional=options.bidirectional)
            for width in widths
        )
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> TextFeatures:
        """The state behind each token (B, T, C) of ids and mask (B, T); zeros at padding."""
        real = attention_mask.bool()
        states = self.words(input_ids)
        for layer in self.recurrent:
            found, _ = layer(states)
            if not self.causal:
                found = (found.chunk(2, dim=2)[0] + _read_back(layer, states, real)) / 2
            # Padding comes last, so no real token has read it.
            states = found.where(real.unsqueeze(2), 0)
        return TextFeatures(states)

    def stem(self) -> Sequence[nn.Module]:
        """The word embeddings."""
        return [self.words]

    def layers(self) -> Sequence[Sequence[nn.Module]]:
        """The recurrent layers."""
        return [[layer] for layer in self.recurrent]


def _read_back(layer: nn.Module, states: Tensor, real: Tensor) -> Tensor:
    """States (B, T, C) of the direction that begins at each text's last real token.

    The texts are moved to the end of their rows for it. Packing them would do, but needs their lengths on the
    CPU, where a GPU would be waited for.
    """
    positions = torch.arange(states.shape[1], device=states.device)
    # Rotation that puts padding, behind a text, in front of it.
    moved = (positions + real.sum(dim=1, keepdim=True)) % states.shape[1]
    found, _ = layer(_gathered(states, moved))
    return _gathered(found.chunk(2, dim=2)[1], moved.argsort(dim=1))


def _gathered(states: Tensor, positions: Tensor) -> Tensor:
    """States (B, T, C) in the order of positions (B, T)."""
    return states.gather(1, positions.unsqueeze(2).expand_as(states))


def build_gru(options: dict[str, Any], vocabulary_size: int) -> Gru:
    """A recurrent text encoder with random weights.

    Raises:
        RecipeError: An option is unknown or does not fit.
    """
    return Gru(read_options(GruOptions, "gru", {"vocab_size": vocabulary_size, **options}))


class TextCNNOptions(Frozen):
    """Size of the network; the defaults are a ResNet-50 over words."""

    vocab_size: int = Field(gt=0)
    word_width: int = Field(default=300, gt=0)
    widths: tuple[PositiveInt, ...] = Field(default=(256, 512, 1024, 2048), description="Of each stage.")
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
        """States (B, T, C) from states, where `kept` (B, T, 1) is 0 at padding, which no word may see."""
        mixed = self.mix((self.enter(states) * kept).transpose(1, 2)).transpose(1, 2)
        return relu(self.skip(states) + self.leave(mixed))


class TextCNN(TextBackbone):
    """Word embeddings and stages of residual convolutions.

    Unlike DPC's, texts keep their length, and normalisation is over each word's channels and not over a
    batch, so that a text's feature depends on nothing beside it.
    """

    def __init__(self, options: TextCNNOptions) -> None:
        super().__init__()
        self.options = options.model_dump(mode="json")
        self.width = self.local_width = options.widths[-1]
        self.max_tokens = options.max_tokens
        self.words = nn.Embedding(options.vocab_size, options.word_width)
        widths = [
            width for width, depth in zip(options.widths, options.depths, strict=True) for _ in range(depth)
        ]
        self.blocks = nn.ModuleList(map(_Block, [options.word_width, *widths], widths))
        nn.init.uniform_(self.words.weight, -0.1, 0.1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> TextFeatures:
        """The state of each token (B, T, C) of ids and mask (B, T); zeros at padding."""
        states = self.words(input_ids)
        kept = attention_mask.unsqueeze(2).to(states.dtype)
        for block in self.blocks:
            states = block(states, kept)
        return TextFeatures(states * kept)

    def stem(self) -> Sequence[nn.Module]:
        """The word embeddings."""
        return [self.words]

    def layers(self) -> Sequence[Sequence[nn.Module]]:
        """The blocks."""
        return [[block] for block in self.blocks]


def build_text_cnn(options: dict[str, Any], vocabulary_size: int) -> TextCNN:
    """A convolutional text encoder with random weights.

    Raises:
        RecipeError: An option is unknown or does not fit.
    """
    parsed = read_options(TextCNNOptions, "text_cnn", {"vocab_size": vocabulary_size, **options})
    if not parsed.widths or len(parsed.widths) != len(parsed.depths):
        raise RecipeError("text_cnn has as many widths as depths, one or more: give both.")
    return TextCNN(parsed)


_OWN: Final[Mapping[str, Callable[[dict[str, Any], int], TextBackbone]]] = {
    "gru": build_gru,
    "small_transformer": build_small_transformer,
    "text_cnn": build_text_cnn,
}


class TextTower(Tower):
    """A text backbone and its pooling.

    Attributes:
        config: Resolved: it rebuilds the architecture without the pretrained folder.
    """

    backbone: TextBackbone

    def __init__(self, config: TextTowerConfig, backbone: TextBackbone) -> None:
        super().__init__()
        if config.pooling == "cls" and backbone.causal:
            raise RecipeError(
                f"The first token of {config.architecture} does not know the text: choose pooling 'eos'."
            )
        own = config.pooling == "eos" and backbone.pools_itself
        self.config = config.model_copy(update={"pretrained": None, "options": backbone.options})
        self.backbone = backbone
        self.pooling = None if own else build_pooling(config.pooling, backbone.local_width)
        self.width = backbone.width if own else backbone.local_width
        self.local_width = backbone.local_width
        self.projection = backbone.projection if config.pooling == backbone.projected_pooling else None
        self.fork_pooling = config.pooling
        self.freeze(config.frozen_layers)

    def forward(self, tokens: TokenBatch) -> TowerOutput:
        """Features of a batch of texts; local features are its tokens, or its sentences where it tells them.

        The first and the last token are pooled from all tokens; any other pooling is one of local features.
        """
        with torch.no_grad() if self.config.frozen_layers == "all" else nullcontext():
            features = read_by_length(self.backbone, tokens.input_ids, tokens.attention_mask)
        mask = tokens.attention_mask.bool()
        fork = None if features.fork is None else Fork(features.fork, mask)
        local, local_mask = features.tokens, mask
        count = sum(tokens.local_counts) if tokens.local_counts else None
        if tokens.sentence_ids is not None:
            local, local_mask = pool_sentences(features.tokens, tokens.sentence_ids, tokens.sentence_count)
        if self.pooling is None:
            assert features.pooled is not None
            return TowerOutput(features.pooled, local, local_mask, fork=fork, local_count=count)
        if self.config.pooling in ("cls", "eos"):
            pooled, weights = self.pooling(features.tokens, mask)
        else:
            pooled, weights = self.pooling(local, local_mask)
        return TowerOutput(pooled, local, local_mask, weights, fork, count)


def build_text_tower(config: TextTowerConfig, tokenizer: Tokenizer, *, load_pretrained: bool) -> TextTower:
    """The text tower of a configuration.

    Raises:
        RecipeError: The pretrained model, the tokenizer, an option, the pooling or frozen layers do not fit.
    """
    backbone: TextBackbone
    build = _OWN.get(config.architecture)
    if build is not None:
        if config.pretrained is not None:
            raise RecipeError(f"{config.architecture} has no pretrained weights: remove text.pretrained.")
        backbone = build(config.options, tokenizer.size)
    else:
        # The import of transformers takes seconds.
        from training.models.pretrained.folder import local_folder
        from training.models.texts.backbones import build_transformers_backbone

        folder = None if config.pretrained is None else local_folder(config.pretrained)
        backbone = build_transformers_backbone(
            config.architecture, config.options, folder, tokenizer, weights=load_pretrained
        )
    words = int(backbone.options["vocab_size"])
    if tokenizer.size > words:
        raise RecipeError(
            f"The tokenizer has {tokenizer.size} words, the text tower only {words}: they do not fit."
        )
    return TextTower(config, backbone)
