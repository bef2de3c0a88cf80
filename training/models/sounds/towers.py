"""Audio towers: a backbone and its pooling over real frames."""

from contextlib import nullcontext

import torch
from torch import nn

from training.errors import RecipeError
from training.models.config import AudioPreprocessingConfig, AudioTowerConfig
from training.models.freezing import Freezer, frozen_modules
from training.models.heads.pooling import Pooling, PoolingName, build_pooling
from training.models.sounds.cnn import build_audio_cnn
from training.models.sounds.spectrogram import SpectrogramBatch, frame_count
from training.models.tower import AudioBackbone, Fork, Projection, TowerOutput


class AudioTower(nn.Module):
    """An audio backbone and its pooling.

    Attributes:
        config: Resolved: it rebuilds the architecture without the pretrained folder.
        width: Of the pooled feature.
        local_width: Of the local features.
        projection: None: no audio model brings one.
        fork_pooling: How a branch that leaves the backbone is pooled.
        fork_prefix: How many of its tokens come before those that are pooled.
    """

    def __init__(self, config: AudioTowerConfig, backbone: AudioBackbone) -> None:
        super().__init__()
        self.config = config.model_copy(update={"pretrained": None, "options": backbone.options})
        self.backbone = backbone
        self.pooling: Pooling | None = None
        if config.pooling != "tower":
            self.pooling = build_pooling(config.pooling, backbone.local_width)
        self.width = backbone.width if config.pooling == "tower" else backbone.local_width
        self.local_width = backbone.local_width
        self.projection: Projection | None = None
        self.fork_pooling: PoolingName = "cls" if config.pooling == "tower" else config.pooling
        self.fork_prefix = 0 if config.pooling == "tower" else backbone.prefix
        self._frozen = Freezer(frozen_modules(backbone, config.frozen_layers))

    def forward(self, spectrograms: SpectrogramBatch) -> TowerOutput:
        """Features of a batch of sounds; local features are its frames or patches."""
        with torch.no_grad() if self.config.frozen_layers == "all" else nullcontext():
            features = self.backbone(spectrograms.values, spectrograms.mask)
        fork = None
        if features.fork is not None:
            prefix = features.mask.new_ones(len(features.mask), self.backbone.prefix)
            fork = Fork(features.fork, torch.cat([prefix, features.mask], dim=1))
        if self.pooling is None:
            return TowerOutput(features.pooled, features.local, features.mask, fork=fork)
        pooled, weights = self.pooling(features.local, features.mask)
        return TowerOutput(pooled, features.local, features.mask, weights, fork)

    def train(self, mode: bool = True) -> "AudioTower":
        """Set the mode of all but the frozen parts."""
        super().train(mode)
        self._frozen.hold()
        return self


def build_audio_tower(config: AudioTowerConfig, *, load_pretrained: bool) -> AudioTower:
    """The audio tower of a configuration.

    Args:
        config: Of the tower.
        load_pretrained: Load the weights that `config.pretrained` names; False: only the architecture.

    Raises:
        RecipeError: The pretrained model, an option, the pooling or the frozen layers do not fit.
    """
    if config.architecture == "audio_cnn":
        if config.pretrained is not None:
            raise RecipeError("audio_cnn has no pretrained weights: remove audio.pretrained.")
        return AudioTower(config, build_audio_cnn(config.options))
    # The import of transformers takes seconds.
    from training.models.pretrained.folder import local_folder
    from training.models.sounds.audio_spectrogram_transformer import build_ast

    folder = None if config.pretrained is None else local_folder(config.pretrained)
    return AudioTower(config, build_ast(config.options, folder, weights=load_pretrained))


def check_spectrograms(backbone: AudioBackbone, config: AudioPreprocessingConfig) -> None:
    """Make sure that an audio backbone can take what this preprocessing makes.

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
