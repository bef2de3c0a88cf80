"""Whole runs: what they leave, how they stop, and that a resumed run equals one that never stopped."""

import os
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from tests.training.runs import assert_same, assert_same_checkpoints, before_step, lines, terminate
from tests.training.trainer.scenes import tiny_recipe, write_scenes
from training.common.errors import RecipeError, RecoquestError
from training.common.manifest import Record, read_manifest, write_manifest
from training.data import prepared_rows
from training.models.bundle import read_bundle
from training.models.encoder import Encoder, load_encoder
from training.models.image_input import Pixels
from training.objectives.base import LossOutput
from training.recipes.load import load_recipe, parse_recipe
from training.recipes.schema import Recipe
from training.trainer import run as run_module
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch
from training.trainer.loop import TrainingLoop
from training.trainer.run import TrainResult, train
from training.trainer.run_state.checkpoint import load_checkpoint, save_checkpoint
from training.trainer.run_state.errors import TrainingError, TrainingInterruptedError
from training.trainer.setup import with_temperature

BATCHES_PER_EPOCH = 3


def run(recipe: Recipe, data: Path, out: Path, *, resume: bool = False) -> TrainResult:
    return train(recipe, data, out, resume=resume, device="cpu", show_progress=False)


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int, number: int = signal.SIGTERM) -> None:
    """Send this process a signal in the middle of the step with this number, from 1."""
    original: Callable[..., LossOutput] = TrainingLoop._step

    def step_and_signal(loop: Any, batch: Any) -> None:
        if loop.position.step + 1 == step:
            os.kill(os.getpid(), number)
        original(loop, batch)

    monkeypatch.setattr(TrainingLoop, "_step", step_and_signal)


