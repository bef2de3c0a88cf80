"""Recipes of text classification: all are valid, and wrong ones are named."""

from pathlib import Path

import pytest

from training.classification.load import (
    load_classification_recipe,
    shipped,
)
from training.classification.texts.tasks import GLUE
from training.errors import RecipeError
from training.recipes.library import RecipeFile
from training.recipes.load import dump_recipe


@pytest.mark.parametrize("file", shipped().files, ids=[file.pattern for file in shipped().files])
def test_every_recipe_is_valid_and_written_out_loads_again(file: RecipeFile, tmp_path: Path) -> None:
    for name in file.recipes:
        recipe = load_classification_recipe(name)
        assert recipe.name == name
        assert ("reclaim" in name) is (recipe.reclaim is not None)
        assert recipe.task in name
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(recipe))
    assert load_classification_recipe(str(path)) == recipe


def test_settings_of_the_paper() -> None:
    for task in GLUE:
        recipe = load_classification_recipe(f"glue-{task}-bert-reclaim")
        assert recipe.reclaim is not None
        assert (recipe.reclaim.neighbours, recipe.reclaim.weight, recipe.reclaim.critic_width) == (
            100,
            0.1,
            64,
        )
        assert (recipe.train.batch_size, recipe.train.epochs, recipe.optimizer.lr) == (32, 3, 2e-5)
        base = load_classification_recipe(f"glue-{task}-bert-base")
        changes = {"reclaim": None, "name": base.name, "description": base.description}
        assert recipe.model_copy(update=changes) == base
    small = load_classification_recipe("glue-cola-reclaim-share-0.01")
    assert small.data.share == 0.01
    assert small.reclaim is not None
    assert small.reclaim.neighbours == 10


def test_overrides_have_the_types_of_yaml() -> None:
    recipe = load_classification_recipe(
        "glue-rte-bert-reclaim", ["reclaim=null", "optimizer.lr=1e-4", "model.options={hidden_size: 32}"]
    )
    assert recipe.reclaim is None
    assert recipe.optimizer.lr == 1e-4
    assert recipe.model.options == {"hidden_size": 32}


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("glue", [], "glue-small-"),
        ("reco-cxr-small", [], "no recipe 'reco-cxr-small' of text classification"),
        ("glue-rte-bert-base", ["train.epoch=3"], r"no setting train\.epoch"),
        ("glue-rte-bert-base", ["task=glue"], "task: input should be 'cola'"),
        ("glue-rte-bert-base", ["train.epochs"], "not of the form"),
        ("glue-rte-bert-base", ["reclaim.neighbours=0"], r"reclaim\.neighbours"),
        ("nowhere/recipe.yaml", [], "cannot be read"),
    ],
)
def test_wrong_recipes_are_named(name: str, overrides: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_classification_recipe(name, overrides)
