"""Recipes of classification and language models: all are valid, and wrong ones are named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training.recipes.shrink import first_runs
from training.common.errors import RecipeError
from training.papers.load import (
    classification_recipes,
    language_model_recipes,
    load_classification_recipe,
    load_language_recipe,
)
from training.recipes.load import dump_recipe
from training.recipes.tasks import TaskRecipe

Load = Callable[..., TaskRecipe]
CLASSIFICATION = [(load_classification_recipe, name) for name in first_runs(classification_recipes())]
LANGUAGE = [(load_language_recipe, name) for file in language_model_recipes().files for name in file.recipes]


@pytest.mark.parametrize(("load", "name"), [*CLASSIFICATION, *LANGUAGE])
def test_every_recipe_is_valid_and_written_out_loads_again(load: Load, name: str, tmp_path: Path) -> None:
    recipe = load(name)
    assert recipe.name == name.replace("::", "-")
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(recipe))
    assert load(str(path)) == recipe


@pytest.mark.parametrize(
    ("load", "name", "override", "message"),
    [
        (load_classification_recipe, "glue", "", "glue-small-.*labels-.*vqa-"),
        (load_classification_recipe, "glue-bert-base", "", r"sweep of 9 runs: .*glue-bert-base::cola"),
        (load_classification_recipe, "glue-weight::rte-3", "", "no recipe 'glue-weight::rte-3'"),
        (load_classification_recipe, "reco-cxr-small", "", "no recipe 'reco-cxr-small' of classification"),
        (load_classification_recipe, "glue-bert-base::rte", "train.epoch=3", "the nearest is train.epochs"),
        (
            load_classification_recipe,
            "glue-bert-base::rte",
            "task=glue",
            "one of labels, vqa, cola, .* 'glue'",
        ),
        (load_classification_recipe, "glue-bert-base::rte", "train.epochs", "not of the form"),
        (load_classification_recipe, "glue-bert-base::rte", "reclaim.neighbours=0", "reclaim.neighbours"),
        (load_classification_recipe, "nowhere/recipe.yaml", "", "cannot be read"),
        (load_language_recipe, "glue-bert-base::rte", "", "no recipe .* of language models; .* lm-"),
        (load_language_recipe, "lm-small::ivae", "model.refinement={steps: 2}", "has no numbers to refine"),
        (load_language_recipe, "lm-small::vae", "model.widht=3", "no setting model.widht.*width"),
        (load_language_recipe, "lm-small::vae", "kl.final=2", "kl.final"),
    ],
)
def test_wrong_recipes_are_named(load: Load, name: str, override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load(name, [override] if override else [])
