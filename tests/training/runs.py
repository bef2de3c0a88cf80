"""Runs that are stopped on their way, and what a run has left, read and compared."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from training.trainer.run_state.checkpoint import load_checkpoint


@contextmanager
def before_step(loop: type, step: int, act: Callable[[], object]) -> Iterator[None]:
    """Do something at the beginning of the step with this number, from 1, in all loops of a class."""
    original: Callable[..., Any] = vars(loop)["_step"]

    def act_and_step(self: Any, batch: Any) -> Any:
        if self.position.step + 1 == step:
            act()
        return original(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_step", act_and_step)
        yield


def terminate() -> None:
    """Ask this process to end, as a system does that shuts down."""
    os.kill(os.getpid(), signal.SIGTERM)


def lines(out: Path) -> list[dict[str, Any]]:
    """The metrics of a run, a mapping a line."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def measured_lines(out: Path) -> list[dict[str, Any]]:
    """The metrics of a run without those of the clock."""
    return [{key: line[key] for key in line.keys() - {"samples_per_second"}} for line in lines(out)]


def assert_same(ours: Any, theirs: Any) -> None:
    """Bit by bit, through nested mappings and sequences."""
    assert type(ours) is type(theirs)
    if isinstance(ours, Tensor):
        assert torch.equal(ours, theirs)
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_same(ours[key], theirs[key])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours == theirs


def assert_same_checkpoints(out: Path, straight: Path) -> None:
    """Two folders of finished runs hold the same last and best checkpoints."""
    for name in ("last.pt", "best.pt"):
        ours, theirs = (load_checkpoint(folder / "checkpoints" / name) for folder in (out, straight))
        assert_same(vars(ours), vars(theirs))


def assert_same_runs(out: Path, straight: Path) -> None:
    """Two folders of finished runs hold the same checkpoints, metrics and results."""
    assert_same_checkpoints(out, straight)
    assert measured_lines(out) == measured_lines(straight)
    assert (out / "results.json").read_text() == (straight / "results.json").read_text()
