"""How a split is opened for training, and for the loss of validation."""

from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from tests.training.trainer.scenes import SIZE, tiny_recipe
from training.common.manifest import Rejections, read_manifest
from training.imaging.images import decode_image
from training.models.preprocessing import ImagePreprocessing
from training.recipes.load import parse_recipe
from training.trainer.run_state.processes import Processes
from training.trainer.setup import build_model
from training.trainer.split_data import SplitOpener


@pytest.mark.parametrize("crops", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_only_random_crops_are_taken_from_the_margin_that_evaluation_cuts_off(
    scenes: Path, crops: bool, training: bool
) -> None:
    tree = tiny_recipe().model_dump(mode="json")
    tree["preprocessing"]["image"]["resize_to"] = 2 * SIZE
    tree["augmentation"]["crop_scale"] = [0.5, 1.0] if crops else [1.0, 1.0]
    recipe = parse_recipe(tree, "A recipe with a margin")
    split = read_manifest(scenes).split("train")
    _, preprocessing = build_model(recipe, split, load_pretrained=False)
    with ExitStack() as resources:
        opener = SplitOpener(
            recipe,
            preprocessing,
            frozenset({"image", "text"}),
            torch.device("cpu"),
            Processes(),
            resources,
        )
        data = opener.open(split, Rejections(len(split.records)), training=training)
        image = data.batches.load(0, 0).inputs.images[0]
    config = recipe.preprocessing.image
    seen = config.model_copy(update={"resize_to": None}) if crops and training else config
    known = [ImagePreprocessing(seen).to_uint8(decode_image(split.image_path(r))) for r in split.records]
    assert any(torch.equal(image, expected) for expected in known)
