"""What a run is made of."""

import logging

import pytest

from training.recipes.load import load_recipe
from training.trainer.setup import thaw_random_towers


def test_random_towers_are_not_frozen_and_pretrained_ones_are(caplog: pytest.LogCaptureFixture) -> None:
    recipe = load_recipe("reco-flickr-small", ["model.text.pretrained=somewhere"])
    assert recipe.model.image.frozen_layers and recipe.model.text.frozen_layers

    with caplog.at_level(logging.WARNING):
        thawed = thaw_random_towers(recipe)

    assert thawed.model.image.frozen_layers == 0
    assert thawed.model.text == recipe.model.text
    assert "model.image.pretrained" in caplog.text
    assert "model.text.pretrained" not in caplog.text
