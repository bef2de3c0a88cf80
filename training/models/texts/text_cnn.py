"""A text encoder of convolutions over words, after the text path of DPC (Zheng et al. 2020)."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field, PositiveInt, ValidationError
from torch import Tensor, nn
from torch.nn.functional import relu

from training.errors import RecipeError
from training.frozen import Frozen
from training.models.tower import TextBackbone, TextFeatures

_NARROWING = 4


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
    try:
        parsed = TextCNNOptions.model_validate({"vocab_size": vocabulary_size, **options})
    except ValidationError as error:
        raise RecipeError(f"The options of text_cnn do not fit: {error}") from error
    if not parsed.widths or len(parsed.widths) != len(parsed.depths):
        raise RecipeError("text_cnn has as many widths as depths, one or more: give both.")
    return TextCNN(parsed)
