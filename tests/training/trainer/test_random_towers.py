"""Random towers with a learning rate that does not train them."""

import logging

import pytest

from training.recipes.load import load_recipe
from training.trainer.requirements import warn_of_slow_random_towers


def warnings(caplog: pytest.LogCaptureFixture, name: str, *overrides: str) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        warn_of_slow_random_towers(load_recipe(name, overrides))
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("name", ["reco-flickr30k", "infonce-flickr30k", "orthogonality-flickr30k"])
def test_a_recipe_that_needs_clips_weights_says_so(name: str, caplog: pytest.LogCaptureFixture) -> None:
    both = warnings(caplog, name)
    assert len(both) == 2
    assert "model.image.pretrained" in both[0] and "1e-06" in both[0]
    (text,) = warnings(caplog, name, "model.image.pretrained=clip-rn50")
    assert "model.text.pretrained" in text
    assert not warnings(caplog, name, "model.image.pretrained=a", "model.text.pretrained=a")


def test_the_rate_is_that_of_the_towers(caplog: pytest.LogCaptureFixture) -> None:
    assert not warnings(caplog, "demo-scenes")
    assert len(warnings(caplog, "demo-scenes", "optimizer.tower_lr=1e-6")) == 2
    assert not warnings(caplog, "demo-scenes", "optimizer.lr=1e-6", "optimizer.tower_lr=1e-3")


def test_pretrained_recipes_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    assert not warnings(caplog, "quest-clip-flickr30k")
