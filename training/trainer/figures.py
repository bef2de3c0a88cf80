"""Sums of losses over steps, kept on the device so that no step waits for it."""

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from training.trainer.errors import TrainingError

_NEVER = 2**62


class LossFigures:
    """Means over the steps since they were last read, and the first step whose loss was no number."""

    def __init__(self, device: torch.device) -> None:
        self._first_bad = torch.full((), _NEVER, dtype=torch.int64, device=device)
        self._reset()

    def add(self, step: int, samples: int, total: Tensor, terms: Mapping[str, Tensor]) -> None:
        """Count the loss of one step; nothing waits for the device."""
        detached = total.detach()
        bad = torch.where(torch.isfinite(detached), _NEVER, step)
        self._first_bad = torch.minimum(self._first_bad, bad)
        for name, value in {"loss": detached, **terms}.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value.clone()
        self._steps += 1
        self._samples += samples

    def check(self) -> None:
        """Wait for the device and make sure that all losses were numbers.

        Raises:
            TrainingError: One was not.
        """
        step = int(self._first_bad)
        if step != _NEVER:
            raise TrainingError(
                f"The loss of step {step:,} is not a finite number, so the run stopped; its last checkpoint "
                "is from before. Try a lower optimizer.lr, or optimizer.max_grad_norm=1."
            )

    def read(self) -> dict[str, float]:
        """Wait for the device, give the means and start anew.

        Raises:
            TrainingError: A loss was not a finite number.
        """
        self.check()
        sums = torch.stack([value.float() for value in self._sums.values()]).tolist()
        means = {name: value / self._steps for name, value in zip(self._sums, sums, strict=True)}
        means["samples_per_second"] = self._samples / max(time.perf_counter() - self._since, 1e-9)
        self._reset()
        return means

    def _reset(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._steps = 0
        self._samples = 0
        self.restart_clock()

    def restart_clock(self) -> None:
        """Leave out of samples a second what happened before now."""
        self._since = time.perf_counter()
        self._samples = 0
