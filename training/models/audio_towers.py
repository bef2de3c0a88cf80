"""Audio towers: a backbone and its pooling over real frames."""

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from training.common.errors import RecipeError
from training.common.frozen import Frozen
from training.models.config import AudioPreprocessingConfig, AudioTowerConfig
from training.models.pooling import masked_mean
from training.models.preprocessing import SpectrogramBatch, frame_count
from training.models.tower import AudioBackbone, BackboneOutput, PooledTower, TowerOutput, read_options

_KERNEL = 5
_HALVINGS = 3


class AudioCnnOptions(Frozen):
    """Size of the network."""

    mels: int = Field(default=128, gt=0, description="Bands of the spectrogram.")
    width: int = Field(default=256, gt=0)
    layers: int = Field(default=4, gt=0, description="Each of the first three halves the number of frames.")
    dropout: float = Field(default=0.1, ge=0, lt=1)


class _Block(nn.Module):
    """ConvNeXt's block: depthwise convolution over time and an inverted bottleneck, added to the input.

    Normalisation is within each frame, so that frames don't depend on padding or other sounds.
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

    stem_paths = ("bands",)
    layer_path = "blocks"

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

    def forward(self, values: Tensor, mask: Tensor) -> BackboneOutput:
        """Features of spectrograms (B, M, T) with the mask of their frames (B, T)."""
        # Selected, not multiplied: values at padding may even be NaN.
        hidden = torch.where(mask.unsqueeze(1), values, 0.0)
        hidden = self.bands(hidden).transpose(1, 2) * mask.unsqueeze(-1)
        for block, stride in zip(self.blocks, self._strides, strict=True):
            mask = mask[:, ::stride]
            hidden = block(hidden, mask)
        hidden = self.norm(hidden)
        return BackboneOutput(hidden, masked_mean(hidden, mask), mask)


class AudioTower(PooledTower):
    """An audio backbone and its pooling."""

    config: AudioTowerConfig
    backbone: AudioBackbone

    def __init__(self, config: AudioTowerConfig, backbone: AudioBackbone) -> None:
        super().__init__(config, backbone, config.pooling)

    def forward(self, spectrograms: SpectrogramBatch) -> TowerOutput:
        """Features of a batch of sounds; local features are its frames or patches."""
        features = self.run_backbone(spectrograms.values, spectrograms.mask)
        assert features.mask is not None
        return self.pool(features, features.mask)


def build_audio_tower(config: AudioTowerConfig, *, load_pretrained: bool) -> AudioTower:
    """The audio tower of a configuration.

    Raises:
        RecipeError: The pretrained model, an option, the pooling or frozen layers are invalid.
    """
    if config.architecture == "audio_cnn":
        if config.pretrained is not None:
            raise RecipeError("audio_cnn has no pretrained weights: remove audio.pretrained.")
        return AudioTower(config, AudioCnn(read_options(AudioCnnOptions, "audio_cnn", config.options)))
    # Importing transformers takes seconds.
    from training.models.pretrained.folder import local_folder
    from training.models.transformers_backbones import build_ast

    folder = None if config.pretrained is None else local_folder(config.pretrained)
    return AudioTower(config, build_ast(config.options, folder, weights=load_pretrained))


def check_spectrograms(backbone: AudioBackbone, config: AudioPreprocessingConfig) -> None:
    """Check that an audio backbone accepts the spectrograms of a preprocessing.

    Raises:
        RecipeError: The spectrograms have another number of bands, or may be too long.
    """
    if config.mels != backbone.mels:
        raise RecipeError(
            f"The audio tower takes spectrograms of {backbone.mels} bands, not {config.mels}: "
            f"set preprocessing.audio.mels to {backbone.mels}."
        )
    frames = frame_count(config)
    if backbone.max_frames is not None and frames > backbone.max_frames:
        raise RecipeError(
            f"The audio tower takes {backbone.max_frames} frames, but {config.seconds:g} seconds make "
            f"{frames}: set preprocessing.audio.seconds to less."
        )
