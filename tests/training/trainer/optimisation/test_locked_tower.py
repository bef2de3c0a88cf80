"""Runs with a locked image tower: each image passes it once, and the result is that of any other run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook
from transformers import ResNetConfig, ResNetModel

from tests.training.models.tiny import image_tower, tiny_model
from tests.training.runs import assert_same_checkpoints, before_step, lines, terminate
from tests.training.trainer.scenes import tiny_recipe
from training.models.config import ImagePreprocessingConfig
from training.models.image_towers import ImageTower
from training.models.preprocessing import ImagePreprocessing
from training.recipes.load import parse_recipe
from training.recipes.schema import Recipe
from training.trainer.loop import TrainingLoop
from training.trainer.optimisation.locked_tower import LockedTower
from training.trainer.run import TrainResult, train
from training.trainer.run_state.errors import TrainingInterruptedError

TRAIN, VAL, BATCH, BATCHES = 14, 6, 4, 3
UNCHANGED: dict[str, Any] = {"flip": 0.0, "rotation": 0.0, "brightness": 0.0, "blur_kernel": 0}


def run(recipe: Recipe, data: Path, out: Path, *, resume: bool = False) -> TrainResult:
    return train(recipe, data, out, resume=resume, device="cpu", show_progress=False)


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pretrained image tower with batch norm."""
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic")
    folder = tmp_path_factory.mktemp("tower")
    model = ResNetModel(config)
    for name, value in model.named_buffers():
        if name.endswith("running_mean"):
            torch.nn.init.normal_(value, std=0.1)
    model.save_pretrained(folder)
    return folder


def locked_recipe(
    tower: Path,
    augmentation: float = 0.0,
    pooling: str = "tower",
    cache_images: bool | str = "memory",
    **train: Any,
) -> Recipe:
    tree: dict[str, Any] = tiny_recipe(**train).model_dump(mode="json")
    tree["data"] |= {"cache_images": cache_images}
    locked = {"pretrained": str(tower), "options": {}, "frozen_layers": "all", "pooling": pooling}
    tree["model"]["image"] |= locked
    tree["augmentation"] |= UNCHANGED | {"flip": augmentation}
    return parse_recipe(tree, "A recipe")


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the trial before the first step, which encodes made images."""
    monkeypatch.setattr("training.trainer.run.settled_chunk_size", lambda *_: None)


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many images each forward pass of an image tower gets."""
    passes: list[int] = []

    def count(module: torch.nn.Module, given: tuple[Tensor, ...], _: object) -> None:
        if isinstance(module, ImageTower):
            passes.append(len(given[0]))

    handle = register_module_forward_hook(count)
    try:
        yield passes
    finally:
        handle.remove()


@pytest.fixture(scope="module")
def straight(tower: Path, scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    run(locked_recipe(tower), scenes, out)
    return out


@pytest.mark.parametrize("select_by", ["rsum", pytest.param("loss", marks=pytest.mark.slow)])
def test_each_image_passes_the_tower_once(tower: Path, scenes: Path, tmp_path: Path, select_by: str) -> None:
    with counted() as passes:
        run(locked_recipe(tower, select_by=select_by, epochs=2), scenes, tmp_path / "out")
    # The features for the loss and for the search of the validation split are made apart.
    assert sum(passes) == TRAIN + VAL * (1 + (select_by == "loss"))


def test_the_result_is_that_of_a_run_that_encodes_each_image_in_every_step(
    tower: Path, scenes: Path, straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.trainer.run.locked_towers", lambda *_: (None, None))
    with counted() as passes:
        run(locked_recipe(tower), scenes, tmp_path / "out")
    assert sum(passes) == 2 * (BATCHES * BATCH + VAL)
    ours, theirs = (load_file(out / "bundle/model.safetensors") for out in (straight, tmp_path / "out"))
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-5, atol=1e-6)
    for one, other in zip(lines(straight), lines(tmp_path / "out"), strict=True):
        assert one.keys() == other.keys()
        for name in other.keys() - {"kind", "samples_per_second"}:
            assert one[name] == pytest.approx(other[name], rel=1e-4)


def test_a_resumed_run_is_bit_equal(tower: Path, scenes: Path, straight: Path, tmp_path: Path) -> None:
    with before_step(TrainingLoop, 3, terminate), pytest.raises(TrainingInterruptedError):
        run(locked_recipe(tower), scenes, tmp_path / "out")
    with counted() as passes:
        run(locked_recipe(tower), scenes, tmp_path / "out", resume=True)
    assert sum(passes) == TRAIN + VAL
    assert_same_checkpoints(tmp_path / "out", straight)


def test_later_runs_find_the_features_of_the_same_weights_on_the_disk(
    tower: Path, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, expected in (("one", TRAIN), ("two", 0)):
        with counted() as passes:
            run(locked_recipe(tower, cache_images=True), scenes, tmp_path / name)
        assert sum(passes) == expected + VAL
    assert_same_checkpoints(tmp_path / "two", tmp_path / "one")


def test_features_of_other_weights_are_others() -> None:
    fabric, image = Fabric(accelerator="cpu"), ImagePreprocessing(ImagePreprocessingConfig(size=16))
    tower = image_tower(tiny_model())
    first = LockedTower(tower, image, fabric, "fp32")
    assert LockedTower(tower, image, fabric, "fp32").key == first.key
    assert LockedTower(tower, image, fabric, "bf16").key != first.key
    torch.nn.init.normal_(next(tower.parameters()).detach())
    assert LockedTower(tower, image, fabric, "fp32").key != first.key


@pytest.mark.parametrize(
    "changes",
    [
        {"augmentation": 0.5},
        pytest.param({"pooling": "attention"}, marks=pytest.mark.slow),
        pytest.param({"epochs": None, "steps": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_tower_that_gives_other_features_in_every_step_is_not_cached(
    tower: Path, scenes: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    with counted() as passes:
        run(locked_recipe(tower, **changes), scenes, tmp_path / "out")
    assert passes[:2] == [BATCH, BATCH]
