"""The Audio Spectrogram Transformer of transformers as an audio backbone (Gong, Chung and Glass, 2021)."""

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

from training.common.errors import RecipeError
from training.models.pretrained.architecture import (
    architecture_options,
    configuration,
    load_pretrained,
    pretrained_configuration,
)
from training.models.tower import AudioBackbone, AudioFeatures

# AST was trained on sounds padded with a log energy of 0, normalised with AudioSet's mean and deviation.
_PADDING = 4.2677393 / 9.1379948
# Architectures of sounds that a pretrained model can have.
_TYPES: Final = ("audio_spectrogram_transformer",)


class AstBackbone(AudioBackbone):
    """AST, which pads every sound to its full length and attends to that padding.

    It pads itself, so a caller's padding has no effect. Its pooled feature is the mean of its two class
    tokens; its local features are the patches, those of the lowest bands first.
    """

    max_frames: int

    def __init__(self, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.options = options
        self.width = self.local_width = int(options["hidden_size"])
        self.heads = int(options["num_attention_heads"])
        self.prefix = 2
        self.mels = int(options["num_mel_bins"])
        self.max_frames = int(options["max_length"])

    def forward(self, values: Tensor, mask: Tensor) -> AudioFeatures:
        """Features of spectrograms (B, M, T) with the mask of their frames (B, T)."""
        missing = self.max_frames - mask.shape[1]
        mask = functional.pad(mask, (0, missing))
        values = torch.where(mask.unsqueeze(1), functional.pad(values, (0, missing)), _PADDING)
        settings = {} if self.fork_after is None else {"output_hidden_states": True}
        output = self.model(input_values=values.transpose(1, 2), **settings)
        patches = output.last_hidden_state[:, self.prefix :]
        fork = None if self.fork_after is None else output.hidden_states[self.fork_after]
        return AudioFeatures(output.pooler_output, patches, self._patch_mask(mask, patches.shape[1]), fork)

    def stem(self) -> Sequence[nn.Module]:
        """The embeddings."""
        return [attrgetter("embeddings")(self.model)]

    def layers(self) -> Sequence[Sequence[nn.Module]]:
        """The transformer layers."""
        return [[layer] for layer in attrgetter("layers")(self.model)]

    def _patch_mask(self, mask: Tensor, patches: int) -> Tensor:
        """(B, K), True for patches that begin in a real frame."""
        patch, stride = int(self.options["patch_size"]), int(self.options["time_stride"])
        columns = (self.max_frames - patch) // stride + 1
        begins = mask[:, : columns * stride : stride][:, :columns]
        return begins.repeat(1, patches // columns)


def build_ast(options: dict[str, Any], folder: Path | None, *, weights: bool) -> AstBackbone:
    """AST from options with random weights, or from a pretrained folder.

    Args:
        options: Of the architecture; a folder's own come first.
        folder: Of a pretrained model; None: random weights.
        weights: Load the folder's weights, not only its architecture.

    Raises:
        RecipeError: An option or the folder does not fit.
    """
    config = (
        configuration(transformers.ASTConfig, options)
        if folder is None
        else pretrained_configuration(transformers.ASTConfig, folder, _TYPES)
    )
    resolved = architecture_options(config)
    if min(int(resolved["max_length"]), int(resolved["num_mel_bins"])) < int(resolved["patch_size"]):
        raise RecipeError(
            "audio_spectrogram_transformer's patches are larger than its spectrogram: "
            "choose a smaller patch_size, or more num_mel_bins and max_length."
        )
    if folder is None or not weights:
        model: Any = transformers.ASTModel
        return AstBackbone(model(config), resolved)
    return AstBackbone(load_pretrained(transformers.ASTModel, config, folder), resolved)
