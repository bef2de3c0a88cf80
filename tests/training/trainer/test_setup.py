"""What a run is made of."""

import logging
from typing import Any

import pytest
import torch

from training.recipes.load import load_recipe
from training.trainer import devices
from training.trainer.devices import build_fabric
from training.trainer.setup import thaw_random_towers


def test_random_towers_are_not_frozen_and_pretrained_ones_are(caplog: pytest.LogCaptureFixture) -> None:
    recipe = load_recipe("reco-flickr-small", ["model.text.pretrained=somewhere"])
    assert recipe.model.text is not None
    assert recipe.model.image.frozen_layers and recipe.model.text.frozen_layers

    with caplog.at_level(logging.WARNING):
        thawed = thaw_random_towers(recipe)

    assert thawed.model.image.frozen_layers == 0
    assert thawed.model.text == recipe.model.text
    assert "model.image.pretrained" in caplog.text
    assert "model.text.pretrained" not in caplog.text


@pytest.mark.parametrize(("native", "precision"), [(True, "bf16-mixed"), (False, "32-true")])
def test_bfloat16_is_chosen_only_where_the_gpu_itself_has_it(
    monkeypatch: pytest.MonkeyPatch, native: bool, precision: str
) -> None:
    chosen: dict[str, Any] = {}

    def supported(including_emulation: bool = True) -> bool:
        return native or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    monkeypatch.setattr(devices, "choose_device", torch.device)
    monkeypatch.setattr(devices, "Fabric", lambda **settings: chosen.update(settings))
    build_fabric("auto", "cuda:1")
    assert chosen == {"accelerator": "cuda", "devices": [1], "precision": precision}
