"""`recoquest tune`: what it prints and refuses."""

import json
from pathlib import Path

import pytest

from tests.app.commands import plain_output, run_command
from tests.training.trainer.scenes import tiny_recipe, write_scenes
from tests.training.trainer.test_tune import finish
from training.common.errors import RecipeError
from training.recipes.load import dump_recipe
from training.trainer.tune import plan_runs

KEY = "objective.temperature"


@pytest.fixture(autouse=True)
def wide_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("data") / "scenes")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """The tiny recipe, which says what it was tuned with."""
    path = tmp_path / "tiny.yaml"
    path.write_text(
        f"{dump_recipe(tiny_recipe())}".replace("tuned: null", f"tuned: {{grid: {{{KEY}: [0.1, 0.2]}}}}")
    )
    return path


def test_the_table_has_the_best_first_and_says_what_it_is_worth(
    recipe: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    runs = plan_runs(str(recipe), [], {KEY: (0.1, 0.2)}, out, seeds=2)
    for run, rsum in zip(runs, [10.0, 12.0, 12.0, 12.5], strict=True):
        finish(run, data, figures={"rsum": rsum, "precision_at_10": 5.0}, steps=70, best_step=35, seconds=2.0)
    command = ("tune", recipe, "--data", data, "--out", out, "--device", "cpu")
    # The grid that the recipe names.
    printed = plain_output(run_command(*command, "--seeds", 2))
    assert printed.index("0.2 ┃" if "0.2 ┃" in printed else "0.2 12.25 0.25 5 35, 35 70 4") < printed.index(
        "0.1 11 1 5"
    )
    assert "4 runs, 8 seconds" in printed
    assert "optimistic" in printed
    assert "The next is behind by 1.25. Within the standard error of the best, 0.25: none of them." in printed
    assert f"recoquest evaluate {runs[2].folder.bundle} --data {data} --split test" in printed
    content = json.loads((out / "tune.json").read_text())
    assert (content["seeds"], content["grid"], content["set"]) == ([0, 1], {KEY: [0.1, 0.2]}, [])
    assert [one["figure"] for one in content["combinations"]] == [12.25, 11.0]
    # A single seed says nothing about chance, and a failed run is a row.
    finish(runs[2], data, error="The loss of step 3 is not a finite number")
    printed = plain_output(run_command(*command, "--grid", f"{KEY}=0.2,0.1"))
    assert "standard error" not in printed
    assert "The loss of step 3 is not a finite number" in printed
    assert "The best of 2 combinations" in printed


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        (
            "objective.temperatur=1",
            "there is no setting objective.temperatur; the nearest is objective.temperature",
        ),
        ("objective.temperature=-1", "objective.temperature"),
        ("optimizer.lr=", "has no value of optimizer.lr"),
    ],
)
def test_a_wrong_grid_is_one_sentence_before_any_training(
    grid: str, sentence: str, data: Path, tmp_path: Path
) -> None:
    command = ("tune", "demo-scenes", "--data", data, "--out", tmp_path / "out", "--grid", grid)
    refused = run_command(*command, code=1)
    assert isinstance(refused.exception, RecipeError)
    assert sentence in str(refused.exception)
    assert not (tmp_path / "out").exists()


def test_a_recipe_without_a_grid_needs_one(tmp_path: Path) -> None:
    refused = run_command("tune", "demo-scenes", "--data", tmp_path, "--out", tmp_path / "out", code=1)
    assert "Give a grid, such as --grid" in str(refused.exception)
