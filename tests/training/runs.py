"""What a run has left, read and compared."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def lines(out: Path) -> list[dict[str, Any]]:
    """The metrics of a run, a mapping a line."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


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
