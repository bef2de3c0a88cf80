"""Recipes of classification: all are valid, and wrong ones are named."""

from pathlib import Path

import pytest

from tests.training.classification.texts.samples import text_recipe
from tests.training.recipes.shrink import first_runs
from training.classification.images.config import ImageRecipe
from training.classification.images.published import CHEXPERT_LABELS
from training.classification.load import load_classification_recipe, shipped
from training.classification.questions.config import QuestionRecipe
from training.classification.texts.config import TextRecipe
from training.classification.texts.tasks import GLUE
from training.common.errors import RecipeError
from training.recipes.load import dump_recipe


@pytest.mark.parametrize("name", first_runs(shipped()))
def test_every_recipe_is_valid_and_written_out_loads_again(name: str, tmp_path: Path) -> None:
    recipe = load_classification_recipe(name)
    assert recipe.name == name.replace("::", "-")
    if isinstance(recipe, TextRecipe):
        with_term = "reclaim" in name or name.startswith(("glue-weight", "glue-neighbours"))
        assert with_term is (recipe.reclaim is not None)
        assert recipe.task in name
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(recipe))
    assert load_classification_recipe(str(path)) == recipe


def test_settings_of_reclaim_s_paper() -> None:
    for task in GLUE:
        recipe = text_recipe(f"glue-bert-reclaim::{task}")
        assert recipe.reclaim is not None
        assert (recipe.reclaim.neighbours, recipe.reclaim.weight, recipe.reclaim.critic_width) == (
            100,
            0.1,
            64,
        )
        assert (recipe.train.batch_size, recipe.train.epochs, recipe.optimizer.lr) == (32, 3, 2e-5)
        base = text_recipe(f"glue-bert-base::{task}")
        changes = {"reclaim": None, "name": base.name, "description": base.description}
        assert recipe.model_copy(update=changes) == base
    small = text_recipe("glue-share-reclaim::cola-0.01")
    assert small.data.share == 0.01
    assert small.reclaim is not None
    assert small.reclaim.neighbours == 10


@pytest.mark.parametrize("start", ["random", "imagenet", "bundle"])
@pytest.mark.parametrize(("protocol", "frozen", "rate"), [("linear", True, 1e-2), ("finetune", False, 1e-4)])
@pytest.mark.parametrize(("percent", "share"), [("1", 0.01), ("10", 0.1), ("100", 1.0)])
def test_settings_of_reco_s_paper(
    start: str, protocol: str, frozen: bool, rate: float, percent: str, share: float
) -> None:
    recipe = load_classification_recipe(f"chexpert-{start}-{protocol}::{percent}")
    assert isinstance(recipe, ImageRecipe)
    assert (recipe.frozen, recipe.optimizer.lr, recipe.optimizer.tower_lr) == (frozen, rate, None)
    assert (recipe.data.share, recipe.data.labels) == (share, CHEXPERT_LABELS)
    assert (recipe.data.validation_images, recipe.data.test_split) == (5000, "val")
    assert (recipe.model is None) == (start == "bundle")
    if recipe.model is not None:
        assert recipe.model.architecture == "resnet"
        assert (recipe.model.pretrained is None) == (start == "random")
    changes = recipe.augmentation
    assert (changes.flip, changes.rotation, changes.translation) == (0.5, 20, 0.1)
    assert (changes.scale, changes.blur_kernel, changes.blur_sigma) == ((0.75, 1.25), 5, (0.1, 3.0))
    assert (changes.brightness, changes.contrast) == (0.4, 0.4)


def test_overrides_have_the_types_of_yaml() -> None:
    recipe = text_recipe(
        "glue-bert-reclaim::rte", ["reclaim=null", "optimizer.lr=1e-4", "model.options={hidden_size: 32}"]
    )
    assert recipe.reclaim is None
    assert recipe.optimizer.lr == 1e-4
    assert recipe.model.options == {"hidden_size": 32}


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("glue", [], "glue-small-"),
        (
            "glue-bert-base",
            [],
            r"sweep of 9 runs: .* glue-bert-base` .*glue-bert-base::cola",
        ),
        ("glue-weight::rte-3", [], "no recipe 'glue-weight::rte-3'"),
        ("reco-cxr-small", [], "no recipe 'reco-cxr-small' of classification"),
        ("glue-bert-base::rte", ["train.epoch=3"], r"no setting train\.epoch; the nearest is train\.epochs"),
        ("glue-bert-base::rte", ["task=glue"], "task is one of labels, vqa, cola, .*, not 'glue'"),
        ("glue-bert-base::rte", ["train.epochs"], "not of the form"),
        ("glue-bert-base::rte", ["reclaim.neighbours=0"], r"reclaim\.neighbours"),
        ("nowhere/recipe.yaml", [], "cannot be read"),
        ("labels-small-linear", ["data.test_split=val"], "the val split cannot both choose and test"),
        ("labels-small-linear", ["encoder=runs/bundle"], "a bundle has its own model and preprocessing"),
        ("labels-small-linear", ["model=null"], "preprocessing belongs to model"),
        ("labels-small-linear", ["data.lables=[a]"], r"no setting data\.lables; the nearest is data\.labels"),
    ],
)
def test_wrong_recipes_are_named(name: str, overrides: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_classification_recipe(name, overrides)


def test_images_of_new_classifiers_are_decoded_at_a_scale_unless_told_otherwise() -> None:
    for name in ("chexpert-imagenet-linear::1", "labels-small-finetune", "vqa-ban-base", "vqa-small-reclaim"):
        for more, scaled in ([], True), (["preprocessing.scaled_decoding=false"], False):
            recipe = load_classification_recipe(name, more)
            assert isinstance(recipe, ImageRecipe | QuestionRecipe)
            assert recipe.preprocessing is not None
            assert recipe.preprocessing.scaled_decoding == scaled
    bundle = load_classification_recipe("labels-bundle-linear")
    assert isinstance(bundle, ImageRecipe)
    assert bundle.preprocessing is None
