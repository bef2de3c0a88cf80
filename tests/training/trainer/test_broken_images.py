"""Runs on data with broken and missing images, which are counted and named, and stop a run if many."""

from pathlib import Path

import pytest

from tests.training.trainer.scenes import tiny_recipe, write_scenes
from training.common.errors import DataError
from training.common.manifest import read_manifest
from training.recipes.schema import Recipe
from training.trainer.run import TrainResult, train
from training.trainer.run_state.checkpoint import load_checkpoint


def run(recipe: Recipe, data: Path, out: Path) -> TrainResult:
    return train(recipe, data, out, device="cpu", show_progress=False)


def test_broken_images_are_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = write_scenes(tmp_path / "data")
    (data / "images/3.png").write_bytes(b"not an image")
    (data / "images/5.png").unlink()
    recipe = tiny_recipe()
    lenient = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_rejected": 0.2})})
    result = run(lenient, data, tmp_path / "out")
    assert sorted(rejection.line for rejection in result.rejections) == [4, 6]
    assert result.rejected == 2
    assert "images/3.png" in caplog.text


def test_missing_and_broken_images_count_together(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data")
    total = len(read_manifest(data).records)
    recipe = tiny_recipe()
    one = recipe.model_copy(
        update={"data": recipe.data.model_copy(update={"max_rejected": 1.5 / total, "cache_images": True})}
    )
    (data / "images/3.png").unlink()
    assert read_manifest(data, max_rejected=1.5 / total).rejections.items[0].line == 4
    (data / "images/5.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=f"1 of {total} lines and 1 of ") as stopped:
        run(one, data, tmp_path / "out")
    assert [note.split(":")[0] for note in stopped.value.__notes__] == ["Line 4", "Line 6"]


def test_broken_images_of_the_validation_split_are_named_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_scenes(tmp_path / "data", val=5)
    (data / "images/15.png").write_bytes(b"not an image")
    recipe = tiny_recipe(select_by="loss", batch_size=5)
    lenient = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_rejected": 0.2})})
    result = run(lenient, data, tmp_path / "out")
    assert [rejection.line for rejection in result.rejections] == [16]
    assert "1 of 5 lines of the validation split" in caplog.text
    assert "images/15.png" in caplog.text


def test_too_many_broken_images_stop_the_run_before_it_writes_anything(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data")
    (data / "images/3.png").write_bytes(b"not an image")
    recipe = tiny_recipe()
    strict = recipe.model_copy(update={"data": recipe.data.model_copy(update={"max_rejected": 0.01})})
    with pytest.raises(DataError, match=r"images/3\.png"):
        run(strict, data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_batch_of_which_one_item_is_left_stops_a_run_that_could_not_normalise_it(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data", train=4)
    (data / "images/3.png").write_bytes(b"not an image")
    recipe = tiny_recipe(batch_size=2)
    changes = {"max_rejected": 0.9, "cache_images": False}
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update=changes)})
    with pytest.raises(DataError, match=r"Fewer than two items .* data\.cache_images to true"):
        run(recipe, data, tmp_path / "out")
    assert load_checkpoint(tmp_path / "out/checkpoints/last.pt").position.step < 2
