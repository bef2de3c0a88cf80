"""What is done to gradients between the backward pass and the step of the optimizer."""

from collections.abc import Iterator, Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.trainer.run_state.processes import Processes

_NUMBERS_AT_ONCE: Final = 2**24


def average_gradients(parameters: Sequence[nn.Parameter], processes: Processes) -> None:
    """Replace every gradient by its mean over the processes.

    This happens after the backward pass, in an order that depends on nothing but the parameters, so a resumed
    run adds up as one that never stopped; DistributedDataParallel changes its order after its first step.
    A parameter that no process has a gradient for keeps none; one that only some have counts as zero in the
    others.
    """
    if processes.count == 1:
        return
    used = processes.any_of([parameter.grad is not None for parameter in parameters])
    gradients = [_gradient(p) for p, is_used in zip(parameters, used, strict=True) if is_used]
    for bucket in _buckets(gradients):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat)
        flat /= processes.count
        parts = torch.split(flat, [gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view(gradient.shape))


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The L2 norm of all gradients together (scalar); infinite or no number when one of them is."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return nn.utils.get_total_norm(gradients)


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one type, not many numbers at once."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and (
            gradient.dtype != bucket[0].dtype
            or sum(member.numel() for member in bucket) + gradient.numel() > _NUMBERS_AT_ONCE
        ):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket
