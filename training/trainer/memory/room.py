"""Bytes that a run may take, and those that its weights take while they learn."""

from typing import Final

import torch
from torch import nn

from training.host import return_freed_memory
from training.memory import free_memory_each
from training.trainer.run_state.processes import Processes

_MIB: Final = 2**20
_GIB: Final = 2**30


def free_bytes(device: torch.device, processes: Processes) -> int:
    """The bytes that every process may take."""
    return_freed_memory()
    # Nobody measures while another still reads its data.
    processes.gathered(None)
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + reserved
    else:
        free = free_memory_each()
    return min(processes.gathered(free))


def bytes_of_learning(module: nn.Module, processes: Processes) -> int:
    """Bytes of what comes with the weights: gradients, their sums over processes, and two states of Adam."""
    trained = sum(parameter.nbytes for parameter in module.parameters() if parameter.requires_grad)
    return (3 if processes.count == 1 else 4) * trained


def said(size: int) -> str:
    """A number of bytes as words of a sentence."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / _MIB:.1f} MiB"
