"""Projection heads from a tower's width to the embedding."""

import torch
from torch import Tensor, nn

from training.models.config import HeadConfig
from training.models.tower import Projection


def build_head(config: HeadConfig, width: int, dim: int, start: Projection | None = None) -> nn.Sequential:
    """A linear or a two-layer ReLU head from `width` to `dim`.

    Args:
        config: Kind, hidden width, batch norm and dropout.
        width: Of the input.
        dim: Of the output.
        start: A pretrained projection that a linear head of the same shape starts from.
    """
    if config.kind == "mlp":
        hidden = config.hidden or dim
        norm = [nn.BatchNorm1d(hidden)] if config.norm else []
        return nn.Sequential(
            nn.Linear(width, hidden), *norm, nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(hidden, dim)
        )
    linear = nn.Linear(width, dim)
    if start is not None and start.weight.shape == linear.weight.shape:
        with torch.no_grad():
            linear.weight.copy_(start.weight)
            linear.bias.copy_(torch.zeros_like(linear.bias) if start.bias is None else start.bias)
    return nn.Sequential(nn.Dropout(config.dropout), linear)


def project_entries(head: nn.Module, entries: Tensor, mask: Tensor | None = None) -> Tensor:
    """Project local features (B, K, C) to (B, K, D), each by itself.

    A head with a batch norm sees the real entries only, so that padding is no part of its statistics; the
    others come out as zeros.

    Args:
        head: From C to D.
        entries: (B, K, C).
        mask: (B, K), True where an entry is real; None: all are.
    """
    projected: Tensor
    if not any(isinstance(module, nn.BatchNorm1d | nn.SyncBatchNorm) for module in head.modules()):
        projected = head(entries)
        return projected
    if mask is None:
        mask = entries.new_ones(entries.shape[:2], dtype=torch.bool)
    projected = head(entries[mask])
    return projected.new_zeros(*mask.shape, projected.shape[-1]).index_put((mask,), projected)
