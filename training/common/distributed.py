"""Collectives that objectives need: number of processes, and rows gathered with gradient.

Under data parallel training gradients are averaged over processes. A mean over local rows is then right as it
is; a sum over local rows is multiplied by `process_count()`.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def process_count() -> int:
    """Number of processes that train together; 1 without torch.distributed."""
    return dist.get_world_size() if _together() else 1


def process_rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if _together() else 0


def gather_rows(rows: Tensor) -> Tensor:
    """The rows (b, ...) of all processes, each with b of them, in the order of their ranks.

    Backward adds up the gradients that all processes have for a row, so no process's share is lost.
    """
    if process_count() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


def gather_detached(rows: Tensor) -> Tensor:
    """The rows of all processes in the order of their ranks, without gradient."""
    return _all_rows(rows.detach()) if process_count() > 1 else rows.detach()


def gather_uneven(rows: Tensor) -> Tensor:
    """The same, of processes that may differ in how many rows they have."""
    if process_count() == 1:
        return rows.detach()
    counts = _all_rows(torch.tensor([len(rows)], device=rows.device)).tolist()
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[: len(rows)] = rows.detach()
    parts = torch.split(_all_rows(padded), max(counts))
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def of_first_process(values: Tensor) -> Tensor:
    """The first process's values in all processes, such as random numbers that they share; no gradient."""
    shared = values.detach().clone()
    if process_count() > 1:
        dist.broadcast(shared, src=0)
    return shared


def mean_over_processes(value: Tensor) -> Tensor:
    """The mean of a tensor over all processes, without gradient."""
    total = value.detach().clone()
    if process_count() > 1:
        dist.all_reduce(total)
    return total / process_count()


def largest_of_processes(count: int) -> int:
    """The largest of a number that each process has."""
    if process_count() == 1:
        return count
    device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
    largest = torch.tensor(count, device=device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest)


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.count = len(rows)
        return _all_rows(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        start = process_rank() * ctx.count
        return total[start : start + ctx.count]


def _all_rows(rows: Tensor) -> Tensor:
    parts = [torch.empty_like(rows, memory_format=torch.contiguous_format) for _ in range(process_count())]
    dist.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()
