"""Every recipe that comes along: it resolves, its model can be built, and it trains."""

import math
import os
from pathlib import Path

import pytest
import torch

from tests.training.models.tiny import tiny_tokenizer
from tests.training.recipes.shrink import HUB_OPTIONS, first_runs, shrunk, without_downloads
from training.models.dual_encoder import build_dual_encoder
from training.objectives.base import ObjectiveContext
from training.recipes.library import shipped
from training.recipes.load import load_recipe
from training.recipes.schema import Recipe
from training.trainer.requirements import check_requirements, used_modalities
from training.trainer.run import train

# `make check-gpu` sets it to "cuda": recipes then train in bfloat16.
DEVICE = os.environ.get("RECOQUEST_TEST_DEVICE", "cpu")
RECIPES = {name: load_recipe(name) for name in first_runs(shipped())}


RUNS = [name for file in shipped().files for name in file.recipes]
# A recipe of each model.
MODELS = {repr(shipped().tree(name)["model"]): name for name in reversed(RUNS)}.values()


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_has_what_its_objective_needs(name: str) -> None:
    recipe = RECIPES[name]
    used_modalities(recipe)
    check_requirements(recipe.objective.build(context(recipe)), recipe)


@pytest.mark.parametrize("name", MODELS)
def test_model_is_built_on_no_device(name: str) -> None:
    recipe = without_downloads(load_recipe(name))
    with torch.device("meta"):
        model = build_dual_encoder(recipe.model, tiny_tokenizer(), load_pretrained=False)
    model.check_preprocessing(recipe.preprocessing)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) > 1e6 or name.startswith("demo")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_recipe_trains(name: str, items: Path, sentence_encoder: Path, tmp_path: Path) -> None:
    """Two steps at small scale end in a bundle and a finite loss."""
    recipe = shrunk(load_recipe(name), sentence_encoder)
    if DEVICE != "cpu":
        rounded = recipe.train.model_copy(update={"precision": "bf16"})
        recipe = recipe.model_copy(update={"train": rounded})
    result = train(recipe, items, tmp_path / "run", device=DEVICE, show_progress=False)
    assert (result.bundle / "model.safetensors").is_file()
    assert math.isfinite(result.metrics["loss"])


def test_every_name_on_the_hub_is_one_of_a_recipe() -> None:
    towers = [
        tower
        for recipe in RECIPES.values()
        for tower in (recipe.model.image, recipe.model.text, recipe.model.audio)
        if tower is not None and tower.pretrained is not None
    ]
    assert {tower.pretrained for tower in towers} == set(HUB_OPTIONS)


def context(recipe: Recipe) -> ObjectiveContext:
    target_dim = None if recipe.data.target_encoder is None else 768
    vocabulary = None if recipe.data.captions is None else recipe.data.captions.vocabulary_size
    return ObjectiveContext(
        recipe.model.dim,
        instances=200,
        target_dim=target_dim,
        vocabulary=vocabulary,
        labels=14,
        pair_attention=recipe.model.pair_attention,
    )
