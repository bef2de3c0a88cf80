"""A grid: which runs it has, what is refused, how runs are compared, and how a killed one goes on."""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.training.trainer.optimisation.test_locked_tower import (
    TRAIN,
    TRAIN_TEXTS,
    VAL,
    VAL_TEXTS,
    heads,
    towers,
)
from tests.training.trainer.scenes import counted, tiny_recipe, write_scenes
from training.common.errors import DataError, RecipeError
from training.common.manifest import read_manifest, write_manifest
from training.recipes.load import dump_recipe
from training.recipes.schema import Recipe
from training.trainer import run as run_module
from training.trainer.run import train
from training.trainer.run_state.errors import TrainingError
from training.trainer.tune import (
    Run,
    RunResult,
    Tuning,
    _locked,
    folder_name,
    parse_grid,
    plan_runs,
    tune,
    write_tuning,
)

__all__ = ["towers"]
WEIGHT = "objective.temperature"


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    """The tiny recipe as a file."""
    return written(tiny_recipe(epochs=1), tmp_path)


def written(recipe: Recipe, folder: Path) -> str:
    path = folder / "tiny.yaml"
    path.write_text(dump_recipe(recipe))
    return str(path)


def tuned(runs: Sequence[Run], data: Path) -> Tuning:
    return tune(runs, data, device="cpu", show_progress=False)


