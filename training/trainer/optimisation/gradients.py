"""What is done to gradients between the backward pass and the step of the optimizer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.trainer.run_state.processes import Processes

_NUMBERS_AT_ONCE: Final = 2**22


class GradientAverage:
    """Means of gradients over the processes, summed while the backward pass still runs.

    Sums are taken in buckets from the last parameter to the first, in an order that depends on nothing but
    the parameters. A resumed run adds up as one that never stopped, where DistributedDataParallel changes its
    order after its first step. Made by all processes at once.

    Args:
        parameters: Whose gradients are averaged.
        processes: Processes that train together.
        numbers_at_once: Most numbers of a bucket with more than one parameter.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        processes: Processes,
        numbers_at_once: int = _NUMBERS_AT_ONCE,
    ) -> None:
        self._processes = processes
        self._buckets = list(_buckets(reversed(parameters), numbers_at_once))
        self._bucket_of = {member: number for number, bucket in enumerate(self._buckets) for member in bucket}
        self._missing: list[int] = []
        self._sums: list[tuple[Tensor, dist.Work]] = []
        if processes.count > 1:
            # The backward pass has collectives of its own, whose order among these may differ.
            self._group = dist.new_group()
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(self._add)  # type: ignore[no-untyped-call]

    @property
    def begun(self) -> int:
        """Number of buckets whose sum has begun."""
        return len(self._sums)

    def begin(self, *, overlap: bool) -> None:
        """Prepare for the backward pass of a step.

        Args:
            overlap: Each parameter gets its gradient at once; False: it is added to in several passes, so
                that sums begin behind the last.
        """
        self._sums.clear()
        self._missing = [len(bucket) for bucket in self._buckets] if overlap else []

    def finish(self) -> None:
        """Replace every gradient by its mean.

        A parameter without a gradient in any process keeps none. One without in some counts as zero there.
        """
        if self._processes.count == 1:
            return
        flags = self._processes.any_rank([member.grad is not None for member in self._bucket_of])
        used = {member for member, flag in zip(self._bucket_of, flags, strict=True) if flag}
        while self.begun < len(self._buckets):
            self._begin_sum()
        for bucket, (total, work) in zip(self._buckets, self._sums, strict=True):
            work.wait()
            total /= self._processes.count
            parts = torch.split(total, [member.numel() for member in bucket])
            for member, part in zip(bucket, parts, strict=True):
                if member in used:
                    # Copied, since an optimizer wants gradients in the memory format of their parameters.
                    member.grad = torch.empty_like(member) if member.grad is None else member.grad
                    member.grad.copy_(part.view(member.shape))
        self._sums.clear()

    def _add(self, parameter: nn.Parameter) -> None:
        """Count a gradient that has come, and begin the sums that can be."""
        if not self._missing:
            return
        self._missing[self._bucket_of[parameter]] -= 1
        while self.begun < len(self._buckets) and not self._missing[self.begun]:
            self._begin_sum()

    def _begin_sum(self) -> None:
        parts = [
            (torch.zeros_like(member) if member.grad is None else member.grad).reshape(-1)
            for member in self._buckets[self.begun]
        ]
        total = torch.cat(parts)
        work = dist.all_reduce(total, group=self._group, async_op=True)
        assert work is not None
        self._sums.append((total, work))


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """The L2 norm of all gradients together (scalar); infinite or no number when one of them is."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return nn.utils.get_total_norm(gradients)


def _buckets(parameters: Iterable[nn.Parameter], numbers_at_once: int) -> Iterator[list[nn.Parameter]]:
    """Neighbours of one type, not many numbers at once."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        if bucket and (
            parameter.dtype != bucket[0].dtype
            or sum(member.numel() for member in bucket) + parameter.numel() > numbers_at_once
        ):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