@pytest.fixture(scope="module")
def straight(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps, two epochs, that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(tiny_recipe(), scenes, out)
    return out


_FAST = ((signal.SIGTERM, 1), (signal.SIGINT, BATCHES_PER_EPOCH))


@pytest.mark.parametrize(
    ("number", "step"),
    [
        pytest.param(number, step, marks=() if (number, step) in _FAST else pytest.mark.slow)
        for number in (signal.SIGTERM, signal.SIGINT)
        for step in (1, 2, BATCHES_PER_EPOCH, 4)
    ],
)
def test_resumed_run_is_bit_equal(
    scenes: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, number: int
) -> None:
    recipe, out = tiny_recipe(), tmp_path / "out"
    with monkeypatch.context() as patch:
        stop_after(patch, step, number)
        with pytest.raises(TrainingInterruptedError, match=f"after step {step} of 6.*--resume") as stopped:
            run(recipe, scenes, out)
    assert stopped.value.received == number
    assert load_checkpoint(out / "checkpoints/last.pt").position.step == step
    assert not (out / "bundle").exists()
    torch.manual_seed(99)
    run(recipe, scenes, out, resume=True)
    for name in ("last.pt", "best.pt"):
        ours, theirs = (load_checkpoint(folder / "checkpoints" / name) for folder in (out, straight))
        assert_same(vars(ours), vars(theirs))
    assert read_bundle(out / "bundle").digest == read_bundle(straight / "bundle").digest
    steps = [(line["kind"], line["step"]) for line in lines(out)]
    assert steps == [(line["kind"], line["step"]) for line in lines(straight)]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_validation_is_in_the_precision_of_the_run(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    measured: list[bool] = []
    embed = Encoder.embed_images

    def noted(encoder: Encoder, images: Pixels) -> NDArray[np.float32]:
        measured.append(encoder.in_bfloat16)
        return embed(encoder, images)

    monkeypatch.setattr(Encoder, "embed_images", noted)
    run(tiny_recipe(precision=precision, epochs=None, steps=1), scenes, tmp_path / "out")
    assert set(measured) == {precision == "bf16"}


def test_an_epoch_of_texts_is_resumed_bit_equal(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch has seven batches: 14 images with two texts each, by four."""
    tree = tiny_recipe(epochs=1).model_dump(mode="json")
    tree["data"]["epoch_of"] = "texts"
    recipe = parse_recipe(tree, "The recipe of texts")
    run(recipe, scenes, tmp_path / "straight")
    with monkeypatch.context() as patch:
        stop_after(patch, 5)
        with pytest.raises(TrainingInterruptedError, match="after step 5 of 7"):
            run(recipe, scenes, tmp_path / "out")
    run(recipe, scenes, tmp_path / "out", resume=True)
    ours, theirs = (load_checkpoint(tmp_path / name / "checkpoints/last.pt") for name in ("out", "straight"))
    assert_same(vars(ours), vars(theirs))


def test_killed_run_goes_on_from_its_last_checkpoint(
    scenes: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a chance to save: steps after the last checkpoint are done and logged again, not doubled."""
    out = tmp_path / "out"
    original: Callable[..., LossOutput] = TrainingLoop._step

    def die(loop: Any, batch: Any) -> None:
        original(loop, batch)
        if loop.position.step == 4:
            raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", die)
        with pytest.raises(MemoryError):
            run(tiny_recipe(), scenes, out)
    assert load_checkpoint(out / "checkpoints/last.pt").position.step == BATCHES_PER_EPOCH
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "ki')
    run(tiny_recipe(), scenes, out, resume=True)
    ours, theirs = (load_checkpoint(folder / "checkpoints/last.pt") for folder in (out, straight))
    assert_same(vars(ours), vars(theirs))
    assert [line["step"] for line in lines(out)] == [line["step"] for line in lines(straight)]


def test_a_line_says_how_many_steps_it_is_of(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fourth step and the last: the first line of a run that went on behind step 3 is of one step."""
    recipe = tiny_recipe(log_every_steps=4)
    run(recipe, scenes, tmp_path / "straight")
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(TrainingInterruptedError):
            run(recipe, scenes, tmp_path / "out")
    run(recipe, scenes, tmp_path / "out", resume=True)
    for folder, expected in (("straight", [(4, 4), (6, 2)]), ("out", [(4, 1), (6, 2)])):
        training = [line for line in lines(tmp_path / folder) if line["kind"] == "train"]
        assert [(line["step"], line["averaged_steps"]) for line in training] == expected


def test_another_seed_gives_other_weights(scenes: Path, straight: Path, tmp_path: Path) -> None:
    run(tiny_recipe(seed=1), scenes, tmp_path / "out")
    assert read_bundle(tmp_path / "out/bundle").digest != read_bundle(straight / "bundle").digest


def test_what_a_run_leaves(scenes: Path, straight: Path) -> None:
    bundle = read_bundle(straight / "bundle")
    assert bundle.name == "tiny"
    validations = [line for line in lines(straight) if line["kind"] == "validation"]
    assert [line["step"] for line in validations] == [3, 6]
    assert bundle.metrics["rsum"] == max(line["rsum"] for line in validations)
    assert load_recipe(str(straight / "recipe.yaml")) == with_temperature(tiny_recipe(chunk_size=None))
    training = [line for line in lines(straight) if line["kind"] == "train"]
    assert [line["step"] for line in training] == [1, 2, 3, 4, 5, 6]
    assert {"loss", "temperature", "learning_rate", "samples_per_second"} <= training[0].keys()
    assert list((straight / "tensorboard").iterdir())
    vectors = load_encoder(straight / "bundle", "cpu").embed_texts(["a red square"]).vectors
    assert vectors.shape == (1, 8)


def test_best_checkpoint_is_the_best_and_not_the_last(scenes: Path, straight: Path) -> None:
    validations = [line for line in lines(straight) if line["kind"] == "validation"]
    best = max(validations, key=lambda line: float(line["rsum"]))
    assert load_checkpoint(straight / "checkpoints/best.pt").position.step == best["step"]


def test_resuming_a_finished_run_changes_nothing(scenes: Path, straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(straight, out)
    result = run(tiny_recipe(), scenes, out, resume=True)
    assert read_bundle(result.bundle).digest == read_bundle(straight / "bundle").digest
    assert lines(out) == lines(straight)


def test_figures_of_a_bundle_belong_to_its_weights(scenes: Path, straight: Path, tmp_path: Path) -> None:
    """A run killed between its best and its last checkpoint may not find the same best again on a GPU."""
    out = tmp_path / "out"
    shutil.copytree(straight, out)
    best = out / "checkpoints/best.pt"
    save_checkpoint(best, replace(load_checkpoint(best), metrics={"rsum": 1.5}))
    result = run(tiny_recipe(), scenes, out, resume=True)
    assert result.metrics == read_bundle(result.bundle).metrics == {"rsum": 1.5}


def test_refuses_a_folder_with_something_in_it(scenes: Path, straight: Path) -> None:
    with pytest.raises(TrainingError, match=r"is not empty.*--resume"):
        run(tiny_recipe(), scenes, straight)


def test_refuses_to_resume_nothing(scenes: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no run to resume"):
        run(tiny_recipe(), scenes, tmp_path / "out", resume=True)


def test_refuses_to_resume_with_another_recipe(scenes: Path, straight: Path) -> None:
    with pytest.raises(TrainingError, match=r"another train\.batch_size"):
        run(tiny_recipe(batch_size=5), scenes, straight, resume=True)


def test_resumes_with_a_recipe_that_was_only_reworded(scenes: Path, straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(straight, out)
    reworded = tiny_recipe().model_copy(update={"description": "Other words.", "source": "A book."})
    result = run(reworded, scenes, out, resume=True)
    assert read_bundle(result.bundle).digest == read_bundle(straight / "bundle").digest


def test_refuses_to_resume_with_other_data(straight: Path, tmp_path: Path) -> None:
    other = write_scenes(tmp_path / "other", train=15)
    with pytest.raises(TrainingError, match="data or the encoder are not those"):
        run(tiny_recipe(), other, straight, resume=True)


def test_refuses_a_damaged_checkpoint(scenes: Path, straight: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(straight, out)
    path = out / "checkpoints/last.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(TrainingError, match="cannot be read"):
        run(tiny_recipe(), scenes, out, resume=True)


@pytest.mark.parametrize("damage", ["cut", "other model", "other data"])
def test_refuses_a_best_checkpoint_that_it_could_not_use_before_it_goes_on(
    scenes: Path, straight: Path, tmp_path: Path, damage: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(straight, out)
    best = out / "checkpoints/best.pt"
    if damage == "cut":
        best.write_bytes(best.read_bytes()[:1000])
    elif damage == "other model":
        save_checkpoint(best, replace(load_checkpoint(best), task={}))
    else:
        save_checkpoint(best, replace(load_checkpoint(best), data="other"))
    before = read_bundle(out / "bundle").digest
    with pytest.raises(TrainingError, match=r"best\.pt.* start the run anew\.$"):
        run(tiny_recipe(), scenes, out, resume=True)
    assert read_bundle(out / "bundle").digest == before


def test_loss_that_is_no_number_stops_the_run_and_keeps_the_checkpoint(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., LossOutput] = BatchLoss.backward

    def poisoned(loss: BatchLoss, batch: Batch, step: int) -> LossOutput:
        output = original(loss, batch, step)
        return replace(output, total=output.total * float("nan")) if step == 4 else output

    monkeypatch.setattr(BatchLoss, "backward", poisoned)
    out = tmp_path / "out"
    with pytest.raises(TrainingError, match="loss of step 5 is not a finite number"):
        run(tiny_recipe(checkpoint_minutes=0), scenes, out)
    checkpoint = load_checkpoint(out / "checkpoints/last.pt")
    assert checkpoint.position.step == 4
    floats = [value for value in checkpoint.task.values() if value.is_floating_point()]
    assert all(torch.isfinite(value).all() for value in floats)


def test_gradient_that_is_no_number_stops_the_run_before_it_reaches_the_weights(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[..., LossOutput] = BatchLoss.backward

    def poisoned(loss: BatchLoss, batch: Batch, step: int) -> LossOutput:
        output = original(loss, batch, step)
        if step == 2:
            gradient = next(p.grad for p in loss.task.parameters() if p.grad is not None)
            gradient.fill_(float("inf"))
        return output

    monkeypatch.setattr(BatchLoss, "backward", poisoned)
    out = tmp_path / "out"
    with pytest.raises(TrainingError, match=r"gradient of step 3 is not a finite number.*optimizer\.lr"):
        run(tiny_recipe(checkpoint_minutes=0), scenes, out)
    checkpoint = load_checkpoint(out / "checkpoints/last.pt")
    assert checkpoint.position.step == 2
    floats = [value for value in checkpoint.task.values() if value.is_floating_point()]
    assert all(torch.isfinite(value).all() for value in floats)


def test_selects_by_validation_loss(scenes: Path, tmp_path: Path) -> None:
    result = run(tiny_recipe(select_by="loss", epochs=3), scenes, tmp_path / "out")
    losses = [line["loss"] for line in lines(tmp_path / "out") if line["kind"] == "validation"]
    assert len(losses) == 3
    assert result.metrics["loss"] == min(losses)


def test_steps_may_end_a_run_in_the_middle_of_an_epoch(scenes: Path, tmp_path: Path) -> None:
    run(tiny_recipe(epochs=None, steps=4, evaluate_every_epochs=5), scenes, tmp_path / "out")
    assert [line["step"] for line in lines(tmp_path / "out") if line["kind"] == "validation"] == [4]


def test_without_a_validation_split_the_last_weights_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_scenes(tmp_path / "data", val=0)
    result = run(tiny_recipe(), data, tmp_path / "out")
    assert "no validation split" in caplog.text
    assert result.metrics == {}
    last = load_checkpoint(tmp_path / "out/checkpoints/last.pt")
    assert last.position.step == 2 * BATCHES_PER_EPOCH
    weights = load_file(result.bundle / "model.safetensors")
    assert_same(weights, {name: last.task[f"model.{name}"] for name in weights})
    assert read_bundle(result.bundle).metrics == {}


def with_images(cache: str) -> Recipe:
    recipe = tiny_recipe()
    data = recipe.data.model_copy(update={"cache_images": cache != "none"})
    return recipe.model_copy(update={"data": data})


@pytest.mark.parametrize("cache", ["memory", "disk", "none"])
def test_images_from_memory_disk_and_files_train_the_same_model(
    scenes: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if cache == "disk":
        monkeypatch.setattr(prepared_rows, "_FEW", 0)
    run(with_images(cache), scenes, tmp_path / "out")
    assert (tmp_path / "cache").exists() == (cache == "disk")
    assert read_bundle(tmp_path / "out/bundle").digest == read_bundle(straight / "bundle").digest
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_a_run_is_resumed_bit_equal_from_the_disk(
    scenes: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with before_step(TrainingLoop, 3, terminate), pytest.raises(TrainingInterruptedError):
        run(with_images("none"), scenes, tmp_path / "out")
    monkeypatch.setattr(prepared_rows, "_FEW", 0)
    run(tiny_recipe(), scenes, tmp_path / "out", resume=True)
    assert (tmp_path / "cache").exists()
    assert_same_checkpoints(tmp_path / "out", straight)


def test_figure_that_the_validation_split_cannot_give_is_refused_before_any_work(tmp_path: Path) -> None:
    data = write_scenes(tmp_path / "data")
    records = read_manifest(data).records
    silent = [
        Record(id=r.id, image=r.image, split=r.split, texts=r.texts if r.split == "train" else ())
        for r in records
    ]
    write_manifest(data, silent)
    with pytest.raises(RecipeError, match="no texts"):
        run(tiny_recipe(), data, tmp_path / "out")
    with pytest.raises(RecipeError, match="no labels"):
        run(tiny_recipe(select_by="precision_at_10"), data, tmp_path / "other")


def test_full_disk_is_a_plain_sentence(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RecoquestError, match=r"cannot be written.*No space left"):
        run(tiny_recipe(), scenes, tmp_path / "out")


def test_bundle_does_not_need_the_run(scenes: Path, straight: Path, tmp_path: Path) -> None:
    shutil.copytree(straight / "bundle", tmp_path / "bundle")
    assert load_encoder(tmp_path / "bundle", "cpu").dim == 8
    assert run_module.TrainResult(tmp_path, {}).rejected == 0
