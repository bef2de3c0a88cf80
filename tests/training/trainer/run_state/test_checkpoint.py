"""Checkpoints: what comes back, and that no damage or other file gets further than one plain sentence."""

import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from training.data.pairs import Position
from training.trainer.run_state.checkpoint import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    random_state,
    restore_random_state,
    save_checkpoint,
)
from training.trainer.run_state.errors import TrainingError

CPU = torch.device("cpu")


def write(path: Path) -> bytes:
    """A checkpoint after one step of Adam, and the bytes of its file."""
    layer = torch.nn.Linear(20, 20)
    optimizer = torch.optim.Adam(layer.parameters())
    torch.autograd.backward(layer(torch.randn(2, 20)).sum())
    optimizer.step()
    state = layer.state_dict(), optimizer.state_dict()
    save_checkpoint(path, Checkpoint(Position(3, 1, 2), *state, [random_state(CPU)], {"a": 1.0}, "r", "d"))
    return path.read_bytes()


def test_random_state_comes_back_through_a_checkpoint(tmp_path: Path) -> None:
    def draw() -> tuple[float, float, float, float]:
        return random.gauss(0, 1), float(np.random.normal()), np.random.random(), float(torch.rand(()))

    draw()
    states = [random_state(CPU)]
    expected = draw()
    save_checkpoint(tmp_path / "c.pt", Checkpoint(Position(3, 1, 2), {}, {}, states, {"a": 1.0}, "r", "d"))
    loaded = load_checkpoint(tmp_path / "c.pt")
    draw()
    restore_random_state(loaded.random[0], CPU)
    assert draw() == expected
    assert loaded.position == Position(3, 1, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["c.pt"]


def test_tensors_that_are_not_used_take_no_memory(tmp_path: Path) -> None:
    size = 64 * 2**20
    large = {"state": torch.zeros(size, dtype=torch.uint8)}
    save_checkpoint(tmp_path / "c.pt", Checkpoint(Position(), {}, large, [], {}, "r", "d"))
    before = anonymous_memory()
    loaded = load_checkpoint(tmp_path / "c.pt")
    assert anonymous_memory() - before < size / 4
    assert loaded.optimizer["state"].shape == (size,)


def anonymous_memory() -> int:
    """Bytes that this process holds beside mapped files."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def check_refused(path: Path) -> None:
    with pytest.raises(TrainingError) as caught:
        load_checkpoint(path)
    said = str(caught.value)
    assert str(path) in said
    assert said.endswith("start the run anew.")
    assert "\n" not in said


def test_a_damaged_file_is_refused_wherever_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    whole = write(path)
    place = whole.index(load_checkpoint(path).task["weight"].numpy().tobytes()) + 17
    lengths = (*range(0, len(whole), 331), 1, 2, 4, 30, len(whole) - 1)
    starts = range(0, len(whole) - 2000, 700)
    for damaged in (
        *(whole[:length] for length in lengths),
        *(whole[:start] + bytes(2000) + whole[start + 2000 :] for start in starts),
        bytes(len(whole)),
        # A bit of a weight.
        whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :],
    ):
        path.write_bytes(damaged)
        check_refused(path)


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "no tensors")


@pytest.mark.parametrize(
    "other",
    [
        lambda path: path.write_text("name: a recipe"),
        lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(99)),
        lambda path: path.write_bytes(pickle.dumps({"format": 2})),
        lambda path: save_file({"weight": torch.ones(3)}, path),
        _zip,
        lambda path: torch.save(Path("code"), path),
        lambda path: torch.save([1, 2], path),
        lambda path: torch.save({"format": 99}, path),
        lambda path: torch.save({"format": 2}, path),
        lambda path: torch.save({"format": 2, "position": 5}, path),
        lambda path: torch.save({"format": 2, "position": {"step": 1, "other": 2}}, path),
        lambda path: torch.save({"format": 2, "position": {"step": 1}, "task": {}}, path),
    ],
)
def test_another_file_in_its_place_is_refused(other: Callable[[Path], Any], tmp_path: Path) -> None:
    other(tmp_path / "c.pt")
    check_refused(tmp_path / "c.pt")


def test_what_the_system_says_of_a_file_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"gone\.pt cannot be read: No such file or directory\.$"):
        load_checkpoint(tmp_path / "gone.pt")
    with pytest.raises(TrainingError, match=r"cannot be read: Is a directory\.$"):
        load_checkpoint(tmp_path)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    write(path)
    for other in (torch.nn.Linear(20, 5), torch.nn.Bilinear(2, 2, 20)):
        with pytest.raises(TrainingError, match=r"c\.pt are not those of this recipe's model: .* anew\.$"):
            load_weights(other, load_checkpoint(path), path)
