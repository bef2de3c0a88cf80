"""Every recipe of image classification: it resolves, its model can be built, and it trains."""

import math
from pathlib import Path

import pytest
import torch

from tests.training.classification.images.samples import write_squares
from tests.training.models.tiny import IMAGE_OPTIONS, tiny_model, tiny_preprocessing
from tests.training.recipes.shrink import HUB_OPTIONS
from training.classification.images.config import ImageRecipe
from training.classification.images.model import ImageClassifier, build_start
from training.classification.images.run import classify_images
from training.classification.load import load_classification_recipe, shipped
from training.models.bundle import save_bundle
from training.recipes.load import parse_as
from training.tasks.opening import RunOptions

RECIPES = {
    name: recipe
    for file in shipped().files
    for name in file.recipes
    if isinstance(recipe := load_classification_recipe(name), ImageRecipe)
}
# Shares and lengths are numbers; what else recipes do is in these.
KINDS = [name for name in RECIPES if not name.endswith(("::1", "::100"))]
REST = [name for name in RECIPES if name not in KINDS]


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_squares(tmp_path_factory.mktemp("every") / "data", train=40, val=8, test=8)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("every") / "bundle"
    save_bundle(
        folder,
        name="tiny",
        model=tiny_model(),
        preprocessing=tiny_preprocessing(),
        metrics={},
        recipe_yaml="",
    )
    return folder


@pytest.mark.parametrize("name", [name for name in KINDS if RECIPES[name].model is not None])
def test_model_is_built_on_no_device(name: str) -> None:
    tree = RECIPES[name].model_dump(mode="json")
    tree["model"]["options"] = HUB_OPTIONS.get(tree["model"]["pretrained"], {})
    tree["model"]["pretrained"] = None
    with torch.device("meta"):
        start = build_start(parse_as(ImageRecipe, tree, name), load_pretrained=False)
        classifier = ImageClassifier(start.tower, 8, frozen=RECIPES[name].frozen)
    assert all(parameter.is_meta for parameter in classifier.parameters())
    assert sum(parameter.numel() for parameter in classifier.parameters()) > 1e6


@pytest.mark.parametrize("name", KINDS)
def test_recipe_trains(name: str, squares: Path, bundle: Path, tmp_path: Path) -> None:
    check_trains(name, squares, bundle, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_recipe_of_another_number_trains(name: str, squares: Path, bundle: Path, tmp_path: Path) -> None:
    check_trains(name, squares, bundle, tmp_path)


def check_trains(name: str, squares: Path, bundle: Path, folder: Path) -> None:
    """Two steps at small scale end in the AUC of both labels."""
    recipe = shrunk(RECIPES[name], bundle)
    result = classify_images(recipe, squares, RunOptions(folder / "out", device="cpu", show_progress=False))
    assert result.test.auc.keys() == {"bright", "red"}
    assert math.isfinite(result.validation["mean_auc"])


def shrunk(recipe: ImageRecipe, bundle: Path) -> ImageRecipe:
    """The recipe with an encoder of a few numbers, tiny images, other labels, small batches."""
    tree = recipe.model_dump(mode="json")
    if recipe.model is None:
        tree["encoder"] = str(bundle)
    else:
        tree["model"] |= {"pretrained": None, "options": IMAGE_OPTIONS[recipe.model.architecture]}
        tree["preprocessing"]["size"] = 32
    tree["data"]["labels"] = None
    tree["data"]["validation_images"] = min(8, recipe.data.validation_images)
    tree["data"]["share"] = 1.0 if recipe.data.share == 1 else 0.5
    tree["train"] |= {"batch_size": 8, "epochs": 1, "precision": "fp32"}
    return parse_as(ImageRecipe, tree, recipe.name)
