"""Slices against the whole batch: the same features, gradients and statistics."""

import pytest
import torch
from torch import Tensor, nn

from tests.training.models.tiny import IMAGE_OPTIONS, TEXT_OPTIONS, tiny_pixels, tiny_tokenizer, tiny_tokens
from training.models import slices
from training.models.config import ImageArchitecture, ImageTowerConfig, TextArchitecture, TextTowerConfig
from training.models.images.towers import build_image_tower
from training.models.texts.towers import build_text_tower

CONV_NETS: tuple[ImageArchitecture, ...] = ("convnext", "efficientnet", "mobilenet_v2", "resnet")
SENTENCES = tuple(" ".join(["dogs run"] * (1 + 7 * number % 11)) for number in range(70))


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let every batch be run whole, until `undo()`."""
    monkeypatch.setattr(slices, "_IMAGES", 10**6)
    monkeypatch.setattr(slices, "_TEXTS", 10**6)
    return monkeypatch


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("frozen", [0, pytest.param(2, marks=pytest.mark.slow), "all"])
@pytest.mark.parametrize("architecture", CONV_NETS)
def test_images_in_slices_equal_the_whole(
    architecture: ImageArchitecture, frozen: int | str, whole: pytest.MonkeyPatch
) -> None:
    def run() -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        torch.manual_seed(0)
        config = {
            "architecture": architecture,
            "options": IMAGE_OPTIONS[architecture],
            "frozen_layers": frozen,
        }
        tower = build_image_tower(ImageTowerConfig.model_validate(config), load_pretrained=True)
        tower.double().train()
        pooled = tower(tiny_pixels(70).double()).pooled
        if pooled.requires_grad:
            (pooled * torch.arange(70.0)[:, None]).sum().backward()
        return pooled.detach(), gradients(tower), dict(tower.named_buffers())

    expected = run()
    whole.undo()
    found = run()
    assert bool(expected[1]) == (frozen != "all")
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("architecture", CONV_NETS)
def test_running_layer_by_layer_equals_the_models_own_forward(architecture: ImageArchitecture) -> None:
    torch.manual_seed(0)
    config = {"architecture": architecture, "options": IMAGE_OPTIONS[architecture]}
    backbone = build_image_tower(ImageTowerConfig.model_validate(config), load_pretrained=True).backbone
    backbone.double()
    for mode in (True, False):
        backbone.train(mode)
        pixels = tiny_pixels(70).double()
        with torch.no_grad():
            features = backbone(pixels)
            own = backbone.model(pixel_values=pixels)  # type: ignore[operator]
        torch.testing.assert_close(features.pooled, own.pooler_output.flatten(1), atol=1e-9, rtol=1e-6)
        expected = own.last_hidden_state.flatten(2).transpose(1, 2)
        torch.testing.assert_close(features.local, expected, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("architecture", sorted(TEXT_OPTIONS))
def test_texts_by_length_equal_the_whole(architecture: TextArchitecture, whole: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = {"architecture": architecture, "options": TEXT_OPTIONS[architecture], "pooling": "eos"}
    tower = (
        build_text_tower(TextTowerConfig.model_validate(config), tiny_tokenizer(), load_pretrained=True)
        .double()
        .eval()
    )
    tokens = tiny_tokens(SENTENCES)
    mask = tokens.attention_mask.bool()

    def run() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        tower.zero_grad()
        output = tower(tokens)
        weights = torch.arange(70.0)[:, None]
        (
            (output.pooled * weights).sum() + (output.local * weights[:, None] * mask[..., None]).sum()
        ).backward()
        return output.pooled.detach(), output.local.detach()[mask], gradients(tower)

    expected = run()
    whole.undo()
    found = run()
    assert len({int(length) for length in mask.sum(dim=1)}) > 5
    assert expected[2]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-6)
