"""The figures of a run over its steps: JSON Lines to read by program, TensorBoard and others to look at."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch.utils.tensorboard.writer import SummaryWriter

from training.atomic import atomic_file
from training.trainer.run_state.tracking import TrackerName, Trackers


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
