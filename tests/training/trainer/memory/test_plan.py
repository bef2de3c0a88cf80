"""Runs on machines with more and less memory: what they encode at once, say, keep and refuse."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.runs import assert_same_checkpoints, before_step
from tests.training.trainer.scenes import run, stop, tiny_recipe
from training.common.errors import RecipeError
from training.models.bundle import read_bundle
from training.recipes.load import load_recipe
from training.recipes.schema import Recipe
from training.trainer.loop import TrainingLoop
from training.trainer.memory import plan
from training.trainer.memory.live import Growth
from training.trainer.memory.plan import format_bytes
from training.trainer.memory.trial import StepMemory, StepTrial, with_margin
from training.trainer.run_state.errors import TrainingError

MIB = 2**20
CPU = torch.device("cpu")


def recipe(**settings: Any) -> Recipe:
    """One batch an epoch, of twelve of the fourteen images."""
    return tiny_recipe(batch_size=12, **settings)


@pytest.fixture
def scarce(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Free memory for half of such a batch at once, and not for the whole."""
    found: list[StepMemory] = []

    def noted(memory: StepMemory, free: int) -> int:
        found.append(memory)
        return largest(memory, free)

    largest = plan._largest_chunk
    with monkeypatch.context() as patch:
        patch.setattr(plan, "_largest_chunk", noted)
        run(recipe(steps=1), scenes, tmp_path / "measured")
    free = found[0].peak(6) + 1
    assert free < found[0].peak(12)
    monkeypatch.setattr(plan, "free_memory_each", lambda: free)
    return free


def test_what_does_not_fit_is_cut_and_said(
    scenes: Path, tmp_path: Path, scarce: int, caplog: pytest.LogCaptureFixture
) -> None:
    run(recipe(steps=1), scenes, tmp_path / "out")
    assert "of a batch of 12, a process encodes 6 at a time (train.chunk_size)" in caplog.text
    assert "batch norm, which takes its statistics of each chunk" in caplog.text
    for kept in (
        load_recipe(str(tmp_path / "out/recipe.yaml")),
        load_recipe(str(tmp_path / "out/bundle/recipe.yaml")),
    ):
        assert kept.train.chunk_size == 6
    run(recipe(chunk_size=6, steps=1), scenes, tmp_path / "explicit")
    ours, theirs = (read_bundle(tmp_path / name / "bundle").digest for name in ("out", "explicit"))
    assert ours == theirs


def test_what_the_trial_leaves_is_not_free(
    scenes: Path,
    tmp_path: Path,
    scarce: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried: list[StepMemory] = []
    measure = StepTrial.measure

    def noted(trial: StepTrial, share: int, constant: int) -> StepMemory:
        tried.append(measure(trial, share, constant))
        return tried[-1]

    monkeypatch.setattr(StepTrial, "measure", noted)
    monkeypatch.setattr(plan, "free_memory_each", lambda: scarce if tried else 100 * scarce)
    run(recipe(), scenes, tmp_path / "out")
    assert f"{format_bytes(scarce)} are free: of a batch of 12, a process encodes 6 at a time" in caplog.text


def test_what_fits_is_as_without_a_trial(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        run(recipe(), scenes, tmp_path / "out")
    assert "A step needs" in caplog.text
    assert "at a time" not in caplog.text
    assert load_recipe(str(tmp_path / "out/recipe.yaml")).train.chunk_size is None
    monkeypatch.setattr("training.trainer.run.settled_chunk_size", lambda *_: None)
    run(recipe(), scenes, tmp_path / "untried")
    assert_same_checkpoints(tmp_path / "out", tmp_path / "untried")


@pytest.mark.slow
def test_a_run_goes_on_as_it_began_however_much_is_free_then(
    scenes: Path, tmp_path: Path, scarce: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(recipe(), scenes, tmp_path / "straight")
    stop(recipe(), scenes, tmp_path / "out", 1)
    monkeypatch.setattr(plan, "free_memory_each", lambda: 100 * scarce)
    torch.manual_seed(5)
    run(recipe(), scenes, tmp_path / "out", resume=True)
    assert_same_checkpoints(tmp_path / "out", tmp_path / "straight")
    with pytest.raises(TrainingError, match=r"started with another train\.chunk_size"):
        run(recipe(chunk_size=None), scenes, tmp_path / "out", resume=True)


@pytest.mark.parametrize("chunk_size", [None, pytest.param(12, marks=pytest.mark.slow)])
def test_a_number_of_the_recipe_stays_and_is_doubted(
    scenes: Path, tmp_path: Path, scarce: int, caplog: pytest.LogCaptureFixture, chunk_size: int | None
) -> None:
    run(recipe(chunk_size=chunk_size), scenes, tmp_path / "out")
    assert "the system may end the run. Make room, or begin it with train.chunk_size=auto." in caplog.text
    assert load_recipe(str(tmp_path / "out/recipe.yaml")).train.chunk_size == chunk_size


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (0.1, "gradients of the weights, the optimizer .* need .* and .* are free: set frozen_layers"),
        (0.18, "memory even with 2 pairs encoded at a time, and .* are free: set preprocessing.image.size"),
    ],
)
def test_what_cannot_fit_is_refused_before_the_first_step(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, said: str
) -> None:
    monkeypatch.setattr(plan, "free_memory_each", lambda: int(free * MIB))
    with (
        before_step(TrainingLoop, 1, lambda: pytest.fail("a step was made")),
        pytest.raises(RecipeError, match=said),
    ):
        run(recipe(), scenes, tmp_path / "out")


def memory(share: int, *, item: int = 100, loss: int = 50, features: int = 10) -> StepMemory:
    """A hundred bytes an item."""
    return StepMemory(share, Growth(1, 2, [item], [2 * item]), loss, features, 1000, CPU)


def test_chunks_are_the_largest_even_ones_that_fit() -> None:
    assert (with_margin(1000, CPU), with_margin(1000, torch.device("cuda"))) == (1500, 1250)
    # Of an odd share one chunk has three.
    for share, items, size in ((64, 64, 64), (64, 63, 32), (64, 20, 16), (64, 2, 2), (7, 3, 3)):
        whole = memory(share)
        free = whole.peak(64) - 1 if items == 63 else whole.peak(items)
        assert plan._largest_chunk(whole, free) == size
        if items == size and size < 4:
            with pytest.raises(RecipeError, match=f"{size} pairs encoded at a time"):
                plan._largest_chunk(whole, free - 1)
    with pytest.raises(RecipeError, match=r"compares all its pairs, so set train\.batch_size to less"):
        plan._largest_chunk(memory(64, loss=10**6), with_margin(10**6, CPU))


def test_a_number_of_the_recipe_is_tried_even_if_the_weights_alone_do_not_fit(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plan, "free_bytes", lambda *_: 1)
    run(recipe(chunk_size=12), scenes, tmp_path / "out")
    assert "The gradients of the weights, the optimizer and the batches that wait need" in caplog.text
    assert [format_bytes(size) for size in (3 * MIB // 2, 5 * 2**29)] == ["1.5 MiB", "2.5 GiB"]
    assert format_bytes(2**30) == "1.0 GiB"
    # The advice is on what weighs most.
    assert "train.batch_size" in plan._relief(constant=10, waiting=6)
    assert "train.lora" in plan._relief(constant=10, waiting=5)
