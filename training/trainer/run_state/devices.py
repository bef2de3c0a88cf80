"""The device, the precision and the threads that a run computes with."""

import os
from typing import Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy

from training.errors import RecipeError
from training.models.encoder import choose_device
from training.trainer.run_state.processes import launched_processes

_FABRIC_PRECISION: dict[str, Literal["bf16-mixed", "32-true"]] = {"bf16": "bf16-mixed", "fp32": "32-true"}


def build_fabric(precision: Literal["auto", "fp32", "bf16"], device_name: str) -> Fabric:
    """Fabric for one device, or for as many as torchrun has started processes.

    Args:
        precision: `auto` takes bfloat16 on a GPU that has it, else float32.
        device_name: As `choose_device` takes it; "auto" and "cuda" give each process a GPU of its own.

    Raises:
        RecipeError: There is no such device, or not one for each process.
    """
    device = choose_device(device_name)
    if precision == "auto":
        # Emulated bfloat16, on GPUs before Ampere, is slower than float32.
        has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        precision = "bf16" if has_bf16 else "fp32"
    if launched_processes() > 1:
        return _shared(_FABRIC_PRECISION[precision], device)
    return Fabric(
        accelerator=device.type,
        devices=[device.index or 0] if device.type == "cuda" else 1,
        precision=_FABRIC_PRECISION[precision],
    )


def _shared(precision: Literal["bf16-mixed", "32-true"], device: torch.device) -> Fabric:
    """Fabric for this process among those of torchrun."""
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    on_gpu = device.type == "cuda"
    if device.index is not None:
        raise RecipeError("Each process takes a GPU of its own: give the device as 'cuda', without a number.")
    if on_gpu and torch.cuda.device_count() < here:
        raise RecipeError(
            f"There are {torch.cuda.device_count()} GPUs here for {here} processes: start as many processes "
            "as there are GPUs, with torchrun --nproc-per-node."
        )
    return Fabric(
        accelerator=device.type,
        devices=list(range(here)) if on_gpu else here,
        num_nodes=launched_processes() // here,
        precision=precision,
        strategy=DDPStrategy(process_group_backend="nccl" if on_gpu else "gloo"),
        # Inside a job of SLURM it would be taken for one that srun has started.
        plugins=TorchElasticEnvironment(),
    )


def pin_threads() -> None:
    """Fix the number of threads at what torch uses now, and the algorithms of convolutions on a CPU.

    Until it is set, MKL picks a number for each product, and another number adds up in another order: a
    resumed run could differ from one that never stopped in the last bits.
    """
    torch.set_num_threads(torch.get_num_threads())
    torch.backends.mkldnn.set_flags(_deterministic=True)  # type: ignore[no-untyped-call]
