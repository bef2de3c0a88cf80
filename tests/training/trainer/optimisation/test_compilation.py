"""Compiled towers train as the others do."""

import json
import shutil
from pathlib import Path

import pytest

from tests.training.runs import before_step, terminate
from tests.training.trainer.scenes import tiny_recipe
from training.common.errors import RecipeError
from training.models.bundle import read_bundle
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.loop import TrainingLoop
from training.trainer.run import TrainResult, train
from training.trainer.run_state.errors import TrainingInterruptedError


def run(recipe: Recipe, data: Path, out: Path, *, resume: bool = False) -> TrainResult:
    return train(recipe, data, out, resume=resume, device="cpu", show_progress=False)


def test_without_a_compiler_the_run_says_what_to_install(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RecipeError, match="install g"):
        run(tiny_recipe(compile=True), scenes, tmp_path / "out")


def losses(out: Path) -> list[float]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler: apt-get install g++")
def test_compiled_towers_learn_the_same_and_resume(scenes: Path, tmp_path: Path) -> None:
    """Compiled dropout draws other numbers, so losses are compared without."""
    for name, compiled in (("plain", False), ("compiled", True)):
        tree = json.loads(tiny_recipe(compile=compiled, epochs=None, steps=3).model_dump_json())
        tree["model"]["text"]["options"]["dropout"] = 0
        run(parse_recipe(tree, name), scenes, tmp_path / name)
    expected, found = losses(tmp_path / "plain"), losses(tmp_path / "compiled")
    assert found == pytest.approx(expected, rel=1e-2)
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    recipe = tiny_recipe(compile=True)
    straight = run(recipe, scenes, tmp_path / "straight").bundle
    with before_step(TrainingLoop, 3, terminate), pytest.raises(TrainingInterruptedError):
        run(recipe, scenes, tmp_path / "stopped")
    resumed = run(recipe, scenes, tmp_path / "stopped", resume=True).bundle
    assert read_bundle(resumed).digest == read_bundle(straight).digest
