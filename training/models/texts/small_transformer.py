"""A small text encoder: a pre-norm transformer with learned positions."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field, ValidationError
from torch import Tensor, nn

from training.errors import RecipeError
from training.frozen import Frozen
from training.models.tower import TextBackbone, TextFeatures


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
    try:
        parsed = SmallTransformerOptions.model_validate({"vocab_size": vocabulary_size, **options})
    except ValidationError as error:
        raise RecipeError(f"The options of small_transformer do not fit: {error}") from error
    if parsed.width % parsed.heads:
        raise RecipeError(f"small_transformer's {parsed.heads} heads do not divide its width {parsed.width}.")
    return SmallTransformer(parsed)
