"""A moving average of the weights is measured and kept."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.runs import before_step, terminate
from tests.training.trainer.scenes import tiny_recipe
from training.models.bundle import read_bundle
from training.recipes.schema import Recipe
from training.trainer.loop import TrainingLoop
from training.trainer.run import TrainResult, train
from training.trainer.run_state.checkpoint import load_checkpoint
from training.trainer.run_state.errors import TrainingInterruptedError


def run(recipe: Recipe, data: Path, out: Path, *, resume: bool = False) -> TrainResult:
    return train(recipe, data, out, resume=resume, device="cpu", show_progress=False)


def test_the_bundle_is_the_average_of_the_steps(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[dict[str, torch.Tensor]] = []
    step = TrainingLoop._step

    def recorded(loop: Any, batch: Any) -> None:
        if not states:
            states.append(
                {name: value.clone() for name, value in loop.problem.loss.task.model.state_dict().items()}
            )
        step(loop, batch)
        states.append(
            {name: value.clone() for name, value in loop.problem.loss.task.model.state_dict().items()}
        )

    monkeypatch.setattr(TrainingLoop, "_step", recorded)
    run(tiny_recipe(epochs=None, steps=5, ema_decay=0.3), scenes, tmp_path / "out")
    name = "image_head.1.weight"
    expected = states[0][name].double()
    for number, state in enumerate(states[1:]):
        keep = min(0.3, (1 + number) / (10 + number))
        expected = keep * expected + (1 - keep) * state[name].double()
    last = load_checkpoint(tmp_path / "out/checkpoints/last.pt").task
    torch.testing.assert_close(last[f"average.model.{name}"].double(), expected, rtol=1e-5, atol=1e-6)
    best = load_checkpoint(tmp_path / "out/checkpoints/best.pt").task
    kept = load_file(tmp_path / "out/bundle/model.safetensors")
    assert all(torch.equal(value, best[f"average.model.{key}"]) for key, value in kept.items())
    assert not torch.equal(kept[name], best[f"model.{name}"])
    statistics = [key for key in kept if "running_mean" in key]
    assert statistics
    assert all(torch.equal(kept[key], best[f"model.{key}"]) for key in statistics)


def test_a_stopped_run_goes_on_to_the_same_average(scenes: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(ema_decay=0.9)
    straight = run(recipe, scenes, tmp_path / "straight").bundle
    with before_step(TrainingLoop, 4, terminate), pytest.raises(TrainingInterruptedError):
        run(recipe, scenes, tmp_path / "out")
    resumed = run(recipe, scenes, tmp_path / "out", resume=True).bundle
    assert read_bundle(resumed).digest == read_bundle(straight).digest
