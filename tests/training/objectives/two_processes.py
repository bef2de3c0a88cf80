"""Two real gloo processes that compute the loss of every objective, each on its half of the batch."""

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from tests.training.objectives.cases import (
    blades_of,
    build_case,
    cases_of_processes,
    learnable,
    random_batch,
    rows_of,
    with_features,
    without_common_padding,
)

PROCESSES = 2
STEPS = 2


def outcome(name: str, rank: int = 0, processes: int = 1) -> dict[str, Any]:
    """Loss, gradients of features and parameters, and buffers after two steps, of this process's items."""
    whole = random_batch(blades=blades_of(name))
    objective = build_case(name, whole)
    # As in training, the weights are the same, and what is drawn from here on is each process's own.
    torch.manual_seed(rank)
    total = torch.zeros((), dtype=torch.float64)
    for step in range(STEPS):
        whole = random_batch(seed=step, blades=blades_of(name))
        size = len(next(iter(whole.modalities.values())).embedding) // processes
        batch = rows_of(whole, torch.arange(rank * size, (rank + 1) * size))
        values = {key: value.clone().requires_grad_() for key, value in learnable(batch).items()}
        objective.zero_grad()
        objective.train(step > 0 and not _has_batch_statistics(objective))
        total = objective.compute(without_common_padding(with_features(batch, values))).total
        torch.autograd.backward(total)
        objective.after_step()
    return {
        "total": total.detach(),
        "features": {key: _gradient(value) for key, value in values.items()},
        "parameters": {key: _gradient(value) for key, value in objective.named_parameters()},
        "buffers": {key: value.clone() for key, value in objective.named_buffers()},
    }


def run(folder: Path) -> list[dict[str, dict[str, Any]]]:
    """The outcome of every case in each of two processes."""
    spawn(_work, args=(str(folder),), nprocs=PROCESSES)  # type: ignore[no-untyped-call]
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


def _work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=PROCESSES)
    torch.save(
        {name: outcome(name, rank, PROCESSES) for name in cases_of_processes()}, Path(folder) / f"{rank}.pt"
    )
    dist.destroy_process_group()


def _gradient(value: Tensor) -> Tensor:
    return torch.zeros_like(value) if value.grad is None else value.grad


def _has_batch_statistics(objective: torch.nn.Module) -> bool:
    """Batch norm sees the local items only, by design: two processes agree with one in inference mode."""
    return any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in objective.modules())
