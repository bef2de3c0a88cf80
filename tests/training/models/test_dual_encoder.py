import pytest
import torch

from tests.training.models.tiny import (
    TEXTS,
    tiny_config,
    tiny_model,
    tiny_pixels,
    tiny_preprocessing,
    tiny_tokenizer,
    tiny_tokens,
)
from training.errors import RecipeError
from training.models.dual_encoder import build_dual_encoder

MLP = {"head": {"kind": "mlp", "hidden": 20}}


def test_returns_features_of_both_modalities() -> None:
    features = tiny_model()(tiny_pixels(), tiny_tokens())
    assert features.positive_mask is None
    for modality in ("image", "text"):
        assert features[modality].embedding.shape == (4, 12)
        assert features[modality].local is None


def test_local_features_are_projected_and_masked() -> None:
    config = tiny_config(
        "vit",
        "bert",
        image_settings={"pooling": "attention"},
        text_settings={"pooling": "attention"},
        local_features=True,
    )
    tokens = tiny_tokens()
    features = tiny_model(config).eval()(tiny_pixels(), tokens)
    image, text = features["image"], features["text"]
    assert image.local.shape == (4, 4, 12)
    assert image.local_mask.all()
    assert text.local.shape == (4, tokens.input_ids.shape[1], 12)
    assert torch.equal(text.local_mask, tokens.attention_mask.bool())
    assert (text.local_weights[~text.local_mask] == 0).all()
    torch.testing.assert_close(text.local_weights.sum(dim=1), torch.ones(4))


def test_order_of_the_batch_changes_nothing() -> None:
    model = tiny_model().eval()
    forward = model(tiny_pixels(), tiny_tokens())
    backward = model(tiny_pixels().flip(0), tiny_tokens(TEXTS[::-1]))
    for modality in ("image", "text"):
        torch.testing.assert_close(backward[modality].embedding.flip(0), forward[modality].embedding)


def test_every_trainable_parameter_is_in_exactly_one_group() -> None:
    settings = {"pooling": "attention", "frozen_layers": 1, **MLP}
    model = tiny_model(tiny_config(text="bert", text_settings=settings, local_features=True))
    towers, heads = list(model.tower_parameters()), list(model.head_parameters())
    trainable = [id(parameter) for parameter in model.parameters() if parameter.requires_grad]
    assert sorted([*map(id, towers), *map(id, heads)]) == sorted(trainable)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(".backbone." in names[id(parameter)] for parameter in towers)
    assert not any(".backbone." in names[id(parameter)] for parameter in heads)


def test_gradients_reach_every_trainable_parameter() -> None:
    settings = {"pooling": "attention", **MLP}
    model = tiny_model(tiny_config(text="bert", image_settings=MLP, text_settings=settings)).train()
    features = model(tiny_pixels(), tiny_tokens())
    (features["image"].embedding.square().sum() + features["text"].embedding.square().sum()).backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_the_same_seed_gives_the_same_weights() -> None:
    first, second, other = tiny_model(), tiny_model(), tiny_model(seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_builds_from_its_resolved_configuration_on_the_meta_device() -> None:
    model = tiny_model(tiny_config("clip_resnet", "roberta"))
    with torch.device("meta"):
        again = build_dual_encoder(model.config, tiny_tokenizer(), load_pretrained=False)
    assert again.config == model.config
    assert {n: p.shape for n, p in again.named_parameters()} == {
        n: p.shape for n, p in model.named_parameters()
    }


def test_refuses_preprocessing_that_does_not_fit() -> None:
    model = tiny_model(tiny_config("vit", "siglip_text_model"))
    model.check_preprocessing(tiny_preprocessing().config)
    with pytest.raises(RecipeError, match="32 pixels, not 64"):
        model.check_preprocessing(tiny_preprocessing(image={"size": 64}).config)
    with pytest.raises(RecipeError, match="64 tokens, not 65"):
        model.check_preprocessing(tiny_preprocessing(text={"max_tokens": 65}).config)
