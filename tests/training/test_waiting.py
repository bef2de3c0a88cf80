"""The watch over waiting sees each way in which a CPU waits for a device, and lets all others pass."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.training.waiting import nothing_waits

Operation = Callable[[Tensor], object]
WAITING: dict[str, Operation] = {
    "a number of it": lambda numbers: numbers.sum().item(),
    "a truth": lambda numbers: bool((numbers > 0).all()),
    "a list": lambda numbers: numbers.tolist(),
    "a copy back": lambda numbers: numbers.cpu(),
    "a copy there": lambda numbers: torch.ones(3).to(numbers.device),
    "a copy of numbers": lambda numbers: torch.tensor(0.5, device=numbers.device),
    "a new tensor of numbers": lambda numbers: numbers.new_tensor([0.5, 1.0]),
    "a copy into it": lambda numbers: numbers.copy_(torch.ones(3)),
    "a mask as index": lambda numbers: numbers[numbers > 0],
    "a mask as index to write": lambda numbers: numbers.index_put_((numbers > 0,), numbers[:1]),
    "places on the CPU": lambda numbers: numbers[torch.arange(2)],
    "places in a list": lambda numbers: numbers[[2, 0]],
    "real places": lambda numbers: numbers.nonzero(),
    "chosen values": lambda numbers: numbers.masked_select(numbers > 0),
    "different values": lambda numbers: torch.unique(numbers),
    "counts": lambda numbers: numbers.long().bincount(),
    "equality": lambda numbers: torch.equal(numbers, numbers),
    "repeats": lambda numbers: numbers.repeat_interleave(numbers.long()),
    "a solver": lambda numbers: torch.linalg.cholesky(torch.diag(numbers)),
}
PASSING: dict[str, Operation] = {
    "a sum": lambda numbers: (numbers * (numbers > 0)).sum(),
    "a copy that is not waited for": lambda numbers: torch.ones(3).to(numbers.device, non_blocking=True),
    "a filled tensor": lambda numbers: torch.full((), 0.5, device=numbers.device),
    "places on the device": lambda numbers: numbers[torch.arange(2, device=numbers.device)],
    "so many real places": lambda numbers: torch.nonzero_static(numbers, size=3),
    "so many repeats": lambda numbers: numbers.repeat_interleave(numbers.long(), output_size=3),
    "numbers of the CPU": lambda numbers: torch.ones(len(numbers))[torch.ones(3, dtype=torch.bool)].tolist(),
}


@pytest.mark.parametrize("kind", sorted(WAITING))
def test_waiting_is_seen(kind: str, device: torch.device) -> None:
    numbers = torch.ones(3, device=device)
    # A GPU's own check raises a RuntimeError.
    with nothing_waits(device), pytest.raises((AssertionError, RuntimeError), match=r"wait|cop(y|ies)|sync"):
        WAITING[kind](numbers)


@pytest.mark.parametrize("kind", sorted(PASSING))
def test_the_rest_passes(kind: str, device: torch.device) -> None:
    numbers = torch.ones(3, device=device)
    with nothing_waits(device):
        PASSING[kind](numbers)
