"""A text encoder of word embeddings and gated recurrent units, as VSE++ has it (Faghri et al. 2018)."""

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from training.errors import RecipeError
from training.frozen import Frozen
from training.models.tower import TextBackbone, TextFeatures


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
    try:
        return Gru(GruOptions.model_validate({"vocab_size": vocabulary_size, **options}))
    except ValidationError as error:
        raise RecipeError(f"The options of gru do not fit: {error}") from error
