"""The gradient of a batch that is encoded in chunks, exact to that of the whole batch (GradCache)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _NormBase

from training.models.features import ModalityFeatures, Source
from training.objectives.base import LossOutput

FeaturesBySource = Mapping[Source, ModalityFeatures]
# A feature of a modality or a view, such as the embedding of the images.
Part = tuple[Source, str]
RandomState = tuple[Tensor, Tensor | None]


def even_chunks(count: int, largest: int) -> list[slice]:
    """Places 0 to `count` in as few chunks of at most `largest` as it takes, none smaller by more than 1.

    Of an odd count in pairs one chunk has three: batch norm has nothing to take statistics of a single item.
    """
    number = -(-count // largest)
    if largest > 1:
        number = min(number, max(1, count // 2))
    ends = [count * chunk // number for chunk in range(number + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]


def backward_in_chunks(
    module: nn.Module,
    encode: Callable[[slice], FeaturesBySource],
    loss: Callable[[FeaturesBySource], LossOutput],
    chunks: Sequence[slice],
    device: torch.device,
) -> LossOutput:
    """Add the gradient of a batch to the parameters, holding the activations of one chunk at a time.

    All chunks are encoded without gradient; the loss of all features gives their gradients and those of the
    loss's own parameters; then each chunk is encoded again, with the random state that it had, and its
    features' gradients are carried on to the encoder. Source: Gao et al., Scaling Deep Contrastive Learning
    Batch Size under Memory Limited Setup, 2021, section 3.

    Batch norm takes the statistics of a chunk where it would take those of the batch, so with batch norm in
    training mode the result is not exact.

    Args:
        module: What encodes.
        encode: Features of the items of a chunk.
        loss: Loss of the features of the whole batch.
        chunks: Cover the batch in order.
        device: Device that the module computes on.
    """
    states, encoded = [], []
    with torch.no_grad(), _statistics_untouched(module):
        for chunk in chunks:
            states.append(_random_state(device))
            encoded.append(encode(chunk))
    features = joined_features(encoded)
    leaves = parts_of(features)
    for tensor in leaves.values():
        tensor.requires_grad_(tensor.is_floating_point())
    output = loss(features)
    torch.autograd.backward(output.total)
    afterwards = _random_state(device)
    gradients = {part: tensor.grad for part, tensor in leaves.items() if tensor.grad is not None}
    for chunk, state in zip(chunks, states, strict=True):
        _set_random_state(state, device)
        _carry_on(parts_of(encode(chunk)), {part: gradient[chunk] for part, gradient in gradients.items()})
    _set_random_state(afterwards, device)
    return output


def joined_features(chunks: Sequence[FeaturesBySource]) -> FeaturesBySource:
    """The features of a batch from those of its chunks, without gradient; local ones padded alike."""
    every = [parts_of(chunk) for chunk in chunks]
    joined = {part: _joined([parts[part] for parts in every]) for part in every[0]}
    sources = dict.fromkeys(source for source, _ in joined)
    return {
        source: ModalityFeatures(
            **{name: tensor for (owner, name), tensor in joined.items() if owner == source}
        )
        for source in sources
    }


def _carry_on(parts: Mapping[Part, Tensor], gradients: Mapping[Part, Tensor]) -> None:
    """Backward from some features with the gradients that the loss has for them."""
    used = [part for part in gradients if parts[part].requires_grad]
    if used:
        # A chunk may have been padded to the longest of the batch; padding has no gradient to carry on.
        given = [gradients[part][:, : parts[part].shape[1]] for part in used]
        torch.autograd.backward([parts[part] for part in used], given)


def parts_of(features: FeaturesBySource) -> dict[Part, Tensor]:
    """All tensors of some features, by source and name."""
    return {
        (source, field.name): tensor
        for source, of_source in features.items()
        for field in fields(of_source)
        if (tensor := getattr(of_source, field.name)) is not None
    }


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """The rows of all chunks; where a chunk has fewer local entries than another, zeros behind them."""
    longest = max(tensor.shape[1] for tensor in tensors)
    return torch.cat([_lengthened(tensor.detach(), longest) for tensor in tensors])


def _lengthened(tensor: Tensor, length: int) -> Tensor:
    missing = length - tensor.shape[1]
    return functional.pad(tensor, (0, 0) * (tensor.ndim - 2) + (0, missing)) if missing else tensor


@contextmanager
def _statistics_untouched(module: nn.Module) -> Iterator[None]:
    """Keep the running statistics of batch norm as they are: the second pass over the batch updates them."""
    norms = [part for part in module.modules() if isinstance(part, _NormBase) and part.track_running_stats]
    training = [norm for norm in norms if norm.training]
    for norm in training:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in training:
            norm.track_running_stats = True


def _random_state(device: torch.device) -> RandomState:
    on_gpu = device.type == "cuda"
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if on_gpu else None


def _set_random_state(state: RandomState, device: torch.device) -> None:
    cpu, gpu = state
    torch.set_rng_state(cpu)
    if gpu is not None:
        torch.cuda.set_rng_state(gpu, device)