@pytest.mark.parametrize(
    ("texts", "grid"),
    [
        (["optimizer.lr=1e-4,0.001"], {"optimizer.lr": (1e-4, 1e-3)}),
        ([" a.b = 1 , two,null,true"], {"a.b": (1, "two", None, True)}),
        (["a=[1, 2],[3]", "b={c: 1}"], {"a": ([1, 2], [3]), "b": ({"c": 1},)}),
    ],
)
def test_values_are_yaml(texts: list[str], grid: dict[str, Any]) -> None:
    assert parse_grid(texts) == grid


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ([], "Give a grid, such as --grid"),
        (["optimizer.lr"], "not of the form dotted.key=value,value"),
        (["=1,2"], "not of the form dotted.key=value,value"),
        (["optimizer.lr="], "no value of optimizer.lr: give some, such as --grid optimizer.lr=VALUE,VALUE"),
        (["optimizer.lr=1,,2"], "--grid 'optimizer.lr=1,,2' is not valid YAML"),
        (["optimizer.lr=1,2,1"], "the value 1 of optimizer.lr twice"),
        (["optimizer.lr=1", "optimizer.lr=2"], "gives optimizer.lr twice"),
        (["train.seed=1,2"], "train.seed can't be in a grid: give --seeds"),
        (["train.select_by=loss,rsum"], "can't be compared"),
    ],
)
def test_a_wrong_grid_is_refused_in_one_sentence(texts: list[str], sentence: str, recipe: str) -> None:
    with pytest.raises(RecipeError) as refused:
        plan_runs(recipe, [], parse_grid(texts), Path("out"))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("objective.temperatur", 1, "there is no setting objective.temperatur; the nearest is"),
        (WEIGHT, "hot", "objective.temperature: "),
        ("train.batch_size", 1, "train.batch_size: input should be greater than 1, not 1"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_before_any_run(
    key: str, value: object, sentence: str, recipe: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError) as refused:
        plan_runs(recipe, [], {key: (0.1, value)} if key == WEIGHT else {key: (value,)}, tmp_path / "out")
    assert sentence in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_runs_are_all_combinations_with_each_seed(recipe: str, tmp_path: Path) -> None:
    grid = {WEIGHT: (0.05, 0.1), "optimizer.betas": ([0.8, 0.9],)}
    runs = plan_runs(recipe, ["train.seed=4", "train.batch_size=7"], grid, tmp_path, seeds=2)
    assert [(run.settings[WEIGHT], run.recipe.train.seed) for run in runs] == [
        (0.05, 4),
        (0.05, 5),
        (0.1, 4),
        (0.1, 5),
    ]
    assert all(run.recipe.objective.model_dump()["temperature"] == run.settings[WEIGHT] for run in runs)
    assert {run.recipe.train.batch_size for run in runs} == {7}
    assert {run.recipe.optimizer.betas for run in runs} == {(0.8, 0.9)}
    assert len({run.folder.path for run in runs}) == 4


def test_a_folder_has_the_name_of_its_settings() -> None:
    assert folder_name({"optimizer.lr": 1e-3, "a": "auto"}) == "optimizer.lr=0.001,a=auto"
    odd = [folder_name({"a": value}) for value in ("x/y", "x_y", "x y", "é" * 300, "é" * 299 + "e", None)]
    assert len(set(odd)) == len(odd)
    assert all("/" not in name and len(name.encode()) < 200 for name in odd)
    assert odd[-1] == "a=null"


def finish(run: Run, data: Path, **result: Any) -> None:
    """Leave what a finished run leaves."""
    run.folder.path.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256((data / "manifest.jsonl").read_bytes()).hexdigest()
    kept = RunResult(recipe=run.recipe.model_dump(mode="json"), data=digest, **result)
    run.folder.write_results(kept.model_dump())


def test_finished_runs_are_compared_without_training(recipe: str, scenes: Path, tmp_path: Path) -> None:
    runs = plan_runs(recipe, [], {WEIGHT: (0.1, 0.2, 0.3, 0.4, 0.5)}, tmp_path / "out", seeds=2)
    figures = [100.0, 104.0, 103.0, 105.0, 90.0, 91.0, 300.0, None, None, None]
    for run, rsum in zip(runs, figures, strict=True):
        found: dict[str, Any] = (
            {"error": "no number"} if rsum is None else {"figures": {"rsum": rsum}, "steps": 3}
        )
        finish(run, scenes, seconds=1.5, **found)
    tuning = tuned(runs, scenes)
    assert [one.settings[WEIGHT] for one in tuning.combinations] == [0.2, 0.1, 0.3, 0.4, 0.5]
    assert [one.mean("rsum") for one in tuning.combinations] == [104.0, 102.0, 90.5, 300.0, None]
    errors = [one.standard_error("rsum") for one in tuning.combinations]
    # Deviations of 1 and -1 from the mean: sqrt(2 / 1) / sqrt(2).
    assert errors == [pytest.approx(1.0), pytest.approx(2.0), pytest.approx(0.5), None, None]
    assert [one.error for one in tuning.combinations[3:]] == [
        "1 of 2 runs: no number",
        "2 of 2 runs: no number",
    ]
    assert [tuning.behind(one) for one in tuning.combinations[:3]] == [0.0, 2.0, 13.5]
    assert tuning.within_a_standard_error() == []
    assert (tuning.runs, tuning.seconds) == (10, 15.0)
    write_tuning(tuning, tmp_path / "tune.json", recipe="tiny")
    content = json.loads((tmp_path / "tune.json").read_text())
    assert (content["recipe"], content["select_by"], content["runs"]) == ("tiny", "rsum", 10)
    best = content["combinations"][0]
    assert (best["settings"], best["figure"], best["behind_best"]) == ({WEIGHT: 0.2}, 104.0, 0.0)
    assert [(run["seed"], run["figures"]["rsum"], run["steps"]) for run in best["runs"]] == [
        (0, 103.0, 3),
        (1, 105.0, 3),
    ]


def test_what_is_close_is_told_by_the_standard_error_and_a_loss_is_better_when_lower(
    recipe: str, scenes: Path, tmp_path: Path
) -> None:
    by_loss = ["train.select_by=loss"]
    runs = plan_runs(recipe, by_loss, {WEIGHT: (0.1, 0.2, 0.3)}, tmp_path / "out", seeds=2)
    for run, loss in zip(runs, [2.0, 4.0, 3.5, 4.5, 4.0, 4.25], strict=True):
        finish(run, scenes, figures={"loss": loss})
    tuning = tuned(runs, scenes)
    assert [one.settings[WEIGHT] for one in tuning.combinations] == [0.1, 0.2, 0.3]
    assert [one.settings[WEIGHT] for one in tuning.within_a_standard_error()] == [0.2]


def test_a_folder_with_another_run_is_refused(recipe: str, scenes: Path, tmp_path: Path) -> None:
    def runs(*settings: str) -> list[Run]:
        return plan_runs(recipe, settings, {WEIGHT: (0.1,)}, tmp_path / "out")

    finish(runs()[0], scenes, figures={"rsum": 1.0})
    assert tuned(runs(), scenes).combinations[0].mean("rsum") == 1.0
    with pytest.raises(TrainingError, match=r"trained with another optimizer\.lr"):
        tuned(runs("optimizer.lr=1"), scenes)
    data = write_scenes(tmp_path / "data", val=5)
    with pytest.raises(TrainingError, match="trained with another manifest"):
        tuned(runs(), data)
    with _locked(tmp_path / "out"), pytest.raises(TrainingError, match="Another process tunes in"):
        tuned(runs(), scenes)
    write_manifest(data, [record for record in read_manifest(data).records if record.split == "train"])
    with pytest.raises(DataError, match="no validation split"):
        tuned(runs(), data)
    (runs()[0].folder.path / "results.json").write_text("{}")
    with pytest.raises(TrainingError, match="not a result of a grid"):
        tuned(runs(), scenes)


@pytest.mark.slow
def test_runs_are_those_of_a_training_by_itself_and_one_that_diverges_is_a_row(
    recipe: str, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "settled_chunk_size", lambda *_: None)
    grid = {"optimizer.lr": (1e-2, 1e30)}
    runs = plan_runs(recipe, ["optimizer.max_grad_norm=null"], grid, tmp_path / "out")
    tuning = tuned(runs, scenes)
    best, failed = tuning.combinations
    alone = train(runs[0].recipe, scenes, tmp_path / "alone", device="cpu", show_progress=False)
    assert best.settings == {"optimizer.lr": 1e-2}
    assert best.results[0].figures == alone.metrics
    assert (best.results[0].steps, best.results[0].best_step) == (3, 3)
    assert best.results[0].seconds > 0
    assert failed.error in {
        f"The {what} of step {step} is not a finite number"
        for what in ("loss", "gradient")
        for step in (1, 2, 3)
    }
    # What is left: the encoder of the best, and no checkpoints.
    assert best.runs[0].folder.bundle.is_dir()
    assert not any(run.folder.checkpoints.exists() for run in runs)
    monkeypatch.delattr("training.trainer.tune.train")
    assert tuned(runs, scenes) == tuning


def test_what_every_run_lacks_is_an_error_and_what_one_lacks_a_row_that_is_tried_again(
    recipe: str, scenes: Path, tmp_path: Path
) -> None:
    # More images than the train split has.
    runs = plan_runs(recipe, [], {"train.batch_size": (4, 400)}, tmp_path / "out")
    with pytest.raises(DataError):
        tuned(runs[1:], scenes)
    finish(runs[0], scenes, figures={"rsum": 1.0})
    best, failed = tuned(runs, scenes).combinations
    assert (best.error, failed.settings) == ("", {"train.batch_size": 400})
    assert "400" in failed.error
    assert not (failed.runs[0].folder.path / "results.json").exists()


@pytest.mark.slow
def test_heads_have_their_towers_encode_once_for_all_runs(
    towers: Path, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "settled_chunk_size", lambda *_: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    recipe = written(heads(towers, data={"cache_images": True}), tmp_path)
    runs = plan_runs(recipe, [], {WEIGHT: (0.05, 0.1, 0.2)}, tmp_path / "out")
    with counted() as passes:
        together = tuned(runs, scenes)
    sums = {kind: sum(sizes) for kind, sizes in passes.items()}
    assert sums == {"images": TRAIN + VAL, "texts": TRAIN_TEXTS + VAL_TEXTS}
    alone = train(runs[2].recipe, scenes, tmp_path / "alone", device="cpu", show_progress=False)
    (last,) = [one for one in together.combinations if one.settings == {WEIGHT: 0.2}]
    assert last.results[0].figures == alone.metrics


KILLED = """
import sys
from pathlib import Path
from training.trainer.tune import plan_runs, tune

recipe, data, out = sys.argv[1:]
runs = plan_runs(recipe, [], {"objective.temperature": (0.05, 0.1)}, Path(out))
tune(runs, Path(data), device="cpu", show_progress=False)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_grid_goes_on_where_it_was(scenes: Path, tmp_path: Path) -> None:
    recipe = written(tiny_recipe(epochs=12, checkpoint_minutes=0, evaluate_every_epochs=6), tmp_path)
    out = tmp_path / "out"
    runs = plan_runs(recipe, [], {WEIGHT: (0.05, 0.1)}, out)
    process = subprocess.Popen([sys.executable, "-c", KILLED, recipe, str(scenes), str(out)])
    second = runs[1].folder.path / "metrics.jsonl"
    deadline = time.monotonic() + 120
    try:
        while not (second.is_file() and len(second.read_bytes().splitlines()) > 5):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    before = (runs[0].folder.path / "results.json").read_bytes()
    assert not (runs[1].folder.path / "results.json").exists()
    tuning = tuned(runs, scenes)
    assert (runs[0].folder.path / "results.json").read_bytes() == before
    lines = [json.loads(line) for line in second.read_text().splitlines()]
    steps = [line["step"] for line in lines if line["kind"] == "train"]
    assert steps == list(range(1, 37))
    straight = train(runs[1].recipe, scenes, tmp_path / "straight", device="cpu", show_progress=False)
    found = {json.dumps(one.settings): one.results[0].figures for one in tuning.combinations}
    assert found[json.dumps({WEIGHT: 0.1})] == straight.metrics
