"""The image classifier: its loss, what it freezes, and what it starts from."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.classification.images.samples import RESNET, tiny_recipe
from tests.training.models.tiny import image_tower, tiny_config, tiny_model, tiny_pixels, tiny_preprocessing
from training.classification.images.model import ImageClassifier, build_start
from training.common.errors import BundleError, RecipeError
from training.models.bundle import save_bundle
from training.models.config import ImageTowerConfig
from training.models.image_towers import build_image_tower


def classifier(*, frozen: bool, **settings: Any) -> ImageClassifier:
    torch.manual_seed(0)
    config = ImageTowerConfig.model_validate({"architecture": "resnet", "options": RESNET, **settings})
    return ImageClassifier(build_image_tower(config, load_pretrained=False), 3, frozen=frozen)


def test_loss_is_the_mean_over_images_and_labels() -> None:
    model = classifier(frozen=False).eval()
    pixels, targets = tiny_pixels(4), torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    loss, terms = model(pixels, targets)
    chances = model.logits(pixels).sigmoid()
    expected = -(targets * chances.log() + (1 - targets) * (1 - chances).log()).mean()
    torch.testing.assert_close(loss, expected)
    assert terms == {}


@pytest.mark.parametrize("pooling", ["tower", "attention"])
def test_a_frozen_encoder_keeps_weights_and_statistics(pooling: str) -> None:
    model = classifier(frozen=True, pooling=pooling)
    before = {name: value.clone() for name, value in model.image.state_dict().items()}
    model.train()
    assert model.training and model.head.training
    assert not any(module.training for module in model.image.modules())
    loss, _ = model(tiny_pixels(4), torch.ones(4, 3))
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert all(torch.equal(value, before[name]) for name, value in model.image.state_dict().items())
    assert all(parameter.grad is None for parameter in model.image.parameters())
    assert model.head.weight.grad is not None


def test_fine_tuning_changes_all_of_the_encoder() -> None:
    model = classifier(frozen=False)
    loss, _ = model(tiny_pixels(4), torch.ones(4, 3))
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert any(module.training for module in model.image.modules())


def bundle(folder: Path, **settings: Any) -> Path:
    config = tiny_config(**settings)
    save_bundle(
        folder,
        name="tiny",
        model=tiny_model(config),
        preprocessing=tiny_preprocessing(),
        metrics={},
        recipe_yaml="",
    )
    return folder


@pytest.mark.parametrize(
    "settings",
    [
        {"image_settings": {"frozen_layers": "all"}},
        {"image_settings": {"pooling": "attention"}, "local_features": True},
        {"branches": {}},
    ],
)
def test_a_bundle_gives_its_tower_without_the_head(tmp_path: Path, settings: dict[str, Any]) -> None:
    folder = bundle(tmp_path / "bundle", **settings)
    recipe = tiny_recipe(encoder=str(folder), model=None, preprocessing=None)
    start = build_start(recipe, load_pretrained=True)
    weights = load_file(folder / "model.safetensors")
    for name, value in start.tower.state_dict().items():
        assert torch.equal(value, weights[f"image.{name}"])
    assert all(parameter.requires_grad for parameter in start.tower.parameters())
    assert start.preprocessing.config == tiny_preprocessing().config.image
    torch.testing.assert_close(
        start.tower.eval()(tiny_pixels()).pooled,
        image_tower(tiny_model(tiny_config(**settings)).eval())(tiny_pixels()).pooled,
    )
    assert len(start.digest) == 64


def test_what_is_missing_to_start_from_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"tiny begins with a trained encoder: .* --set encoder=FOLDER"):
        build_start(tiny_recipe(model=None, preprocessing=None), load_pretrained=True)
    with pytest.raises(BundleError, match="There is no bundle"):
        build_start(
            tiny_recipe(model=None, preprocessing=None, encoder=str(tmp_path / "no")), load_pretrained=True
        )
    vit = {"architecture": "vit", "options": {"image_size": 32, "patch_size": 16, "hidden_size": 24}}
    with pytest.raises(RecipeError, match=r"images of 32 pixels, not 16: set preprocessing\.size to 32"):
        build_start(tiny_recipe(model={**vit, "pretrained": None}), load_pretrained=True)
