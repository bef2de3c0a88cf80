"""Attention in operators that the export to ONNX keeps open to texts of any length."""

from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

Model = TypeVar("Model", bound=nn.Module)


def with_exportable_attention(model: Model) -> Model:
    """A copy of a model; the export would fix the number of tokens in the attention of PyTorch."""
    copy = deepcopy(model)
    for module in list(copy.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.MultiheadAttention):
                setattr(module, name, _Attention(child))
    return copy


class _Attention(nn.Module):
    """The attention of a `MultiheadAttention` whose batch comes first, called as that is."""

    def __init__(self, source: nn.MultiheadAttention) -> None:
        super().__init__()
        self.source = source

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = True,  # noqa: ARG002 - an argument of PyTorch's
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Attended values (B, Q, C), and the mean weights (B, Q, K) of the heads."""
        assert attn_mask is None
        assert not is_causal
        queries, keys, values = self._heads(query, key, value)
        scores = queries @ keys.transpose(2, 3) * (query.shape[2] // self.source.num_heads) ** -0.5
        if key_padding_mask is not None:
            # Layers of PyTorch give minus infinity in place of True.
            masked = key_padding_mask if key_padding_mask.dtype == torch.bool else key_padding_mask < 0
            scores = scores.masked_fill(masked[:, None, None], float("-inf"))
        weights = scores.softmax(dim=3)
        attended = (weights @ values).transpose(1, 2).flatten(2)
        return self.source.out_proj(attended), weights.mean(dim=1)

    def _heads(self, *inputs: Tensor) -> list[Tensor]:
        """Projected inputs (B, K, C) by head (B, H, K, C / H)."""
        source = self.source
        width = source.embed_dim // source.num_heads
        parts = zip(inputs, source.in_proj_weight.chunk(3), source.in_proj_bias.chunk(3), strict=True)
        return [
            functional.linear(states, weight, bias)
            .reshape(states.shape[0], -1, source.num_heads, width)
            .transpose(1, 2)
            for states, weight, bias in parts
        ]
