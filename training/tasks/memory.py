"""The memory of a task's step, compared with what is free before the first one."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Final

import torch
from lightning_fabric import Fabric
from torch import Tensor

from training.common.errors import RecipeError
from training.trainer.memory.live import Growth, LiveMemory
from training.trainer.memory.plan import bytes_of_learning, free_bytes, said
from training.trainer.memory.trial import unchanged, with_margin
from training.trainer.run_state.processes import Processes
from training.trainer.task import TrainedModule

_FEW: Final = 2
_MANY: Final = 4
# A bound need not be made exact where so many times as much is free.
_PLENTY: Final = 4


def check_step(module: TrainedModule, inputs: Sequence[Tensor], fabric: Fabric, processes: Processes) -> None:
    """Make sure that a step has room, by forward and backward passes of some rows, which leave no trace.

    Args:
        module: In training mode; `forward` gives the mean over the rows that it takes, and its terms.
        inputs: Of a step, the first one with a row for each sample.
        fabric: Device and precision.
        processes: That train together.

    Raises:
        RecipeError: It has not.
    """
    samples = len(inputs[0])
    device = fabric.device
    free = free_bytes(device, processes)
    learning = bytes_of_learning(module, processes)

    def fits(needed: int) -> bool:
        return not any(processes.any_of([with_margin(needed + learning, device) > free]))

    # A forward pass may train networks beside the model. Adam will take twice as much as this copy.
    weights = deepcopy(module.state_dict())
    with unchanged(module, device):
        rows = min(_FEW, samples)
        trace = _trace(module, inputs, rows, fabric)
        growth = Growth(rows, rows, trace, trace)
        if not fits(_PLENTY * growth.at(samples)) and fits(growth.at(_MANY)):
            rows = min(_MANY, samples)
            growth = Growth(growth.few, rows, trace, _trace(module, inputs, rows, fabric))
    module.load_state_dict(weights)
    needed = growth.at(samples)
    if not fits(needed):
        raise RecipeError(
            f"A training step needs {said(with_margin(needed + learning, device))} of memory, and "
            f"{said(free)} are free: make room, or set train.batch_size to less."
        )


def _trace(module: TrainedModule, inputs: Sequence[Tensor], rows: int, fabric: Fabric) -> list[int]:
    """The bytes held by a forward and a backward pass of the first rows."""
    samples = len(inputs[0])
    first = [part[:rows] if part.dim() and len(part) == samples else part for part in inputs]
    with LiveMemory(fabric.device) as live, fabric.autocast():
        total, _ = module(*first)
        torch.autograd.backward(total)
    return live.trace
