"""How many processes a training is shared among."""

from pathlib import Path

import pytest
import torch

from app.jobs.launch import process_count
from training.common.errors import RecipeError
from training.recipes.load import load_recipe
from training.recipes.schema import Recipe


@pytest.fixture
def recipe() -> Recipe:
    return load_recipe("demo-scenes", ["train.batch_size=12"])


def test_as_many_as_are_wanted_or_one_on_a_cpu(recipe: Recipe, tmp_path: Path) -> None:
    assert process_count(3, recipe, tmp_path, resume=False, device="cpu") == 3
    assert process_count(0, recipe, tmp_path, resume=False, device="cpu") == 1
    with pytest.raises(RecipeError):
        process_count(0, recipe, tmp_path, resume=False, device="no device")


@pytest.mark.parametrize(("gpus", "processes"), [(1, 1), (4, 4), (5, 4), (8, 6)])
def test_as_many_of_the_gpus_as_split_the_batch_evenly(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, processes: int
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert process_count(0, recipe, tmp_path, resume=False, device="auto") == processes
    assert process_count(0, recipe, tmp_path, resume=False, device="cpu") == 1


def test_one_that_torchrun_has_started_is_not_shared_again(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert process_count(2, recipe, tmp_path, resume=False, device="cpu") == 1
