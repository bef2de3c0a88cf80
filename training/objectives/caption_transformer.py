"""Caption-Transformer: a transformer that attends to the regions of an image writes its text."""

import math
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from training.objectives.base import ObjectiveContext
from training.objectives.captions import CaptionConfig, Captioning
from training.objectives.local_entries import LocalEntries


class CaptionTransformerSettings(CaptionConfig):
    """The decoder's size, by default that of Cornia et al. 2020."""

    name: Literal["caption_transformer"] = "caption_transformer"
    layers: int = Field(default=3, gt=0)
    heads: int = Field(default=8, gt=0, description="A divisor of the width.")
    dropout: float = Field(default=0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.width % self.heads or self.width % 2:
            raise ValueError("width is an even number that the heads divide")
        return self

    def build(self, context: ObjectiveContext) -> "CaptionTransformer":
        """The objective with these settings.

        Raises:
            RecipeError: There are no captions.
        """
        return CaptionTransformer(self, context)


class CaptionTransformer(Captioning):
    """A transformer decoder (Vaswani et al. 2017) over words, with attention to regions in every layer.

    ConVIRT's is that of Cornia et al. 2020, which has memory and an encoder of regions beside it; this one is
    the plain decoder, normalised before each step.
    """

    def __init__(self, settings: CaptionTransformerSettings, context: ObjectiveContext) -> None:
        super().__init__(settings, context)
        self.regions = nn.Linear(context.dim, settings.width)
        self.dropout = nn.Dropout(settings.dropout)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(
                settings.width,
                settings.heads,
                dim_feedforward=4 * settings.width,
                dropout=settings.dropout,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(settings.layers)
        )
        self.norm = nn.LayerNorm(settings.width)

    def states(self, regions: LocalEntries, words: Tensor) -> Tensor:
        """What is known before each next word, from the words so far and the regions."""
        length, width = words.shape[1:]
        later = torch.ones((length, length), dtype=torch.bool, device=words.device).triu(1)
        hidden = self.dropout(words + positions(length, width).to(words, non_blocking=True))
        seen = self.regions(regions.values)
        for layer in self.layers:
            hidden = layer(hidden, seen, tgt_mask=later, memory_key_padding_mask=~regions.mask)
        normed: Tensor = self.norm(hidden)
        return normed


def positions(length: int, width: int) -> Tensor:
    """Sines and cosines (T, W) that tell places apart (Vaswani et al. 2017, section 3.5), float64."""
    rates = torch.exp(-math.log(10_000) * torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(1) * rates
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)
