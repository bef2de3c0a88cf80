"""A small audio encoder: convolutions over time with the mel bands as channels."""

from collections.abc import Sequence
from typing import Any

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn
from torch.nn import functional

from training.errors import RecipeError
from training.frozen import Frozen
from training.models.heads.pooling import masked_mean
from training.models.tower import AudioBackbone, AudioFeatures

_KERNEL = 5
_HALVINGS = 3


class AudioCnnOptions(Frozen):
    """Size of the network."""

    mels: int = Field(default=128, gt=0, description="Bands of the spectrogram.")
    width: int = Field(default=256, gt=0)
    layers: int = Field(default=4, gt=0, description="Each of the first three halves the number of frames.")
    dropout: float = Field(default=0.1, ge=0, lt=1)


class _Block(nn.Module):
    """Depthwise convolution over time and an inverted bottleneck, added to the input (ConvNeXt's block).

    The norm is taken within each frame, so that no frame depends on padding or on other sounds.
    """

    def __init__(self, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.stride = stride
        self.depthwise = nn.Conv1d(
            width, width, _KERNEL, stride=stride, padding=_KERNEL // 2, groups=width, bias=False
        )
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Frames (B, ceil(T / stride), C) of frames (B, T, C), whose padding is zero, and their mask."""
        near = self.depthwise(frames.transpose(1, 2)).transpose(1, 2)
        change = self.narrow(functional.gelu(self.wide(self.norm(near))))
        result: Tensor = (frames[:, :: self.stride] + self.dropout(change)) * mask.unsqueeze(-1)
        return result


class AudioCnn(AudioBackbone):
    """A convolution over all bands and residual blocks; its pooled feature is the mean over real frames."""

    def __init__(self, options: AudioCnnOptions) -> None:
        super().__init__()
        self.options = options.model_dump(mode="json")
        self.mels = options.mels
        self.width = self.local_width = options.width
        self.bands = nn.Conv1d(options.mels, options.width, _KERNEL, padding=_KERNEL // 2)
        self._strides = tuple(2 if layer < _HALVINGS else 1 for layer in range(options.layers))
        self.blocks = nn.ModuleList(
            _Block(options.width, stride, options.dropout) for stride in self._strides
        )
        self.norm = nn.LayerNorm(options.width)

    def forward(self, values: Tensor, mask: Tensor) -> AudioFeatures:
        """Features of spectrograms (B, M, T) with the mask of their frames (B, T)."""
        # A selection, not a product: what stands at padding may be any number, even none.
        hidden = torch.where(mask.unsqueeze(1), values, 0.0)
        hidden = self.bands(hidden).transpose(1, 2) * mask.unsqueeze(-1)
        for block, stride in zip(self.blocks, self._strides, strict=True):
            mask = mask[:, ::stride]
            hidden = block(hidden, mask)
        hidden = self.norm(hidden)
        return AudioFeatures(masked_mean(hidden, mask), hidden, mask)

    def stem(self) -> Sequence[nn.Module]:
        """The convolution over the bands."""
        return [self.bands]

    def layers(self) -> Sequence[Sequence[nn.Module]]:
        """The residual blocks."""
        return [[block] for block in self.blocks]


def build_audio_cnn(options: dict[str, Any]) -> AudioCnn:
    """A small audio encoder with random weights.

    Raises:
        RecipeError: An option is unknown or does not fit.
    """
    try:
        return AudioCnn(AudioCnnOptions.model_validate(options))
    except ValidationError as error:
        raise RecipeError(f"The options of audio_cnn do not fit: {error}") from error
