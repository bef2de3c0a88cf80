"""The device, the precision and the threads that a run computes with."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy

from training.common.errors import RecipeError
from training.models.encoder import choose_device, has_bfloat16
from training.recipes.schema import Precision
from training.trainer.run_state.processes import launched_processes

FabricPrecision = Literal["bf16-mixed", "32-true"]
_FABRIC_PRECISION: Final[dict[Precision, FabricPrecision]] = {
    "bf16": "bf16-mixed",
    "fp32": "32-true",
    "tf32": "32-true",
}


def chosen_precision(precision: Precision, device: torch.device) -> Precision:
    """The precision that `auto` stands for on a device: bfloat16 on a GPU that has it, else float32."""
    if precision != "auto":
        return precision
    return "bf16" if has_bfloat16(device) else "fp32"


def build_fabric(precision: Precision, device_name: str) -> Fabric:
    """Fabric for one device, or for as many as torchrun has started processes.

    Sets for the whole process whether products of float32 numbers on a GPU are rounded to 10 bits (TF32).

    Args:
        precision: As `chosen_precision` takes it.
        device_name: As `choose_device` takes it; "auto" and "cuda" give each process a GPU of its own.

    Raises:
        RecipeError: There is no such device, or not one for each process.
    """
    device = choose_device(device_name)
    precision = chosen_precision(precision, device)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    if launched_processes() > 1:
        return _shared(_FABRIC_PRECISION[precision], device)
    return Fabric(
        accelerator=device.type,
        devices=[device.index or 0] if device.type == "cuda" else 1,
        precision=_FABRIC_PRECISION[precision],
    )


@contextmanager
def full_products() -> Iterator[None]:
    """Leave products of float32 numbers their 23 bits, as losses need for their small differences."""
    rounded = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = rounded


def _shared(precision: FabricPrecision, device: torch.device) -> Fabric:
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
