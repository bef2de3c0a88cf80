"""Projection heads from a tower's width to the embedding."""

import torch
from torch import nn

from training.models.config import HeadConfig
from training.models.tower import Projection


def build_head(config: HeadConfig, width: int, dim: int, start: Projection | None = None) -> nn.Sequential:
    """A linear or a two-layer ReLU head from `width` to `dim`.

    Args:
        config: Kind, hidden width and dropout.
        width: Of the input.
        dim: Of the output.
        start: A pretrained projection that a linear head of the same shape starts from.
    """
    if config.kind == "mlp":
        hidden = config.hidden or dim
        return nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(hidden, dim)
        )
    linear = nn.Linear(width, dim)
    if start is not None and start.weight.shape == linear.weight.shape:
        with torch.no_grad():
            linear.weight.copy_(start.weight)
            linear.bias.copy_(torch.zeros_like(linear.bias) if start.bias is None else start.bias)
    return nn.Sequential(nn.Dropout(config.dropout), linear)
