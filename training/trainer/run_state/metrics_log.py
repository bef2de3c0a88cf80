"""The figures of a run over its steps: JSON Lines to read by program, TensorBoard and others to look at."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.tensorboard.writer import SummaryWriter

from training.common.atomic import atomic_file
from training.common.distributed import mean_over_processes
from training.objectives.base import LossOutput
from training.trainer.run_state.errors import DivergedError
from training.trainer.run_state.processes import Processes
from training.trainer.run_state.tracking import TrackerName, Trackers

_NEVER = 2**62


class MetricsLog:
    """Writes `metrics.jsonl` and `tensorboard/` in a run's folder, and to trackers.

    A line is `{"step", "kind": "train" | "validation", ...figures}`. What an earlier run wrote beyond `step`,
    after the checkpoint that is being resumed, is taken out, so that no step is there twice.
    """

    def __init__(self, folder: Path, step: int, trackers: Sequence[TrackerName] = ()) -> None:
        path = folder / "metrics.jsonl"
        _keep_until(path, step)
        self._file = path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)
        self._trackers = Trackers(trackers, folder)

    def write(self, step: int, kind: str, figures: Mapping[str, float]) -> None:
        """Add the figures that belong to the state after `step` steps."""
        self._file.write(json.dumps({"step": step, "kind": kind, **figures}) + "\n")
        self._file.flush()
        for name, value in figures.items():
            self._board.add_scalar(f"{kind}/{name}", value, step)
        self._trackers.write(step, {f"{kind}/{name}": value for name, value in figures.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._board.close()
        self._trackers.close(failed=error is not None)


def _keep_until(path: Path, step: int) -> None:
    if not path.exists():
        return
    kept = [line for line in path.read_bytes().splitlines() if _step(line) <= step]
    with atomic_file(path) as file:
        file.write(b"".join(line + b"\n" for line in kept))


def _step(line: bytes) -> float:
    """The step of a line; infinity when a killed run left half a line."""
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return float("inf")
    return float(entry["step"])


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
            DivergedError: One was not.
        """
        first = self._first_bad.clone()
        if self._processes.count > 1:
            dist.all_reduce(first, op=dist.ReduceOp.MIN)
        loss, gradient = first.tolist()
        if min(loss, gradient) == _NEVER:
            return
        # A loss that is no number has no gradient either.
        what = "loss" if loss <= gradient else "gradient"
        raise DivergedError(
            f"The {what} of step {min(loss, gradient):,} is not a finite number, so the run stopped; its "
            "last checkpoint is from before. Try a lower optimizer.lr, or optimizer.max_grad_norm=1."
        )

    def read(self) -> dict[str, float]:
        """Wait for the device, give the means and start anew.

        `averaged_steps` says of how many steps they are: of fewer once a run was resumed, and at its end.

        Raises:
            DivergedError: A loss or a gradient was not finite.
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
