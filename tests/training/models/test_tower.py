"""Frozen layers, and batches in slices compared with whole ones."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.models.tiny import (
    IMAGE_OPTIONS,
    TEXT_OPTIONS,
    image_tower,
    tiny_config,
    tiny_model,
    tiny_pixels,
    tiny_tokenizer,
    tiny_tokens,
)
from training.common.errors import RecipeError
from training.models import tower
from training.models.config import (
    ImageArchitecture,
    ImageTowerConfig,
    Modality,
    TextArchitecture,
    TextTowerConfig,
)
from training.models.dual_encoder import DualEncoder
from training.models.image_towers import build_image_tower
from training.models.text_towers import build_text_tower
from training.models.tower import Backbone

LAYERS = {"clip_resnet": 5, "convnext": 5, "efficientnet": 10, "mobilenet_v2": 16, "resnet": 5}


def train_one_step(model: DualEncoder) -> None:
    model.train()
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5)
    features = model(tiny_pixels(), tiny_tokens())
    (features["image"].embedding * features["text"].embedding).sum().backward()
    optimizer.step()


def changed(before: nn.Module, after: nn.Module) -> set[str]:
    old = before.state_dict()
    return {name for name, value in after.state_dict().items() if not torch.equal(old[name], value)}


def names_within(backbone: Backbone, modules: list[nn.Module]) -> set[str]:
    inside = {id(module) for module in modules}
    prefixes = [name for name, module in backbone.named_modules() if id(module) in inside]
    return {name for name in backbone.state_dict() for prefix in prefixes if name.startswith(f"{prefix}.")}


@pytest.mark.parametrize(
    ("modality", "architecture"),
    [(name, each) for name, known in (("image", IMAGE_OPTIONS), ("text", TEXT_OPTIONS)) for each in known],
)
def test_stem_and_first_layers_of_a_tower_stay(modality: Modality, architecture: str) -> None:
    content: dict[str, Any] = {modality: architecture, f"{modality}_settings": {"frozen_layers": 2}}
    model = tiny_model(tiny_config(**content))
    before = copy.deepcopy(model)
    train_one_step(model)
    backbone = model.towers[modality].backbone
    frozen = [*backbone.stem(), *backbone.layers()[0], *backbone.layers()[1]]
    moved = changed(before.towers[modality].backbone, backbone)
    assert names_within(backbone, frozen)
    assert not moved & names_within(backbone, frozen)
    assert moved & names_within(backbone, list(backbone.layers()[2]))
    assert len(backbone.layers()) == LAYERS.get(architecture, 3)


def test_all_freezes_batch_norm_statistics_too_but_not_the_heads() -> None:
    settings = {"frozen_layers": "all"}
    model = tiny_model(tiny_config("resnet", "bert", image_settings=settings, text_settings=settings))
    before = copy.deepcopy(model)
    train_one_step(model)
    moved = changed(before, model)
    assert {name.split(".")[0] for name in moved} == {"image_head", "text_head"}
    assert not list(model.tower_parameters())


def test_frozen_parts_use_no_dropout_in_training() -> None:
    model = tiny_model(tiny_config(text="bert", text_settings={"frozen_layers": "all"})).train()
    tokens = tiny_tokens()
    assert torch.equal(model.encode_text(tokens).embedding, model.encode_text(tokens).embedding)


def test_a_copy_keeps_its_own_frozen_parts_frozen() -> None:
    model = copy.deepcopy(tiny_model(tiny_config(image_settings={"frozen_layers": "all"})))
    before = copy.deepcopy(model)
    train_one_step(model)
    assert not changed(image_tower(before), image_tower(model))


def test_says_how_many_layers_there_are() -> None:
    with pytest.raises(RecipeError, match="has 3 layers"):
        tiny_model(tiny_config(text_settings={"frozen_layers": 4}))


CONV_NETS: tuple[ImageArchitecture, ...] = ("convnext", "efficientnet", "mobilenet_v2", "resnet")
SENTENCES = tuple(" ".join(["dogs run"] * (1 + 7 * number % 11)) for number in range(20))


def cut(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Run batches in slices of this size."""
    monkeypatch.setattr(tower, "_IMAGES", size)
    monkeypatch.setattr(tower, "_TEXTS", size)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("frozen", [0, pytest.param(2, marks=pytest.mark.slow), "all"])
@pytest.mark.parametrize("architecture", CONV_NETS)
def test_images_in_slices_equal_the_whole(
    architecture: ImageArchitecture, frozen: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        torch.manual_seed(0)
        config = {"architecture": architecture, "options": IMAGE_OPTIONS[architecture]}
        settings = ImageTowerConfig.model_validate({**config, "frozen_layers": frozen})
        built = build_image_tower(settings, load_pretrained=True).double().train()
        pooled = built(tiny_pixels(14).double()).pooled
        if pooled.requires_grad:
            (pooled * torch.arange(14.0)[:, None]).sum().backward()
        return pooled.detach(), gradients(built), dict(built.named_buffers())

    cut(monkeypatch, 10**6)
    expected = run()
    cut(monkeypatch, 6)
    actual = run()
    assert bool(expected[1]) == (frozen != "all")
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("architecture", CONV_NETS)
def test_running_layer_by_layer_equals_the_models_own_forward(
    architecture: ImageArchitecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, 6)
    torch.manual_seed(0)
    config = {"architecture": architecture, "options": IMAGE_OPTIONS[architecture]}
    backbone = build_image_tower(ImageTowerConfig.model_validate(config), load_pretrained=True).backbone
    backbone.double()
    for mode in (True, False):
        backbone.train(mode)
        pixels = tiny_pixels(14).double()
        with torch.no_grad():
            features = backbone(pixels)
            own = backbone.get_submodule("model")(pixel_values=pixels)
        torch.testing.assert_close(features.pooled, own.pooler_output.flatten(1), atol=1e-9, rtol=1e-6)
        expected = own.last_hidden_state.flatten(2).transpose(1, 2)
        torch.testing.assert_close(features.local, expected, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("architecture", sorted(TEXT_OPTIONS))
def test_texts_by_length_equal_the_whole(
    architecture: TextArchitecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = {"architecture": architecture, "options": TEXT_OPTIONS[architecture], "pooling": "eos"}
    settings = TextTowerConfig.model_validate(config)
    built = build_text_tower(settings, tiny_tokenizer(), load_pretrained=True).double().eval()
    tokens = tiny_tokens(SENTENCES)
    mask = tokens.attention_mask.bool()

    def run() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        built.zero_grad()
        output, weights = built(tokens), torch.arange(20.0)[:, None]
        local = output.local * weights[:, None] * mask[..., None]
        ((output.pooled * weights).sum() + local.sum()).backward()
        return output.pooled.detach(), output.local.detach()[mask], gradients(built)

    cut(monkeypatch, 10**6)
    expected = run()
    cut(monkeypatch, 6)
    actual = run()
    assert len({int(length) for length in mask.sum(dim=1)}) > 5
    assert expected[2]
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-6)
