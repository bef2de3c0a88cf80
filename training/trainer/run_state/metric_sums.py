"""Sums of losses over steps, kept on the device so that no step waits for it."""

import time

import torch
import torch.distributed as dist
from torch import Tensor

from training.distributed import mean_over_processes
from training.objectives.base import LossOutput
from training.trainer.run_state.errors import TrainingError
from training.trainer.run_state.processes import Processes

_NEVER = 2**62


class LossFigures:
    """Means over the steps since they were last read, and the first step that went wrong.

    All processes read and check at the same steps, and get the same.
    """

    def __init__(self, device: torch.device, processes: Processes) -> None:
        # The first step whose loss, and the first whose gradient is not finite.
        self._first_bad = torch.full((2,), _NEVER, dtype=torch.int64, device=device)
        self._processes = processes
        self._reset()

    def add(self, step: int, samples: int, output: LossOutput, gradient_norm: Tensor) -> None:
        """Count the loss of one step and its gradient; nothing waits for the device."""
        loss = output.total.detach().float()
        bad = ~torch.isfinite(torch.stack((loss, gradient_norm.detach().float())))
        self._first_bad = torch.minimum(self._first_bad, torch.where(bad, step, _NEVER))
        figures = {"loss": loss, "gradient_norm": gradient_norm, **output.terms}
        for name, value in figures.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value.clone()
        self._steps += 1
        self._samples += samples

    def check(self) -> None:
        """Wait for the device and make sure that all losses and gradients were finite.

        Raises:
            TrainingError: One was not.
        """
        first = self._first_bad.clone()
        if self._processes.count > 1:
            dist.all_reduce(first, op=dist.ReduceOp.MIN)
        loss, gradient = first.tolist()
        if min(loss, gradient) == _NEVER:
            return
        # A loss that is no number has no gradient either.
        what = "loss" if loss <= gradient else "gradient"
        raise TrainingError(
            f"The {what} of step {min(loss, gradient):,} is not a finite number, so the run stopped; its "
            "last checkpoint is from before. Try a lower optimizer.lr, or optimizer.max_grad_norm=1."
        )

    def read(self) -> dict[str, float]:
        """Wait for the device, give the means and start anew.

        `averaged_steps` says of how many steps they are: of fewer once a run was resumed, and at its end.

        Raises:
            TrainingError: A loss or a gradient was not finite.
        """
        self.check()
        sums = mean_over_processes(torch.stack([value.detach().float() for value in self._sums.values()]))
        means = {name: value / self._steps for name, value in zip(self._sums, sums.tolist(), strict=True)}
        seconds = max(time.perf_counter() - self._since, 1e-9)
        means["samples_per_second"] = self._samples * self._processes.count / seconds
        means["averaged_steps"] = self._steps
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
