"""Recipes of image classification: the settings and figures of ReCo's table 2, and what is refused."""

import re
from itertools import product
from pathlib import Path

import pytest

from training.classification.recipe import CHEXPERT_LABELS, ImageRecipe, published
from training.common.errors import RecipeError
from training.papers.load import load_classification_recipe

PAGE = Path(__file__).parents[3] / "docs" / "research" / "recipes.md"
PROTOCOLS = {"linear": (True, 1e-2), "finetune": (False, 1e-4)}
SHARES = {"1": 0.01, "10": 0.1, "100": 1.0}
ROWS = {
    "random weights, by ConVIRT": "Random Init.",
    "ImageNet, by ConVIRT": "ImageNet Init., as ConVIRT reports it",
    "ConVIRT": "ConVIRT",
    "ImageNet, by ReCo": "ImageNet Init., as ReCo reports it",
    "InfoNCE": "InfoNCE",
    "ReCo": "ReCo",
}


def image_recipe(name: str, *overrides: str) -> ImageRecipe:
    recipe = load_classification_recipe(name, overrides)
    assert isinstance(recipe, ImageRecipe)
    return recipe


@pytest.mark.parametrize(
    ("start", "protocol", "percent"), [*product(("random", "imagenet", "bundle"), PROTOCOLS, SHARES)]
)
def test_settings_and_figures_of_reco_s_paper(start: str, protocol: str, percent: str) -> None:
    recipe = image_recipe(f"chexpert-{start}-{protocol}::{percent}")
    assert (recipe.frozen, recipe.optimizer.lr) == PROTOCOLS[protocol]
    assert recipe.optimizer.tower_lr is None
    assert (recipe.data.share, recipe.data.labels) == (SHARES[percent], CHEXPERT_LABELS)
    assert (recipe.data.validation_images, recipe.data.test_split) == (5000, "val")
    assert (recipe.model is None) == (start == "bundle")
    if recipe.model is not None:
        assert recipe.model.architecture == "resnet"
        assert (recipe.model.pretrained is None) == (start == "random")
    changes = recipe.augmentation
    assert (changes.flip, changes.rotation, changes.translation) == (0.5, 20, 0.1)
    assert (changes.scale, changes.blur_kernel, changes.blur_sigma) == ((0.75, 1.25), 5, (0.1, 3.0))
    assert (changes.brightness, changes.contrast) == (0.4, 0.4)
    table = PAGE.read_text(encoding="utf-8").partition("\n### Table 2\n")[2].partition("\n### ")[0]
    figures = published(recipe)
    assert figures.keys() == ROWS.keys()
    for row, title in ROWS.items():
        line = re.search(rf"^\| {re.escape(title)} \|.*$", table, re.M)
        assert line is not None
        columns = dict(zip(PROTOCOLS, line[0].strip("| ").split("|")[-2:], strict=True))
        assert figures[row] == float(columns[protocol].split()[list(SHARES).index(percent)])


def test_the_table_has_no_row_for_other_data() -> None:
    assert published(image_recipe("labels-small-linear")) == {}
    for override in ("data.share=0.2", "data.labels=[Edema]", "data.test_split=test"):
        assert published(image_recipe("chexpert-random-linear::10", override)) == {}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.test_split=val", "the val split cannot both choose and test"),
        ("encoder=runs/bundle", "a bundle has its own model and preprocessing"),
        ("model=null", "preprocessing belongs to model"),
        ("data.lables=[a]", r"no setting data\.lables; the nearest is data\.labels"),
    ],
)
def test_wrong_settings_are_named(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        image_recipe("labels-small-linear", override)


def test_images_of_new_classifiers_are_decoded_at_a_scale_by_default() -> None:
    for name in ("chexpert-imagenet-linear::1", "labels-small-finetune"):
        for more, scaled in ([], True), (["preprocessing.scaled_decoding=false"], False):
            preprocessing = image_recipe(name, *more).preprocessing
            assert preprocessing is not None
            assert preprocessing.scaled_decoding == scaled
    assert image_recipe("labels-bundle-linear").preprocessing is None
