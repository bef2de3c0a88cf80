"""Training that begins with the weights of a bundle."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.runs import before_step, terminate
from tests.training.trainer.scenes import tiny_recipe, write_scenes
from training.common.errors import BundleError
from training.models.bundle import read_bundle
from training.recipes.load import load_recipe
from training.recipes.schema import Recipe
from training.trainer.loop import TrainingLoop
from training.trainer.run import TrainResult, train
from training.trainer.run_state.errors import TrainingInterruptedError


def run(recipe: Recipe, data: Path, out: Path, *, resume: bool = False) -> TrainResult:
    return train(recipe, data, out, resume=resume, device="cpu", show_progress=False)


@pytest.fixture(scope="module")
def bundle(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tiny_recipe(), scenes, tmp_path_factory.mktemp("first") / "out").bundle


def _still(bundle: Path) -> Recipe:
    """A recipe of another model and vocabulary that starts from a bundle and hardly moves."""
    recipe = tiny_recipe(start_from=str(bundle), epochs=None, steps=1)
    optimizer = recipe.optimizer.model_copy(update={"lr": 1e-12, "tower_lr": None, "weight_decay": 0.0})
    other = recipe.model.model_copy(update={"dim": 24})
    return recipe.model_copy(update={"optimizer": optimizer, "model": other})


def test_it_begins_with_the_bundles_weights_tokenizer_and_settings(bundle: Path, tmp_path: Path) -> None:
    others = write_scenes(tmp_path / "others", repeated=True)
    second = run(_still(bundle), others, tmp_path / "out").bundle
    first, after = read_bundle(bundle), read_bundle(second)
    assert after.config == first.config
    assert (second / "tokenizer.json").read_bytes() == (bundle / "tokenizer.json").read_bytes()
    before, now = (load_file(folder / "model.safetensors") for folder in (bundle, second))
    # The statistics of batch norm follow the data, whatever the learning rate.
    learned = [name for name in before if "running" not in name and "num_batches" not in name]
    assert learned
    for name in learned:
        torch.testing.assert_close(now[name], before[name], rtol=0, atol=1e-9)


def test_a_stopped_run_goes_on_and_remembers_where_it_began(
    scenes: Path, bundle: Path, tmp_path: Path
) -> None:
    recipe = tiny_recipe(start_from=str(bundle))
    straight = run(recipe, scenes, tmp_path / "straight").bundle
    with before_step(TrainingLoop, 4, terminate), pytest.raises(TrainingInterruptedError):
        run(recipe, scenes, tmp_path / "out")
    resumed = run(recipe, scenes, tmp_path / "out", resume=True).bundle
    assert read_bundle(resumed).digest == read_bundle(straight).digest
    assert load_recipe(str(tmp_path / "out" / "recipe.yaml")).train.start_from == str(bundle)


def test_a_start_that_no_epoch_improves_is_what_is_kept(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data", repeated=True)
    first = run(tiny_recipe(epochs=10, select_by="loss"), data, tmp_path / "first")
    recipe = tiny_recipe(start_from=str(first.bundle), select_by="loss")
    wrecking = recipe.optimizer.model_copy(update={"lr": 1.0, "tower_lr": None})
    second = run(recipe.model_copy(update={"optimizer": wrecking}), data, tmp_path / "second")
    lines = map(json.loads, (tmp_path / "second" / "metrics.jsonl").read_text().splitlines())
    start, *later = [line["loss"] for line in lines if line["kind"] == "validation"]
    assert len(later) == 2
    assert min(later) > start == second.metrics["loss"]
    assert read_bundle(second.bundle).digest == read_bundle(first.bundle).digest


def test_a_folder_that_is_no_bundle_is_refused(scenes: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="There is no bundle at"):
        run(tiny_recipe(start_from=str(tmp_path / "none")), scenes, tmp_path / "out")
    assert not (tmp_path / "out").exists()
