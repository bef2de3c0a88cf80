import copy

import pytest
import torch
from torch import nn

from tests.training.models.tiny import (
    IMAGE_OPTIONS,
    TEXT_OPTIONS,
    image_tower,
    tiny_config,
    tiny_model,
    tiny_pixels,
    tiny_tokens,
)
from training.common.errors import RecipeError
from training.models.config import ImageArchitecture, TextArchitecture
from training.models.dual_encoder import DualEncoder
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
    wanted = {id(module) for module in modules}
    prefixes = [name for name, module in backbone.named_modules() if id(module) in wanted]
    return {name for name in backbone.state_dict() for prefix in prefixes if name.startswith(f"{prefix}.")}


@pytest.mark.parametrize("architecture", sorted(IMAGE_OPTIONS))
def test_stem_and_first_blocks_of_an_image_tower_stand_still(architecture: ImageArchitecture) -> None:
    model = tiny_model(tiny_config(architecture, image_settings={"frozen_layers": 2}))
    before = copy.deepcopy(model)
    train_one_step(model)
    backbone = image_tower(model).backbone
    frozen = [*backbone.stem(), *backbone.layers()[0], *backbone.layers()[1]]
    moved = changed(image_tower(before).backbone, backbone)
    assert names_within(backbone, frozen)
    assert not moved & names_within(backbone, frozen)
    assert moved & names_within(backbone, list(backbone.layers()[2]))
    assert len(backbone.layers()) == LAYERS.get(architecture, 3)


@pytest.mark.parametrize("architecture", sorted(TEXT_OPTIONS))
def test_embeddings_and_first_layers_of_a_text_tower_stand_still(architecture: TextArchitecture) -> None:
    model = tiny_model(tiny_config(text=architecture, text_settings={"frozen_layers": 2}))
    before = copy.deepcopy(model)
    train_one_step(model)
    assert model.text is not None
    assert before.text is not None
    backbone = model.text.backbone
    frozen = [*backbone.stem(), *backbone.layers()[0], *backbone.layers()[1]]
    moved = changed(before.text.backbone, backbone)
    assert not moved & names_within(backbone, frozen)
    assert moved & names_within(backbone, list(backbone.layers()[2]))


def test_all_freezes_batch_norm_statistics_too_but_not_the_heads() -> None:
    settings = {"frozen_layers": "all"}
    model = tiny_model(tiny_config("resnet", "bert", image_settings=settings, text_settings=settings))
    before = copy.deepcopy(model)
    train_one_step(model)
    moved = changed(before, model)
    assert {name.split(".")[0] for name in moved} == {"image_head", "text_head"}
    assert not list(model.tower_parameters())


def test_nothing_frozen_moves_everything_else() -> None:
    model = tiny_model()
    before = copy.deepcopy(model)
    train_one_step(model)
    moved = changed(image_tower(before).backbone, image_tower(model).backbone)
    assert any(name.endswith("running_mean") for name in moved)


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
