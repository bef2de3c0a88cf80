"""The steps of a run, as its loop does them, while nothing may wait for the device."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.training.waiting import nothing_waits
from training.trainer.batches import page_locked
from training.trainer.loop import TrainingLoop


@dataclass(frozen=True)
class BareFabric:
    """The part of Fabric that a run uses, for a device that Fabric does not know."""

    device: torch.device
    world_size: int = 1

    def autocast(self) -> AbstractContextManager[None]:
        return nullcontext()


class SteppedError(Exception):
    """The steps are done, and nothing more of the run is wanted."""


def run_steps(
    run: Callable[[str], object], device: torch.device, monkeypatch: pytest.MonkeyPatch, *, steps: int = 2
) -> None:
    """Begin a run and do its first steps, each as the loop does it, while nothing may wait for the device.

    Args:
        run: Begins the run on a device of this name.
        device: That the run computes on.
        monkeypatch: Puts the steps in place of the whole loop.
        steps: How many.
    """

    def step(loop: TrainingLoop[Any], **_options: Any) -> None:
        loop.task.module.train()
        with nothing_waits(device):
            batches = page_locked(loop.task.batches.from_position(loop.position), loop.device)
            for _ in range(steps):
                loop._step(next(batches))
                loop.position = loop.position.next(loop.task.batches.batches_per_epoch)
        raise SteppedError

    if device.type == "meta":
        monkeypatch.setattr("training.trainer.opening.build_fabric", lambda *_: BareFabric(device))
    monkeypatch.setattr(TrainingLoop, "start", lambda *_: None)
    monkeypatch.setattr(TrainingLoop, "run", step)
    with pytest.raises(SteppedError):
        run(device.type)
