"""Large batches on a CPU in slices: what lies between two layers then stays in the processor's cache."""

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.models.tower import TextFeatures

# Measured on two cores: MobileNetV2 forward needs a third less time for an image than at 256.
_IMAGES: Final = 32
# Captions of Flickr8k have 12 tokens in the mean and 40 at most; smaller slices would save little more.
_TEXTS: Final = 32


def run_layers(layers: Sequence[nn.Module], hidden: Tensor) -> Tensor:
    """Run layers one after the other, as many of the first as can be in slices of the batch (B, ...).

    Those are layers that do not know the rest of the batch (evaluation mode) and keep nothing for a backward
    pass, as frozen ones do, and all of them where no gradient is asked for.
    """
    first = 0
    if hidden.device.type == "cpu" and len(hidden) > _IMAGES and not hidden.requires_grad:
        while first < len(layers) and _independent(layers[first]):
            first += 1
    if first:
        with torch.no_grad():
            hidden = torch.cat([_run(layers[:first], hidden[rows]) for rows in _slices(len(hidden), _IMAGES)])
    return _run(layers[first:], hidden)


def read_by_length(
    read: Callable[[Tensor, Tensor], TextFeatures], input_ids: Tensor, attention_mask: Tensor
) -> TextFeatures:
    """Read texts in slices of about equal length, so that little padding is read with them.

    Args:
        read: Maps ids and mask (B, T) to features; padding at the end must not change a real token.
        input_ids: (B, T).
        attention_mask: (B, T), 1 for real tokens, which come first.

    Returns:
        The features of all texts in their order; those of padding are zeros where it was not read.
    """
    if input_ids.device.type != "cpu" or len(input_ids) <= _TEXTS:
        return read(input_ids, attention_mask)
    lengths = attention_mask.sum(dim=1)
    order = torch.argsort(lengths, stable=True)
    parts = [
        _pad(read(input_ids[rows, :longest], attention_mask[rows, :longest]), input_ids.shape[1])
        for rows in (order[part] for part in _slices(len(order), _TEXTS))
        for longest in [max(1, int(lengths[rows[-1]]))]
    ]
    back = torch.argsort(order)

    def joined(pieces: Sequence[Tensor | None]) -> Tensor | None:
        found = [piece for piece in pieces if piece is not None]
        return torch.cat(found)[back] if found else None

    tokens = joined([part.tokens for part in parts])
    assert tokens is not None
    return TextFeatures(
        tokens, joined([part.pooled for part in parts]), joined([part.fork for part in parts])
    )


def _slices(total: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, total, size)]


def _independent(layer: nn.Module) -> bool:
    if any(module.training for module in layer.modules()):
        return False
    return not torch.is_grad_enabled() or not any(weight.requires_grad for weight in layer.parameters())


def _run(layers: Sequence[nn.Module], hidden: Tensor) -> Tensor:
    for layer in layers:
        hidden = layer(hidden)
    return hidden


def _pad(features: TextFeatures, length: int) -> TextFeatures:
    def padded(states: Tensor | None) -> Tensor | None:
        return None if states is None else functional.pad(states, (0, 0, 0, length - states.shape[1]))

    tokens = padded(features.tokens)
    assert tokens is not None
    return TextFeatures(tokens, features.pooled, padded(features.fork))
